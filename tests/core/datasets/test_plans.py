"""Plans of shards against sums taken one by one, and what they say of time."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.datasets.plans import PERCENTILES, plan_shards
from lachesis.wire.errors import InvalidField
from tests.properties import examples

LENGTHS = st.lists(st.integers(0, 2**36), min_size=1, max_size=60)


@given(lengths=LENGTHS, ranks=st.integers(1, 12), equal=st.booleans(), quadratic=st.booleans())
@examples(200)
def test_every_episode_is_in_one_shard_and_the_shards_add_up(
    lengths: list[int], ranks: int, equal: bool, quadratic: bool
) -> None:
    costs = [float(length) ** (2 if quadratic else 1) for length in lengths]
    plan = plan_shards(np.array(lengths), np.array(costs), ranks, equal_episodes=equal)
    members = plan.balanced.shards
    assert sorted(n for shard in members for n in shard.tolist()) == list(range(len(lengths)))
    for shard, of in zip(plan.shards, members, strict=True):
        assert (shard.episodes, shard.length) == (len(of), sum(lengths[n] for n in of.tolist()))
        assert shard.cost == pytest.approx(sum(costs[n] for n in of.tolist()))
    mean = sum(costs) / ranks
    assert [shard.load for shard in plan.shards] == pytest.approx(
        [shard.cost / mean if mean else 1.0 for shard in plan.shards]
    )


@given(lengths=LENGTHS, ranks=st.integers(1, 12))
@examples(200)
def test_times_are_those_of_the_slowest_ranks(lengths: list[int], ranks: int) -> None:
    plan = plan_shards(np.array(lengths), np.array(lengths, float), ranks, equal_episodes=False)
    mean = sum(lengths) / ranks
    naive = [0.0] * ranks
    for n, length in enumerate(lengths):
        naive[n * ranks // len(lengths)] += length
    assert plan.contiguous_loads.tolist() == pytest.approx(naive)
    if mean:
        assert plan.contiguous_pass_time == pytest.approx(max(naive) / mean)
        assert plan.pass_time == pytest.approx(max(shard.cost for shard in plan.shards) / mean)
        assert plan.speed_up == pytest.approx(max(naive) / max(shard.cost for shard in plan.shards))
    assert 1 - 1e-9 <= plan.bound_pass_time <= plan.pass_time + 1e-9


@given(LENGTHS)
@examples(200)
def test_lengths_are_described_as_the_standard_library_does(lengths: list[int]) -> None:
    found = plan_shards(np.array(lengths), np.array(lengths, float), 1, equal_episodes=False).lengths
    assert (found.episodes, found.total) == (len(lengths), sum(lengths))
    assert (found.shortest, found.longest) == (min(lengths), max(lengths))
    assert found.mean == pytest.approx(statistics.mean(lengths))
    spread = statistics.pstdev(lengths) / statistics.mean(lengths) if any(lengths) else 0.0
    assert found.variation == pytest.approx(spread, abs=1e-9)
    cuts = statistics.quantiles([*lengths, *lengths[:1]][: max(2, len(lengths))], n=100, method="inclusive")
    assert [*found.percentiles.values()] == pytest.approx([cuts[cut - 1] for cut in PERCENTILES])


def test_sorted_lengths_are_where_a_plan_is_worth_most() -> None:
    plan = plan_shards(np.arange(1, 801), np.arange(1.0, 801.0), 8, equal_episodes=True)
    assert plan.contiguous_pass_time == pytest.approx(1.874, abs=0.001)
    assert plan.pass_time < 1.0001
    assert plan.balanced.equal
    assert {shard.episodes for shard in plan.shards} == {100}


def test_equal_shards_are_not_made_of_a_number_that_does_not_divide() -> None:
    assert not plan_shards(np.arange(1, 802), np.arange(1.0, 802.0), 8, equal_episodes=True).balanced.equal


def test_ranks_without_an_episode_are_there_with_none() -> None:
    plan = plan_shards(np.array([5]), np.array([5.0]), 3, equal_episodes=False)
    assert sorted(shard.episodes for shard in plan.shards) == [0, 0, 1]
    assert plan.balanced.imbalance.max_over_min is None


def test_costs_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidField, match="cost of job 1"):
        plan_shards(np.array([5, 6]), np.array([5.0, np.inf]), 2, equal_episodes=False)
