"""How ranks share a batch."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.batches.leases import Lease, as_returned
from app.core.model import NotReady
from app.core.ranks.micro_batches import pack
from app.core.ranks.requests import ShardRequest, awaiting, shared
from app.core.ranks.sharding import (
    Balance,
    EndedBy,
    Sharding,
    ShardingSpec,
    acknowledged_by,
    disagreement,
    divide,
    ranks_text,
    read_ranks,
    recorded,
    sequences_of,
    taken_by,
    untouched,
)
from lachesis.wire.blockers import Blocker
from lachesis.wire.errors import InvalidField, RanksDisagree, StepMismatch

EVEN = Balance("none", 0.0, 1.0, 0.0, 0.0, 0.0)
NOW = 1000


def sharding(world_size: int = 2, **changes: object) -> Sharding:
    even = Sharding(ShardingSpec(world_size), False, True, ranks_text(np.array([0, 1])), EVEN)
    return replace(even, **changes)  # type: ignore[arg-type]


def lease(step: int, **changes: object) -> Lease:
    """A batch in the ranks' hands."""
    held = Lease(f"{step}", "held", "w", 1, step, False, "lease", NOW + 1, sharding=sharding())
    return replace(held, **changes)  # type: ignore[arg-type]


# Who is awaited


def test_a_batch_awaits_every_rank_or_only_rank_0() -> None:
    assert sharding(3).awaited == (0, 1, 2)
    assert acknowledged_by(acknowledged_by(sharding(3), 2), 2).awaited == (0, 1)
    by_0 = sharding(3, spec=ShardingSpec(3, ended_by=EndedBy.RANK_0))
    assert acknowledged_by(by_0, 1).awaited == (0,)
    assert acknowledged_by(by_0, 0).awaited == ()


def test_to_find_the_awaited_ranks_each_rank_is_compared_at_most_once() -> None:
    """Each acknowledgement asks for them. So a batch of n ranks asks n times."""
    compared: list[int] = []

    class Rank(int):
        def __eq__(self, other: object) -> bool:
            compared.append(self)
            return int(self) == other

        __hash__ = int.__hash__

    half = sharding(512, acknowledged=tuple(map(Rank, range(256))))
    assert half.awaited == tuple(range(256, 512))
    assert len(compared) <= 512


def test_a_batch_handed_out_again_keeps_its_shards_and_awaits_all_ranks() -> None:
    had = replace(lease(1), sharding=acknowledged_by(taken_by(taken_by(sharding(), 1), 0), 1))
    assert had.sharding is not None
    assert had.sharding.taken == (0, 1)
    assert as_returned(had).sharding == untouched(had.sharding) == sharding()
    assert untouched(taken_by(sharding(), 0, "again")) == sharding()


def test_of_each_rank_the_last_request_is_remembered_if_it_has_an_id() -> None:
    both = taken_by(taken_by(sharding(), 0, "a"), 1, "b")
    assert both.requests == ((0, "a"), (1, "b"))
    assert taken_by(both, 0, "c").requests == ((1, "b"), (0, "c"))
    assert taken_by(both, 0).requests == ((1, "b"),)


def test_why_there_is_no_batch_names_the_ranks_that_are_behind() -> None:
    too_few = NotReady(Blocker.TOO_FEW_SEQUENCES, "too few")
    in_all_hands, done = lease(1), lease(2, sharding=acknowledged_by(sharding(1), 0))
    undivided, ended = lease(2, sharding=None), lease(2, state="quarantined", sharding=acknowledged_by(sharding(2), 0))
    assert awaiting(too_few, [in_all_hands, done, undivided, ended]) == too_few
    two_behind = lease(3, sharding=acknowledged_by(sharding(3), 0))
    assert awaiting(too_few, [two_behind]).detail == "too few; the batch of step 3 awaits ranks 1, 2"
    one_behind = lease(3, sharding=acknowledged_by(sharding(2), 0))
    assert awaiting(too_few, [done, one_behind]).detail == "too few; the batch of step 3 awaits rank 1"
    many_behind = lease(4, sharding=acknowledged_by(sharding(30), 0))
    detail = awaiting(too_few, [many_behind, one_behind]).detail
    assert detail == "too few; the batch of step 4 awaits ranks 1, 2, 3, 4, 5, 6, 7, 8, …"


# Which batch a rank gets


HAD_BY_0 = taken_by(sharding(), 0)
AGAIN_BY_0 = taken_by(taken_by(sharding(), 0, "again"), 1, "again")


@pytest.mark.parametrize(
    ("leases", "shard_request", "step"),
    [
        ([], ShardRequest(0, ShardingSpec(2)), None),
        ([lease(1), lease(2)], ShardRequest(0, ShardingSpec(2)), 1),
        ([lease(1), lease(2)], ShardRequest(0, ShardingSpec(2), after=1), 2),
        ([lease(1), lease(2)], ShardRequest(0, ShardingSpec(2), after=2), None),
        ([lease(1, sharding=acknowledged_by(sharding(), 0)), lease(2)], ShardRequest(0, ShardingSpec(2)), 2),
        ([lease(1, sharding=acknowledged_by(sharding(), 0))], ShardRequest(1, ShardingSpec(2)), 1),
        ([lease(1, deadline_ms=NOW)], ShardRequest(0, ShardingSpec(2)), None),
        ([lease(1, state="returned")], ShardRequest(0, ShardingSpec(2)), None),
        ([lease(1, state="quarantined")], ShardRequest(0, ShardingSpec(2)), None),
        ([lease(1, sharding=None)], ShardRequest(0, ShardingSpec(2)), None),
        ([lease(1, sharding=None), lease(2)], ShardRequest(0, ShardingSpec(4), after=2), None),
        ([lease(1, delivery_count=2), lease(3)], ShardRequest(0, ShardingSpec(2), after=2), 1),
        ([lease(1, delivery_count=2, sharding=HAD_BY_0)], ShardRequest(0, ShardingSpec(2), after=1), None),
        ([lease(1, delivery_count=2, sharding=AGAIN_BY_0)], ShardRequest(0, ShardingSpec(2), 1, None, "again"), 1),
        ([lease(1, delivery_count=2, sharding=AGAIN_BY_0)], ShardRequest(0, ShardingSpec(2), 1, None, "next"), None),
        ([lease(1, delivery_count=2, sharding=AGAIN_BY_0)], ShardRequest(0, ShardingSpec(2), after=1), None),
    ],
    ids=str,
)
def test_a_rank_gets_the_oldest_held_batch_it_has_not_trained_on(
    leases: list[Lease], shard_request: ShardRequest, step: int | None
) -> None:
    found = shared(leases, shard_request, NOW)
    assert (None if found is None else found.step) == step


@pytest.mark.parametrize(
    ("delivery_count", "deadline_ms", "wanted"),
    [(1, NOW + 1, False), (1, NOW, False), (2, NOW + 1, False), (2, NOW, True)],
)
def test_a_rank_wants_a_batch_that_it_had_if_another_delivery_ran_out(
    delivery_count: int, deadline_ms: int, wanted: bool
) -> None:
    """The rank may never have got the reply with it."""
    had = lease(1, sharding=HAD_BY_0, delivery_count=delivery_count, deadline_ms=deadline_ms)
    assert ShardRequest(0, ShardingSpec(2), after=1).wants(had, NOW) == wanted


@pytest.mark.parametrize(
    ("had", "wanted"),
    [
        (lease(1, sharding=None), True),
        (lease(1, given_back="0"), True),
        (lease(1, given_back="0", sharding=HAD_BY_0), False),
        (lease(1), False),
    ],
    ids=["taken without ranks", "given back", "given back, and had again", "new"],
)
def test_a_rank_wants_a_batch_again_that_was_given_back_or_taken_without_ranks(had: Lease, wanted: bool) -> None:
    assert ShardRequest(0, ShardingSpec(2), after=1).wants(had, NOW) == wanted


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (ShardingSpec(3), "world_size is 2 for the ranks that have this batch, not 3"),
        (ShardingSpec(2, split_groups=True), "split_groups"),
        (ShardingSpec(2, equal_sequences=True), "equal_sequences is None"),
        (ShardingSpec(2, cost="declared"), "cost"),
        (ShardingSpec(2, ended_by=EndedBy.RANK_0), "ended_by is all for the ranks that have this batch, not rank_0"),
    ],
    ids=str,
)
def test_ranks_agree_on_everything(asked: ShardingSpec, named: str) -> None:
    assert named in (disagreement(ShardingSpec(2), asked) or "")
    with pytest.raises(RanksDisagree, match="runs out in 0 s"):
        shared([lease(1)], ShardRequest(1, asked), NOW)


def test_ranks_that_agree_have_nothing_to_say() -> None:
    assert disagreement(ShardingSpec(2, cost="declared"), ShardingSpec(2, cost="declared")) is None


def test_a_rank_says_which_step_it_is_at_if_it_likes() -> None:
    ShardRequest(0, ShardingSpec(2)).check(7)
    ShardRequest(0, ShardingSpec(2), step=7).check(7)
    with pytest.raises(StepMismatch, match="rank 0 is at step 8; the next batch for it is that of step 7"):
        ShardRequest(0, ShardingSpec(2), step=8).check(7)


def test_a_rank_is_not_ahead_of_its_run() -> None:
    """A single rank goes on: there is no other one that could get another batch."""
    for after in (None, 6, 7):
        ShardRequest(1, ShardingSpec(2), after).check_after(7)
    ShardRequest(0, ShardingSpec(1), 8).check_after(7)
    with pytest.raises(StepMismatch, match="rank 1 has the batch of step 8, and the run is at step 7: it was created"):
        ShardRequest(1, ShardingSpec(2), 8).check_after(7)


def test_equal_numbers_need_a_batch_that_divides() -> None:
    ShardRequest(0, ShardingSpec(5)).check_size(12)
    ShardRequest(0, ShardingSpec(4, equal_sequences=True)).check_size(12)
    with pytest.raises(InvalidField, match="12 sequences") as refused:
        ShardRequest(0, ShardingSpec(5, equal_sequences=True)).check_size(12)
    assert refused.value.location == ("equal_sequences",)


# Who gets which sequences

groups = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=9)


@given(
    groups=groups,
    world_size=st.integers(1, 5),
    split_groups=st.booleans(),
    equal_sequences=st.sampled_from([None, True, False]),
)
def test_every_sequence_is_on_exactly_one_rank(
    groups: list[list[int]], world_size: int, split_groups: bool, equal_sequences: bool | None
) -> None:
    sizes = [len(group) for group in groups]
    if equal_sequences and sum(sizes) % world_size:
        equal_sequences = False
    divided = divide(
        [np.array(group) for group in groups],
        [None] * len(groups),
        ShardingSpec(world_size, split_groups, equal_sequences),
    )
    parts = [sequences_of(sizes, divided, rank) for rank in range(world_size)]
    had = sorted((group, sequence) for part in parts for group, own in part.items() for sequence in own)
    assert had == [(group, sequence) for group, size in enumerate(sizes) for sequence in range(size)]
    counts = [sum(map(len, part.values())) for part in parts]
    if divided.equal_sequences:
        assert len(set(counts)) == 1
    if equal_sequences:
        assert len(set(counts)) == 1, "what is asked for is kept, also if groups must be split for it"
    if not split_groups and not equal_sequences:
        assert not divided.split_groups
    if not divided.split_groups:
        assert all(len(own) == sizes[group] for part in parts for group, own in part.items())


@given(
    groups=groups,
    spec=st.builds(
        ShardingSpec,
        st.integers(1, 5),
        st.booleans(),
        st.sampled_from([None, False]),
        st.sampled_from(["tokens", "L^2", "declared"]),
        micro_batch_tokens=st.none() | st.integers(9, 30),
        padded=st.booleans(),
        equal_micro_batches=st.booleans(),
    ),
)
def test_loads_and_micro_batches_are_those_of_the_sequences_of_each_rank(
    groups: list[list[int]], spec: ShardingSpec
) -> None:
    declared = [float(1 + number) for number in range(len(groups))]
    divided = divide([np.array(group) for group in groups], declared, spec)
    costs = {
        "tokens": groups,
        "L^2": [[tokens**2 for tokens in group] for group in groups],
        "declared": [[own * one / sum(group) for one in group] for own, group in zip(declared, groups, strict=True)],
    }[spec.cost]
    sizes = [len(group) for group in groups]
    needed = 0
    for rank, load in enumerate(divided.loads):
        own = [(group, one) for group, ones in sequences_of(sizes, divided, rank).items() for one in ones]
        assert load == pytest.approx(sum(costs[group][one] for group, one in own))
        if spec.micro_batch_tokens is not None and spec.equal_micro_batches:
            lengths = np.array([groups[group][one] for group, one in own], np.int64)
            needed = max(needed, len(pack(lengths, spec.micro_batch_tokens, padded=spec.padded).micro_batches))
    assert len(divided.loads) == spec.world_size
    assert divided.micro_batches == needed


@pytest.mark.parametrize(("equal", "loads"), [(None, [2.0, 4.0]), (True, [2.0, 4.0]), (False, [3.0, 3.0])])
def test_ranks_have_the_same_number_of_sequences_where_that_is_possible_unless_refused(
    equal: bool | None, loads: list[float]
) -> None:
    groups = [np.array([tokens]) for tokens in (3, 1, 1, 1)]
    divided = divide(groups, [None] * 4, ShardingSpec(2, equal_sequences=equal))
    assert sorted(divided.loads) == loads
    assert divided.equal_sequences == (equal is not False)
    assert not divide(groups[:3], [None] * 3, ShardingSpec(2)).equal_sequences


def test_a_cost_that_cannot_be_computed_is_said_of_the_setting() -> None:
    with pytest.raises(InvalidField, match="no group declares a cost") as refused:
        divide([np.array([1])], [None], ShardingSpec(1, cost="declared"))
    assert refused.value.location == ("cost",)


def test_a_division_is_a_small_part_of_its_lease() -> None:
    """Every request that looks at the run reads all leases; each change of one sends it twice."""
    rank_of = np.random.default_rng(1).integers(0, 8, 65_536)
    text = ranks_text(rank_of)
    assert read_ranks(text).tolist() == rank_of.tolist()
    assert len(text) < 65_536
    assert read_ranks(ranks_text(np.array([0, 4095]))).tolist() == [0, 4095]


def test_what_a_group_costs_is_what_its_producer_said() -> None:
    """Those that said nothing count as the mean of those that did."""
    lengths = [np.array([9]), np.array([1]), np.array([1]), np.array([5])]
    divided = divide(lengths, [1.0, 3.0, None, 2.0], ShardingSpec(2, equal_sequences=False, cost="declared"))
    loads = [sum([1.0, 3.0, 2.0, 2.0][group] for group in sequences_of([1] * 4, divided, rank)) for rank in (0, 1)]
    assert loads == [4.0, 4.0]


def test_a_spread_group_s_cost_lies_on_its_sequences_by_their_tokens() -> None:
    divided = divide(
        [np.array([6, 2, 2, 2])], [12.0], ShardingSpec(2, split_groups=True, equal_sequences=False, cost="declared")
    )
    assert sorted(len(sequences_of([4], divided, rank)[0]) for rank in (0, 1)) == [1, 3]


def test_what_is_reported_of_a_run_is_the_sum_of_its_batches() -> None:
    first = recorded(None, sharding(balance=Balance("lpt", 0.5, 2.0, 1.0, 0.7, 0.25)))
    last = Balance("lpt", 0.25, 1.5, 0.5, 0.3, 0.125)
    both = recorded(first, sharding(4, balance=last))
    assert (both.batches, both.imbalance, both.contiguous, both.bound) == (2, 0.75, 1.5, 0.375)
    assert (both.world_size, both.last) == (4, last)
