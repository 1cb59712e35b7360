"""Balanced shards against brute force, the invariants of every answer, and the cases of the benchmark."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.ranks import partition
from app.core.ranks.balancing import Balanced, BalancingMethod, Imbalance, balance, least_imbalance
from lachesis.wire.errors import InvalidField
from tests.properties import examples

ROUNDING = 1e-9
COSTS = (
    st.integers(0, 5).map(float)
    | st.floats(0, 1e6)
    | st.sampled_from([0.0, 1e-300, 1.0, 1e15, 1e305])  # ties, any, wild
)


def most(costs: NDArray[np.float64], rank_of: NDArray[np.int64], ranks: int) -> float:
    """Return the largest load over the mean load, with sums that cannot overflow."""
    scaled = costs / costs.max() if costs.max() else costs
    loads = np.bincount(rank_of, scaled, ranks)
    return float(loads.max() / loads.mean()) if loads.max() else 1.0


def least_possible(costs: list[float], ranks: int, sizes: list[int], equal: bool) -> float | None:
    """Try all splits; gives the smallest largest load over the mean load, or None if no split is equal."""
    every = np.array(list(product(range(ranks), repeat=len(costs))))
    held = every[:, :, None] == np.arange(ranks)
    if equal:
        sequences = (held * np.array(sizes)[:, None]).sum(axis=1)
        held = held[(sequences == sequences[:, :1]).all(axis=1)]
    scaled = np.array(costs) / (max(costs) or 1)
    loads = (held * scaled[:, None]).sum(axis=1)
    if not len(loads):
        return None
    return float(loads.max(axis=1).min() / scaled.sum() * ranks) if scaled.any() else 1.0


@st.composite
def problems(draw: st.DrawFn, most_jobs: int, most_ranks: int) -> tuple[list[float], int, list[int]]:
    """Draw costs, ranks and sizes: of one size or mixed, and often in numbers that can be shared out equally."""
    ranks = draw(st.integers(1, most_ranks))
    jobs = draw(st.integers(1, most_jobs) | st.integers(1, max(1, most_jobs // ranks)).map(lambda each: each * ranks))
    size = st.just(draw(st.sampled_from([1, 8]))) if draw(st.booleans()) else st.sampled_from([1, 2, 3, 4])
    of_jobs = {"min_size": min(jobs, most_jobs), "max_size": min(jobs, most_jobs)}
    return draw(st.lists(COSTS, **of_jobs)), ranks, draw(st.lists(size, **of_jobs))


@examples(400)
@given(problems(8, 3), st.booleans())
@example(([5.0, 5, 4, 3, 3], 2, [1] * 5), False)  # longest first is not enough: 5 + 5 beside 4 + 3 + 3
@example(([5.0, 7, 9, 8, 6, 11, 10, 1], 3, [1] * 8), False)  # nor are exchanges of one job for another
@example(([11.0, 3, 8, 1, 3, 10, 11, 1], 2, [1] * 8), True)
@example(([9.0, 1, 1, 1, 1, 1], 2, [4, 1, 1, 1, 1, 4]), True)
def test_few_lots_are_split_as_well_as_is_possible(problem: tuple[list[float], int, list[int]], equal: bool) -> None:
    costs, ranks, sizes = problem
    balanced = balance(costs, ranks, equal=equal, sizes=sizes)
    best = least_possible(costs, ranks, sizes, equal)
    assert balanced.equal == (equal and best is not None)
    if best is None:
        best = least_possible(costs, ranks, sizes, equal=False)
    assert best is not None
    assert 1 + balanced.imbalance.max_over_mean == pytest.approx(best, rel=ROUNDING)
    assert 1 + balanced.bound.max_over_mean <= best * (1 + ROUNDING)
    free = least_possible(costs, ranks, sizes, equal=False)
    assert free is not None
    assert 1 + least_imbalance(costs, ranks, equal=False, sizes=sizes) <= free * (1 + ROUNDING)


@examples(300)
@given(problems(150, 20), st.booleans())
def test_every_answer_keeps_the_invariants(problem: tuple[list[float], int, list[int]], equal: bool) -> None:
    costs, ranks, sizes = problem
    values, jobs = np.array(costs), np.arange(len(costs))
    balanced = balance(costs, ranks, equal=equal, sizes=sizes)
    shards = balanced.shards
    assert len(shards) == ranks
    assert sorted(np.concatenate(shards).tolist()) == jobs.tolist()
    assert all(shard.tolist() == sorted(shard.tolist()) for shard in shards)
    assert all((balanced.rank_of[shard] == rank).all() for rank, shard in enumerate(shards))
    assert len(costs) < ranks or all(len(shard) for shard in shards)
    sequences = [sum(sizes[job] for job in shard) for shard in shards]
    if balanced.equal:
        assert equal
        assert len(set(sequences)) == 1
    if equal and len(set(sizes)) == 1:
        assert balanced.equal == (len(costs) % ranks == 0)
    ours = most(values, balanced.rank_of, ranks)
    assert 1 + balanced.imbalance.max_over_mean == pytest.approx(ours, rel=ROUNDING)
    assert 1 + balanced.bound.max_over_mean <= ours * (1 + ROUNDING)
    free = least_imbalance(costs, ranks, equal=False, sizes=sizes)
    assert free <= balanced.bound.max_over_mean * (1 + ROUNDING) + ROUNDING
    for naive, reported in ((jobs * ranks // len(costs), balanced.contiguous), (jobs % ranks, balanced.strided)):
        theirs = most(values, naive, ranks)
        assert 1 + reported.max_over_mean == pytest.approx(theirs, rel=ROUNDING)
        counts = np.bincount(naive, sizes, ranks)
        if not balanced.equal or (counts == counts[0]).all():
            assert ours <= theirs * (1 + ROUNDING)


@examples(100)
@given(problems(60, 8), st.booleans())
def test_the_lightest_rank_is_reported_too(problem: tuple[list[float], int, list[int]], equal: bool) -> None:
    costs, ranks, sizes = problem
    balanced = balance(np.minimum(costs, 1e12), ranks, equal=equal, sizes=sizes)
    ours, bound = balanced.imbalance.max_over_min, balanced.bound.max_over_min
    lightest, heaviest = min(balanced.loads.tolist()), max(balanced.loads.tolist())
    if ours is None:
        assert heaviest > lightest == 0 or heaviest / lightest > 1e300
    else:
        assert ours == (pytest.approx(heaviest / lightest) if heaviest else 1.0)
        assert bound is not None
        assert bound <= ours * (1 + ROUNDING)


@examples(50)
@given(problems(60, 8), st.booleans())
def test_the_same_lots_are_always_split_the_same_way(problem: tuple[list[float], int, list[int]], equal: bool) -> None:
    costs, ranks, sizes = problem
    first, again = (balance(costs, ranks, equal=equal, sizes=sizes).rank_of for _ in range(2))
    assert first.tolist() == again.tolist()


def cost(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.floor(lengths) * 24576 + np.floor(lengths) ** 2


def lone(rng: np.random.Generator) -> NDArray[np.float64]:
    return cost(rng.lognormal(np.log(1000), 1, 128))


def groups(number: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Make groups of eight whose members are about as long as each other."""
    return cost(rng.lognormal(np.log(1000), 0.8, (number, 1)) * rng.lognormal(0, 0.3, (number, 8)))


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("number", "ranks"), [(64, 8), (128, 64)])
def test_batches_of_groups_are_balanced_within_one_percent_of_the_bound(
    number: int, ranks: int, whole: bool, equal: bool
) -> None:
    for seed in range(5):
        costs = groups(number, np.random.default_rng(seed))
        sizes = np.full(number, 8) if whole else None
        balanced = balance(costs.sum(axis=1) if whole else costs.ravel(), ranks, equal=equal, sizes=sizes)
        assert balanced.equal == equal
        assert near(balanced, 0.01)


@pytest.mark.parametrize("equal", [True, False])
def test_a_batch_of_unlike_sequences_is_balanced_within_a_thousandth_of_the_bound(equal: bool) -> None:
    for seed in range(5):
        assert near(balance(lone(np.random.default_rng(seed)), 8, equal=equal), 0.001)


def near(balanced: Balanced, share: float) -> bool:
    return 1 + balanced.imbalance.max_over_mean <= (1 + balanced.bound.max_over_mean) * (1 + share)


def test_groups_of_mixed_sizes_are_shared_out_equally_where_they_can_be() -> None:
    rng = np.random.default_rng(0)
    sizes = np.repeat([16, 8, 4, 4], 16)
    rng.shuffle(sizes)
    balanced = balance(rng.lognormal(0, 0.5, 64) * sizes, 8, sizes=sizes)
    assert balanced.equal
    assert np.bincount(balanced.rank_of, sizes).tolist() == [64] * 8
    assert near(balanced, 0.02)


def test_an_equal_split_that_only_a_search_finds_is_found() -> None:
    sizes = [5, 7, 9, 8, 6, 11, 10, 1]
    balanced = balance(np.ones(8), 3, sizes=sizes)
    assert balanced.equal
    assert np.bincount(balanced.rank_of, sizes).tolist() == [19] * 3


@examples(200)
@given(st.integers(1, 20).flatmap(lambda ranks: st.lists(st.integers(0, 100), min_size=2 * ranks, max_size=2 * ranks)))
def test_with_two_groups_for_each_rank_the_bound_is_reached(costs: list[int]) -> None:
    """Dearest with cheapest, and so on, is the best there is; so the bound knows that."""
    balanced = balance(costs, len(costs) // 2)
    assert balanced.imbalance.max_over_mean == pytest.approx(balanced.bound.max_over_mean, rel=1e-4, abs=1e-4)


def test_the_textbook_example_of_largest_differences_comes_out_as_in_the_textbook() -> None:
    problem = partition.free(np.array([8.0, 7, 6, 5, 4]), 2, np.ones(5, np.int64))
    assert sorted(problem.loads(partition.largest_differences(problem)).tolist()) == [14, 16]


def test_groups_that_cannot_be_shared_out_equally_are_balanced_freely_and_that_is_said() -> None:
    """Twelve sequences for two ranks, but no groups make six."""
    balanced = balance([3.0, 4.0, 5.0], 2, sizes=[4, 4, 4])
    assert not balanced.equal
    assert sorted(balanced.loads.tolist()) == [5.0, 7.0]


def test_one_rank_gets_everything() -> None:
    balanced = balance([1.0, 2.0], 1)
    assert balanced.shards[0].tolist() == [0, 1]
    assert balanced.imbalance == balanced.bound == Imbalance(0.0, 1.0)


def test_more_ranks_than_lots_leave_some_without() -> None:
    balanced = balance([1.0, 2.0, 3.0], 5)
    assert not balanced.equal
    assert sorted(len(shard) for shard in balanced.shards) == [0, 0, 1, 1, 1]
    assert balanced.imbalance == Imbalance(1.5, None) == balanced.bound


def test_lots_that_cost_nothing_are_spread_all_the_same() -> None:
    balanced = balance([7.0, *[0.0] * 9], 5, equal=False)
    assert all(len(shard) for shard in balanced.shards)


def test_what_is_balanced_already_stays_where_it_is() -> None:
    balanced = balance(np.ones(64), 8)
    assert balanced.method is BalancingMethod.CONTIGUOUS
    assert balanced.rank_of.tolist() == np.repeat(np.arange(8), 8).tolist()


def test_loads_are_in_the_units_of_the_costs() -> None:
    assert sorted(balance([3e300, 1e300, 2e300], 2).loads.tolist()) == [3e300, 3e300]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("equal", [True, False])
def test_a_hundred_thousand_episodes_are_balanced_to_a_thousandth(ranks: int, equal: bool) -> None:
    costs = np.random.default_rng(0).lognormal(0, 1, 64 * 1600)
    assert near(balance(costs, ranks, equal=equal), 0.001)


@pytest.mark.parametrize("start", [partition.longest_first, partition.largest_differences])
def test_exchanges_reach_what_no_start_reaches(start: Any) -> None:
    costs = np.sort(groups(64, np.random.default_rng(0)).ravel())[::-1]
    problem = partition.equal(costs, 8, np.ones(512, np.int64))
    assert problem is not None
    first = start(problem)
    after = partition.improved(problem, first, goal=0.0)
    assert problem.admits(first)
    assert problem.admits(after)
    mean = costs.sum() / 8
    assert problem.loads(after).max() / mean - 1 < 1e-4 < problem.loads(first).max() / mean - 1


@pytest.mark.parametrize(
    ("costs", "ranks", "sizes", "named"),
    [
        ([], 2, None, "shape (0,)"),
        ([1.0], 0, None, "0 ranks"),
        ([1.0, float("nan")], 2, None, "job 1 is nan"),
        ([1.0, 2.0, float("inf")], 2, None, "job 2 is inf"),
        ([-1.0], 2, None, "job 0 is -1.0"),
        ([1e308, 1e308], 2, None, "larger unit"),
        ([1.0, 1.0], 2, [1], "2 integers"),
        ([1.0, 1.0], 2, [1.0, 1.0], "2 integers"),
        ([1.0, 1.0], 2, [1, 0], "job 1 has 0"),
        ([1.0, 1.0], 2, [1, 2**32], "job 1 has 4294967296"),
    ],
)
def test_what_cannot_be_balanced_is_named(costs: list[float], ranks: int, sizes: list[int] | None, named: str) -> None:
    with pytest.raises(InvalidField) as refused:
        balance(costs, ranks, sizes=sizes)
    assert named in str(refused.value)
