"""Batches of fresh and replayed groups, against the rule said in the slowest way."""

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.core.environments.shares import ShareLimits, bounds_for
from app.core.model import Bounds
from app.core.replay.mixing import Mixed, fresh_needed, mix
from tests.core.batches.oracle import Arrivals, Group, arrivals, got, lanes_of, oldest_batch, within

ENVIRONMENTS = (None, 0, 1)

groups = st.builds(Group, st.sampled_from(ENVIRONMENTS), st.integers(1, 4))
share = st.none() | st.sampled_from((0.1, 0.25, 0.5, 1.0))
shares = st.dictionaries(st.sampled_from((0, 1)), st.builds(ShareLimits, share, share))
fractions = st.sampled_from((0.01, 0.25, 1 / 3, 0.5, 0.7, 1.0))
sizes = st.integers(1, 12)


def mixed(
    queue: Sequence[Group],
    candidates: Sequence[Group],
    batch_size: int,
    fraction: float,
    promised: Mapping[int, ShareLimits],
) -> tuple[Arrivals, Arrivals] | None:
    """The rule: the smallest fresh part for which there is a replayed part."""
    bounds = bounds_for(batch_size, promised)
    supply = got(candidates, tuple(range(len(candidates))))
    for fresh in range(max(1, -int(-batch_size * fraction // 1)), batch_size):
        own = bounds_for(fresh, promised)
        tight = {e: Bounds(max(own[e].minimum, b.minimum - supply[e]), b.maximum) for e, b in bounds.items()}
        first = oldest_batch(queue, fresh, tight)
        if first is None:
            continue
        have = got(queue, first)
        left = {
            e: Bounds(max(0, b.minimum - have[e]), None if b.maximum is None else b.maximum - have[e])
            for e, b in bounds.items()
        }
        second = oldest_batch(candidates, batch_size - fresh, left)
        if second is not None:
            return first, second
    return None


def found(
    queue: Sequence[Group],
    candidates: Sequence[Group],
    batch_size: int,
    fraction: float,
    promised: Mapping[int, ShareLimits],
) -> Mixed | None:
    return mix(batch_size, fraction, lanes_of(queue, batch_size), [tuple(one) for one in candidates], promised, {})


@given(st.lists(groups, max_size=7), st.lists(groups, max_size=7), sizes, fractions, shares)
def test_a_mixed_batch_is_what_the_law_says(
    queue: list[Group], candidates: list[Group], batch_size: int, fraction: float, promised: dict[int, ShareLimits]
) -> None:
    plan = found(queue, candidates, batch_size, fraction, promised)
    expected = mixed(queue, candidates, batch_size, fraction, promised)
    assert (plan and (arrivals(plan.fresh.groups), plan.replayed)) == expected


@given(st.lists(groups, max_size=20), st.lists(groups, max_size=20), st.integers(1, 40), fractions, shares)
def test_it_is_exact_fresh_enough_and_within_every_bound(
    queue: list[Group], candidates: list[Group], batch_size: int, fraction: float, promised: dict[int, ShareLimits]
) -> None:
    plan = found(queue, candidates, batch_size, fraction, promised)
    if plan is None:
        return
    fresh, replayed = got(queue, arrivals(plan.fresh.groups)), got(candidates, plan.replayed)
    assert batch_size > sum(fresh.values()) >= fraction * batch_size - 1e-6
    assert sum(fresh.values()) + sum(replayed.values()) == batch_size
    assert plan.got == fresh + replayed
    assert within(fresh + replayed, bounds_for(batch_size, promised))
    own = bounds_for(sum(fresh.values()), promised)
    assert all(fresh[e] >= bound.minimum for e, bound in own.items()), "who has a minimum has it of what is fresh, too"


def test_what_is_needed_is_not_put_up_by_the_error_of_a_float() -> None:
    assert [fresh_needed(100, fraction) for fraction in (0.07, 0.29, 0.57, 0.001, 1.0)] == [7, 29, 57, 1, 100]


def test_a_batch_owes_what_its_fresh_and_replayed_groups_together_leave_owed() -> None:
    promised = {0: ShareLimits(0.5)}
    plan = mix(4, 0.5, lanes_of([Group(0, 1), Group(1, 1)], 4), [(0, 1), (1, 1)], promised, {0: 3})
    assert plan is not None
    assert (Counter(group.environment for group in plan.fresh.groups), plan.replayed) == (Counter({0: 1, 1: 1}), (0, 1))
    assert plan.debts == {0: 3}


def test_what_the_buffer_has_too_little_of_comes_from_the_queue() -> None:
    """Who has a minimum and nothing in the buffer has all of it in the fresh part, however small that is."""
    queue = lanes_of([Group(1, 1), Group(1, 1), Group(0, 1), Group(0, 1)], 4)
    plan = mix(4, 0.5, queue, [(1, 1), (1, 1)], {0: ShareLimits(0.5)}, {})
    assert plan is not None
    assert (arrivals(plan.fresh.groups), plan.replayed) == ((2, 3), (0, 1))
