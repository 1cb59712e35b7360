"""Compare `app.core.batches.selection` with brute force and with the examples of the contract."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from app.core.batches.diagnosis import explain
from app.core.batches.selection import select
from app.core.environments.shares import ShareLimits, bounds_for, minimums_conflict
from app.core.model import Bounds, Lane, NotReady, QueuedGroup
from lachesis.wire.blockers import Blocker
from tests.core.batches.oracle import (
    Group,
    arrivals,
    got,
    lanes_of,
    oldest_batch,
    oldest_batch_by_walking,
    take,
    within,
)
from tests.core.batches.queues import BATCH_SIZES, BOUNDS, ENVIRONMENTS, QUEUES
from tests.core.cost import calls_of
from tests.properties import examples


def chosen(queue: Sequence[Group], batch_size: int, bounds: Mapping[int, Bounds]) -> tuple[int, ...] | None:
    plan = select(batch_size, lanes_of(queue, batch_size), bounds)
    return None if plan is None else arrivals(plan.groups)


def refused(queue: Sequence[Group], batch_size: int, bounds: Mapping[int, Bounds] | None = None) -> NotReady:
    lanes = lanes_of(queue, batch_size)
    assert select(batch_size, lanes, bounds or {}) is None
    return explain(batch_size, lanes, bounds or {}, {})


@examples(500)
@given(QUEUES, BATCH_SIZES)
def test_without_shares_the_oldest_exact_batch_is_chosen_whenever_one_exists(
    queue: list[Group], batch_size: int
) -> None:
    assert chosen(queue, batch_size, {}) == oldest_batch(queue, batch_size, {})


@examples(1000)
@given(QUEUES, BATCH_SIZES, BOUNDS)
def test_with_shares_the_oldest_batch_within_all_bounds_is_chosen_whenever_one_exists(
    queue: list[Group], batch_size: int, bounds: dict[int, Bounds]
) -> None:
    assert chosen(queue, batch_size, bounds) == oldest_batch(queue, batch_size, bounds)


@examples(150)
@given(
    st.lists(st.builds(Group, ENVIRONMENTS, st.sampled_from([3, 4, 6, 8, 12, 16])), min_size=20, max_size=120),
    st.integers(24, 96),
    st.dictionaries(st.integers(0, 2), st.builds(Bounds, st.integers(0, 24), st.none() | st.integers(24, 60))),
)
def test_long_queues_follow_the_rule_word_for_word(
    queue: list[Group], batch_size: int, bounds: dict[int, Bounds]
) -> None:
    assert chosen(queue, batch_size, bounds) == oldest_batch_by_walking(queue, batch_size, bounds)


@pytest.mark.parametrize("seed", range(6))
def test_thousands_of_groups_in_large_batches_without_shares_follow_the_rule(seed: int) -> None:
    """The oracle keeps what each suffix of the queue can sum to, one group at a time."""
    rng = random.Random(seed)
    batch_size = rng.choice([512, 2048, 4096])
    sizes = rng.choice([[4, 6, 12, 16], [7, 11, 13, 101], [96, 160, 352], [64, 48, 31]])
    queue = [Group(rng.choice([None, 0, 1, 2, 3]), rng.choice(sizes)) for _ in range(3000)]
    suffix = [1]
    for group in reversed(queue):
        suffix.append((suffix[-1] | suffix[-1] << group.size) & ((2 << batch_size) - 1))
    missing, expected = batch_size, []
    for arrival, group in enumerate(queue):
        if group.size <= missing and suffix[len(queue) - arrival - 1] >> (missing - group.size) & 1:
            expected.append(arrival)
            missing -= group.size
    assert missing == 0
    assert chosen(queue, batch_size, {}) == tuple(expected)


@pytest.mark.parametrize("seed", range(12))
def test_large_queues_with_shares_give_exact_batches_within_all_bounds_until_none_is_left(seed: int) -> None:
    rng = random.Random(seed)
    batch_size = rng.choice([128, 256, 512])
    sizes = rng.choice([[4, 6, 12, 16], [8], [5, 7, 24]])
    queue: list[Group | None] = [Group(rng.choice([None, 0, 1, 2, 3, 4]), rng.choice(sizes)) for _ in range(400)]
    groups = [group for group in queue if group is not None]
    bounds = {environment: Bounds(batch_size // 10, batch_size // 2) for environment in range(4)}
    while plan := select(batch_size, lanes_of(queue, batch_size), bounds):
        batch = arrivals(plan.groups)
        assert sum(group.size for group in plan.groups) == batch_size
        assert within(got(groups, batch), bounds)
        for lane in lanes_of(queue, batch_size):
            own = [g.arrival for g in plan.groups if (g.environment, g.size) == (lane.environment, lane.size)]
            assert own == [head.arrival for head in lane.heads[: len(own)]], "per lane oldest first"
        take(queue, plan)
    left = [group for group in queue if group is not None]
    assert len(left) < len(groups), "no batch was served at all"
    assert oldest_batch_by_walking(left, batch_size, bounds) is None


def test_the_plan_does_not_depend_on_the_order_of_lanes() -> None:
    rng = random.Random(1)
    queue = [Group(rng.choice([None, 0, 1]), rng.choice([3, 5, 8])) for _ in range(60)]
    lanes = lanes_of(queue, 64)
    bounds = {0: Bounds(16), 1: Bounds(10, 30)}
    plan = select(64, lanes, bounds)
    assert plan is not None
    assert select(64, lanes[::-1], bounds) == plan


def test_a_plan_names_each_group_with_its_own_environment() -> None:
    queue = [Group(3, 4), Group(None, 4), Group(5, 4)]
    plan = select(12, lanes_of(queue, 12), {})
    assert plan is not None
    assert [(g.environment, g.size, g.group_id) for g in plan.groups] == [(3, 4, "g0"), (None, 4, "g1"), (5, 4, "g2")]
    assert not plan.relaxed


def test_arrivals_that_are_not_unique_are_refused_rather_than_planned_wrongly() -> None:
    twins = [Lane(environment, 4, 1, (QueuedGroup(7, f"g{environment}"),)) for environment in (0, 1)]
    with pytest.raises(ValueError, match="same arrival"):
        select(4, twins, {})


# The examples of what the original gets wrong, in the numbering of `docs/how-to/move-from-atropos.md`.


def test_fault_7_a_group_larger_than_the_batch_is_named_oversized() -> None:
    queue = [Group(0, 9), Group(0, 4), Group(1, 4), Group(0, 9)]
    assert chosen(queue, 8, {}) == (1, 2)
    not_ready = refused(queue[:2], 8)
    assert not_ready.oversized_groups == {0: 1}
    assert not_ready.blocker is Blocker.TOO_FEW_SEQUENCES
    assert not_ready.missing_sequences == 4


def test_a_group_larger_than_its_environments_maximum_is_named_oversized() -> None:
    bounds = {0: Bounds(0, 4)}
    queue = [Group(0, 6), Group(None, 4), Group(0, 4)]
    assert chosen(queue, 8, bounds) == (1, 2)
    assert refused(queue[:2], 8, bounds).oversized_groups == {0: 1}


@pytest.mark.parametrize(
    ("sizes", "batch_size"),
    [
        ([16, 8] * 40, 24),
        ([16] * 40 + [8] * 40, 24),
        ([3] * 8 + [8], 11),
        ([3] * 8 + [8], 8),
        ([2, 2, 2, 2, 4, 4, 8], 10),
        ([1, 2, 1, 4], 8),
    ],
)
def test_fault_8_exact_batches_that_exist_are_found(sizes: list[int], batch_size: int) -> None:
    queue = [Group(0, size) for size in sizes]
    assert chosen(queue, batch_size, {}) is not None
    assert chosen(queue, batch_size, {}) == oldest_batch(queue, batch_size, {})


def test_fault_8_mixed_sizes_with_minimums_form_wherever_a_batch_exists() -> None:
    rng = random.Random(8)
    bounds = bounds_for(128, {environment: ShareLimits(0.1) for environment in range(4)})
    for _ in range(60):
        queue = [Group(rng.randrange(4), rng.choice([4, 6, 12, 16])) for _ in range(60)]
        assert chosen(queue, 128, bounds) == oldest_batch_by_walking(queue, 128, bounds) is not None


def test_fault_9_groups_without_an_environment_fill_what_minimums_leave() -> None:
    queue = [Group(None, 4), Group(None, 4), Group(0, 4), Group(None, 4)]
    assert chosen(queue, 12, {0: Bounds(4)}) == (0, 1, 2)


def test_fault_15_three_minimums_that_cannot_all_be_kept_are_reported_not_broken() -> None:
    bounds = bounds_for(8, dict.fromkeys(range(3), ShareLimits(0.3)))
    not_ready = refused([Group(e, 4) for e in (0, 1, 2, 0, 1, 2)], 8, bounds)
    assert not_ready.blocker is Blocker.MINIMUMS_CONFLICT
    assert "environment 2 at least 2" in not_ready.detail


def test_a_million_queued_groups_cost_no_more_than_their_heads() -> None:
    heads = {size: tuple(QueuedGroup(5 * n + size % 5, f"{size}/{n}") for n in range(256 // size)) for size in (4, 6)}
    deep = [Lane(0, size, 1_000_000, own) for size, own in heads.items()]
    shallow = [Lane(0, size, len(own), own) for size, own in heads.items()]
    assert select(256, deep, {0: Bounds(128)}) == select(256, shallow, {0: Bounds(128)})


def test_groups_without_room_are_left_out_together_not_one_size_class_at_a_time() -> None:
    """32 environments of 8 sizes. Without narrowing the plan is the same, and takes 30 times as many calls."""
    rng = random.Random(1)
    queue = [Group(n, size) for n in range(32) for size in (18, 20, 22, 24, 26, 28, 30, 34) for _ in range(30)]
    rng.shuffle(queue)
    bounds = bounds_for(1024, dict.fromkeys(range(32), ShareLimits(1 / 64)))
    lanes = lanes_of(queue, 1024)
    assert select(1024, lanes, bounds) is not None
    assert calls_of(lambda: select(1024, lanes, bounds)) < 250_000


# Why not.


def test_too_few_sequences_are_counted_over_all_environments() -> None:
    not_ready = refused([Group(0, 4), Group(1, 4)], 16, {0: Bounds(6)})
    assert not_ready.blocker is Blocker.TOO_FEW_SEQUENCES
    assert not_ready.missing_sequences == 8
    assert not_ready.missing_by_environment == {0: 2}
    assert not_ready.detail == (
        "a batch needs 16 sequences; the queue has 8 that fit; environment 0 needs 6 of 16 sequences, has 4 queued"
    )


def test_sequences_over_an_environments_maximum_do_not_count_as_available() -> None:
    not_ready = refused([Group(0, 4)] * 10, 16, {0: Bounds(0, 8)})
    assert not_ready.blocker is Blocker.TOO_FEW_SEQUENCES
    assert not_ready.missing_sequences == 8


def test_a_short_minimum_names_the_environment_and_the_shortage() -> None:
    queue = [Group(1, 4)] * 64 + [Group(2, 4)] * 3
    not_ready = refused(queue, 256, {2: Bounds(64)})
    assert not_ready.blocker is Blocker.MINIMUM_SHORT
    assert not_ready.missing_sequences == 52
    assert not_ready.missing_by_environment == {2: 52}
    assert not_ready.detail == "environment 2 needs 64 of 256 sequences, has 12 queued"


def test_of_many_short_minimums_some_are_in_the_sentence() -> None:
    many = {key: Bounds(1) for key in range(1000)}
    too_few, no_fit = refused([], 2000, many), refused([Group(key, 3) for key in many], 2000, many)
    assert len(too_few.missing_by_environment) == 1000
    for said in (too_few.detail, no_fit.detail):
        assert "environment 7 " in said
        assert "environment 9 " not in said
        assert said.endswith("…")


def test_an_environment_with_a_minimum_and_an_empty_queue_blocks_and_is_named() -> None:
    not_ready = refused([Group(1, 4)] * 4, 8, {7: Bounds(2)})
    assert not_ready.missing_by_environment == {7: 2}


def test_declared_sizes_serve_as_hints_before_their_first_group() -> None:
    outcome = explain(8, lanes_of([Group(1, 4)] * 4, 8), {7: Bounds(2)}, {7: {4}})
    assert outcome.unblocked_by == ((7, 4),)


def test_enough_sequences_that_do_not_fit_are_explained_with_what_would_help() -> None:
    not_ready = refused([Group(0, 3)] * 4 + [Group(1, 6)], 8)
    assert not_ready.blocker is Blocker.NO_EXACT_FIT
    assert not_ready.missing_sequences == 2
    assert not_ready.detail == "18 usable sequences are queued, but no groups of sizes 3, 6 sum to exactly 8"
    hinted = explain(8, lanes_of([Group(0, 3)] * 4, 8), {}, {1: {2, 4, 5}, 2: {0}})
    assert hinted.unblocked_by == ((1, 2), (1, 5))


@examples(300)
@given(QUEUES, BATCH_SIZES, BOUNDS)
@example([Group(1, 4)] * 4, 8, {2: Bounds(2)})
def test_hints_are_exactly_the_known_groups_that_would_let_a_batch_form(
    queue: list[Group], batch_size: int, bounds: dict[int, Bounds]
) -> None:
    declared: dict[int | None, set[int]] = {0: {4}, 2: {2, 3}}
    lanes = lanes_of(queue, batch_size)
    if select(batch_size, lanes, bounds) is not None:
        return
    outcome = explain(batch_size, lanes, bounds, declared)
    known = set(queue) | {Group(environment, size) for environment, own in declared.items() for size in own}
    helpful = [group for group in known if oldest_batch([*queue, group], batch_size, bounds) is not None]
    expected = sorted(helpful, key=lambda group: (group.size, -1 if group.environment is None else group.environment))
    assert outcome.unblocked_by == tuple((group.environment, group.size) for group in expected[:8])


@examples(300)
@given(QUEUES, BATCH_SIZES, BOUNDS)
def test_the_numbers_of_a_refusal_are_those_of_the_queue(
    queue: list[Group], batch_size: int, bounds: dict[int, Bounds]
) -> None:
    assume(sum(bound.minimum for bound in bounds.values()) <= batch_size)
    if select(batch_size, lanes_of(queue, batch_size), bounds) is not None:
        return
    outcome = explain(batch_size, lanes_of(queue, batch_size), bounds, {})

    def limit(environment: int | None) -> int:
        maximum = bounds[environment].maximum if environment is not None and environment in bounds else None
        return batch_size if maximum is None else min(maximum, batch_size)

    usable: Counter[int | None] = Counter()
    for group in queue:
        usable[group.environment] += group.size if group.size <= limit(group.environment) else 0
    short = {e: b.minimum - usable[e] for e, b in bounds.items() if usable[e] < b.minimum}
    missing = max(0, batch_size - sum(min(sequences, limit(e)) for e, sequences in usable.items()))
    assert outcome.missing_by_environment == short
    assert outcome.missing_sequences >= max(missing, *short.values(), 1)
    assert outcome.oversized_groups == Counter(g.environment for g in queue if g.size > limit(g.environment))
    assert (outcome.blocker is Blocker.TOO_FEW_SEQUENCES) == (missing > 0)
    assert (outcome.blocker is Blocker.MINIMUM_SHORT) == (missing == 0 and bool(short))


def test_what_a_short_minimum_misses_counts_beside_what_others_have_sent() -> None:
    """Six are there, but only four of them can be in a batch."""
    not_ready = refused([Group(1, 1)] * 6, 8, {0: Bounds(4)})
    assert not_ready.missing_sequences == 4


def test_what_cannot_be_split_counts_as_missing_where_it_does_not_fit() -> None:
    """Of two groups of three for a minimum of four, both would leave too little room for the other minimum."""
    bounds = {0: Bounds(4), 1: Bounds(4)}
    assert refused([Group(0, 3), Group(0, 3)], 8, bounds).missing_sequences == 5
    assert refused([Group(0, 3), Group(0, 3), Group(1, 2)], 10, bounds).missing_sequences == 2


@examples(150)
@given(
    st.lists(st.builds(Group, st.sampled_from([None, 0, 1]), st.integers(1, 5)), max_size=6),
    st.integers(1, 8),
    st.dictionaries(st.integers(0, 2), st.builds(lambda low, more: Bounds(low, low + more), *[st.integers(0, 4)] * 2)),
)
def test_missing_are_the_fewest_sequences_with_which_a_batch_would_form(
    queue: list[Group], batch_size: int, bounds: dict[int, Bounds]
) -> None:
    """Single sequences can do what any groups of them could."""
    assume(sum(bound.minimum for bound in bounds.values()) <= batch_size)
    lanes = lanes_of(queue, batch_size)
    is_ready = select(batch_size, lanes, bounds) is not None
    missing = 0 if is_ready else explain(batch_size, lanes, bounds, {}).missing_sequences
    senders = [None, *bounds]

    def enough(sequences: int) -> bool:
        arrived = combinations_with_replacement([Group(sender, 1) for sender in senders], sequences)
        return any(oldest_batch([*queue, *more], batch_size, bounds) is not None for more in arrived)

    assert missing == next(sequences for sequences in range(batch_size + 1) if enough(sequences))


@examples(300)
@given(QUEUES, BATCH_SIZES, BOUNDS, st.dictionaries(ENVIRONMENTS, st.sets(st.integers(1, 6), min_size=1)))
def test_environments_without_bounds_change_no_reason(
    queue: list[Group], batch_size: int, bounds: dict[int, Bounds], sizes: dict[int | None, set[int]]
) -> None:
    assume(chosen(queue, batch_size, bounds) is None)
    free = {environment: Bounds() for environment in sizes if environment is not None}
    lanes = lanes_of(queue, batch_size)
    assert explain(batch_size, lanes, free | bounds, sizes) == explain(batch_size, lanes, bounds, sizes)


# Minimums that group sizes make impossible together.


@examples(300)
@given(st.integers(1, 12), st.dictionaries(ENVIRONMENTS, st.sets(st.integers(2, 6), min_size=1)), BOUNDS)
def test_minimums_conflict_when_no_supply_however_large_can_keep_them(
    batch_size: int, sizes: dict[int | None, set[int]], bounds: dict[int, Bounds]
) -> None:
    plenty = [Group(e, size) for e, own in sizes.items() for size in own for _ in range(batch_size // size)]
    # An environment without a known group size may send groups of any size.
    plenty += [Group(e, 1) for e in bounds if e not in sizes for _ in range(batch_size)]
    without = {e: Bounds(0, bound.maximum) for e, bound in bounds.items()}
    expected = (
        oldest_batch_by_walking(plenty, batch_size, bounds) is None
        and oldest_batch_by_walking(plenty, batch_size, without) is not None
    )
    assert minimums_conflict(batch_size, sizes, bounds) == expected


def test_a_slow_environment_is_no_conflict() -> None:
    bounds = {0: Bounds(4), 1: Bounds(4)}
    assert not minimums_conflict(8, {0: {4}, 1: {4}}, bounds)
    assert not minimums_conflict(8, {0: {4}}, bounds)
    assert minimums_conflict(8, {0: {8}, 1: {4}}, bounds)


def test_sizes_that_never_fit_at_all_are_no_conflict_of_minimums() -> None:
    assert not minimums_conflict(8, {0: {3}}, {0: Bounds(2)})
