"""Batches that cannot keep every minimum, against brute force; and what it costs to find them."""

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.batches.diagnosis import explain
from app.core.batches.relaxation import queued_shortfall, select_relaxed, smallest_shortfall
from app.core.batches.selection import select
from app.core.environments.shares import ShareLimits, bounds_for, settle_debts
from app.core.model import Bounds
from lachesis.wire.blockers import Blocker
from tests.core.batches.oracle import (
    Group,
    arrivals,
    exact_batches,
    got,
    lanes_of,
    relaxed_batch,
    relaxed_batch_by_walking,
    relaxed_cost,
    take,
    within,
)
from tests.core.batches.queues import BATCH_SIZES, BOUNDS, QUEUES
from tests.core.cost import calls_of
from tests.properties import examples


@examples(500)
@given(QUEUES, BATCH_SIZES, BOUNDS, st.dictionaries(st.integers(0, 3), st.integers(0, 9)))
@example([Group(None, 4), Group(None, 4), Group(0, 4)], 8, {0: Bounds(0, 4)}, {0: 5})  # owed without a minimum
def test_a_relaxed_batch_minimises_debt_then_shortfall_then_takes_the_oldest_groups(
    queue: list[Group], batch_size: int, bounds: dict[int, Bounds], debts: dict[int, int]
) -> None:
    plan = select_relaxed(batch_size, lanes_of(queue, batch_size), bounds, debts)
    expected = relaxed_batch(queue, batch_size, bounds, debts)
    if plan is None:
        assert expected is None
        return
    assert arrivals(plan.groups) == expected
    sequences = got(queue, arrivals(plan.groups))
    assert plan.relaxed == any(sequences[e] < b.minimum for e, b in bounds.items())


@pytest.mark.slow
@examples(100)
@given(
    st.integers(0, 2**32),
    st.integers(20, 60),
    st.lists(st.sampled_from([3, 4, 5, 8, 9, 12]), min_size=1, max_size=4, unique=True),
    st.dictionaries(st.integers(0, 4), st.integers(0, 12)),
)
def test_in_long_queues_where_no_minimum_fits_environments_give_way_as_the_law_says(
    seed: int, batch_size: int, sizes: list[int], debts: dict[int, int]
) -> None:
    """Five environments that share a batch between them: what one takes decides what the others may end with."""
    rng = random.Random(seed)
    queue = [Group(rng.choice([0, 1, 2, 3, 4, None]), rng.choice(sizes)) for _ in range(40)]
    bounds = bounds_for(batch_size, dict.fromkeys(range(5), ShareLimits(0.2)))
    plan = select_relaxed(batch_size, lanes_of(queue, batch_size), bounds, debts)
    expected = relaxed_batch_by_walking(queue, batch_size, bounds, debts)
    assert (None if plan is None else arrivals(plan.groups)) == expected


@examples(300)
@given(QUEUES, BATCH_SIZES, BOUNDS)
def test_the_shortfall_of_the_queue_is_that_of_its_best_batch(
    queue: list[Group], batch_size: int, bounds: dict[int, Bounds]
) -> None:
    best = relaxed_batch(queue, batch_size, bounds, {})
    expected = None if best is None else relaxed_cost(got(queue, best), bounds, {})[1]
    assert queued_shortfall(batch_size, lanes_of(queue, batch_size), bounds) == expected


def test_relaxing_costs_no_minimum_that_can_be_kept() -> None:
    queue = [Group(0, 4), Group(0, 4), Group(1, 4), Group(2, 4)]
    bounds = {0: Bounds(4), 1: Bounds(4)}
    relaxed = select_relaxed(8, lanes_of(queue, 8), bounds, {})
    assert relaxed is not None
    assert not relaxed.relaxed
    assert arrivals(relaxed.groups) == (0, 2)


def test_a_relaxed_batch_still_keeps_maximums() -> None:
    queue = [Group(0, 4), Group(0, 4), Group(1, 8)]
    plan = select_relaxed(8, lanes_of(queue, 8), {0: Bounds(4, 4), 1: Bounds(2)}, {})
    assert plan is not None
    assert arrivals(plan.groups) == (2,)
    assert plan.relaxed


def test_without_any_exact_batch_relaxing_does_not_help() -> None:
    assert select_relaxed(8, lanes_of([Group(0, 3)] * 9, 8), {0: Bounds(2), 1: Bounds(2)}, {}) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "batch_size", "shares"),
    [
        (4, 8, [0.3, 0.3, 0.3]),
        pytest.param(4, 8, [0.25] * 4, marks=pytest.mark.slow),
        pytest.param(8, 16, [0.2] * 5, marks=pytest.mark.slow),
        pytest.param(4, 12, [0.2, 0.2, 0.2, 0.3], marks=pytest.mark.slow),
        pytest.param(6, 12, [0.5, 0.25, 0.25], marks=pytest.mark.slow),
        (4, 8, [0.125, 0.375, 0.375]),
    ],
)
def test_relaxed_batches_keep_shares_over_time(size: int, batch_size: int, shares: list[float]) -> None:
    """However unevenly environments produce, each stays within a batch of what it is due."""
    rng = random.Random(batch_size)
    bounds = bounds_for(batch_size, {environment: ShareLimits(share) for environment, share in enumerate(shares)})
    queue: list[Group | None] = []
    debts: dict[int, int] = {}
    received: Counter[int | None] = Counter()
    for served in range(1, 301):
        while any(sum(g == Group(e, size) for g in queue) * size < batch_size for e in bounds):
            queue += [Group(environment, size) for environment in bounds for _ in range(rng.randint(0, 2))]
        lanes = lanes_of(queue, batch_size)
        plan = select(batch_size, lanes, bounds)
        if plan is None:
            assert explain(batch_size, lanes, bounds, {}).blocker is Blocker.MINIMUMS_CONFLICT
            plan = select_relaxed(batch_size, lanes, bounds, debts)
        assert plan is not None
        sequences: Counter[int | None] = Counter()
        for group in plan.groups:
            sequences[group.environment] += group.size
        debts = settle_debts(debts, bounds, sequences)
        received += sequences
        take(queue, plan)
        for environment, bound in bounds.items():
            assert received[environment] >= served * bound.minimum - batch_size


@pytest.mark.parametrize(("batch_size", "sizes", "shares"), [(10, (6, 5, 1), (0.1, 0.8)), (8, (3, 5, 1), (0.5, 0.4))])
def test_debts_stay_small_though_a_batch_that_repays_one_always_owes_more_to_another(
    batch_size: int, sizes: tuple[int, ...], shares: tuple[float, ...]
) -> None:
    """With a sum in which each sequence counts alike, the first environment would never get any of its own."""
    bounds = bounds_for(batch_size, {environment: ShareLimits(share) for environment, share in enumerate(shares)})
    queue = [Group(environment, size) for environment, size in enumerate(sizes) for _ in range(batch_size // size)]
    debts: dict[int, int] = {}
    for _ in range(200):
        plan = select_relaxed(batch_size, lanes_of(queue, batch_size), bounds, debts)
        assert plan is not None
        debts = settle_debts(debts, bounds, got(queue, arrivals(plan.groups)))
        assert max(debts.values(), default=0) <= 2 * batch_size


@pytest.mark.parametrize("debt", [0, 1, 10**6, 10**12])
def test_a_debt_of_any_size_and_the_largest_batch_are_planned_exactly(debt: int) -> None:
    queue = [Group(0, 60_000), Group(1, 131_072), Group(2, 71_072)]
    bounds = {0: Bounds(40_000), 1: Bounds(60_000)}
    plan = select_relaxed(131_072, lanes_of(queue, 131_072), bounds, {0: debt})
    assert plan is not None
    assert arrivals(plan.groups) == ((0, 2) if debt else (1,))


@examples(200)
@given(st.integers(1, 12), st.dictionaries(st.integers(0, 2), st.sets(st.integers(2, 6), min_size=1)), BOUNDS)
def test_the_smallest_shortfall_is_that_of_the_best_batch_from_full_queues(
    batch_size: int, sizes: dict[int | None, set[int]], bounds: dict[int, Bounds]
) -> None:
    bounds = {environment: bound for environment, bound in bounds.items() if environment in sizes}
    own_totals = [
        dict(zip(sizes, totals, strict=True))
        for totals in product(*(_totals(own, batch_size) for own in sizes.values()))
        if sum(totals) == batch_size
    ]
    costs = [relaxed_cost(got, bounds, {})[0] for got in own_totals if within(got, bounds, minimums=False)]
    assert smallest_shortfall(batch_size, sizes, bounds) == min(costs, default=None)


def _totals(sizes: set[int], batch_size: int) -> set[int]:
    """Return what groups of these sizes can sum to, up to the batch size."""
    queue = [Group(None, size) for size in sizes for _ in range(batch_size // size)]
    return {total for total in range(batch_size + 1) if next(exact_batches(queue, total), None) is not None}


@pytest.mark.parametrize("owed", [0, 20])
def test_a_relaxed_batch_of_many_lanes_costs_only_a_few_searches(owed: int) -> None:
    """32 environments of 8 sizes each, none of which makes the minimum of 32. A search a lane takes 3,500,000 calls."""
    rng = random.Random(1)
    queue = [Group(n, size) for n in range(32) for size in (18, 20, 22, 24, 26, 28, 30, 34) for _ in range(30)]
    rng.shuffle(queue)
    bounds = bounds_for(1024, dict.fromkeys(range(32), ShareLimits(1 / 32)))
    debts = {n: rng.randrange(owed) for n in range(32)} if owed else {}
    lanes = lanes_of(queue, 1024)
    assert calls_of(lambda: select_relaxed(1024, lanes, bounds, debts)) < 400_000
