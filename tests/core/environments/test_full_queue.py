"""A full queue takes what a batch may need: checked against every batch, and played until the planner has one."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.core.batches.planning import decide
from app.core.environments.full_queue import LEAST, FullQueue
from app.core.model import Bounds, Lane, LaneId, QueuedGroup
from app.core.runs.settings import Policy
from app.core.runs.view import QueueView
from tests.core.batches import oracle
from tests.core.views import EMPTY, TTL_MS, environment
from tests.properties import examples

BATCH_SIZE = 8
RELAX_MS = 1000


@st.composite
def views(draw: st.DrawFn) -> QueueView:
    """Draw a run with live, silent and departed environments, and groups of any of them or of none."""
    shares = st.sampled_from((None, None, 0.25, 0.5))
    environments = {
        key: environment(
            key,
            draw(st.integers(1, 5)),
            draw(shares),
            max_share=draw(shares),
            weight=float(draw(st.integers(0, 2))),
            members=draw(st.sampled_from((1, 1, 1, 0))),
            heard_ms=0,
        )
        for key in range(draw(st.integers(1, 3)))
    }
    owners = st.sampled_from([None, *environments])
    return replace(
        EMPTY,
        clock_ms=2 * TTL_MS,
        environments=environments,
        policy=Policy(relax_scarce_after_s=draw(st.sampled_from((None, 1.0)))),
        lanes=draw(st.dictionaries(st.tuples(owners, st.integers(1, 7)), st.integers(1, 2), max_size=3)),
    )


def with_groups(view: QueueView, lane: LaneId, groups: int = 1) -> QueueView:
    return replace(view, lanes={**view.lanes, lane: view.lanes.get(lane, 0) + groups})


def holds_a_batch(lanes: Mapping[LaneId, int], bounds: Mapping[int, Bounds]) -> bool:
    queue = [oracle.Group(*lane) for lane, count in lanes.items() for _ in range(count)]
    return oracle.oldest_batch(queue, BATCH_SIZE, bounds) is not None


def free(view: QueueView) -> dict[int, Bounds]:
    return {key: Bounds(0, bound.maximum) for key, bound in view.live.bounds(BATCH_SIZE).items()}


def has_a_batch_in_time(view: QueueView) -> bool:
    """Return whether the planner finds a batch, at once or after the times that it waits for minimums."""
    arrivals = itertools.count()
    lanes = [
        Lane(*lane, groups, tuple(QueuedGroup(next(arrivals), f"{lane}{n}") for n in range(groups)))
        for lane, groups in view.lanes.items()
    ]
    for _ in range(4):
        decision = decide(view, lanes, RELAX_MS)
        if decision.plan is not None:
            return True
        view = replace(
            view,
            clock_ms=view.clock_ms + 2 * RELAX_MS,
            conflict_since_ms=decision.conflict_since_ms,
            scarce=decision.scarce,
        )
    return False


@examples(300)
@given(views(), st.data())
def test_senders_that_a_full_queue_refuses_would_get_no_batch_without_a_limit(
    view: QueueView, data: st.DataObject
) -> None:
    """Each live environment sends groups of the size that it declared, in any order."""
    senders = [(key, record.group_size) for key, record in view.live.records.items()]
    for _ in range((BATCH_SIZE + LEAST) * len(view.environments) + 1):
        full = FullQueue(view)
        taken = [lane for lane in senders if full.takes(lane)]
        assert full.needs_groups or not taken
        if not taken or has_a_batch_in_time(view):
            break
        view = with_groups(view, data.draw(st.sampled_from(taken)))
    else:
        raise AssertionError("it takes groups without end")
    if not has_a_batch_in_time(view):
        for lane in senders:
            view = with_groups(view, lane, BATCH_SIZE)
            assert not has_a_batch_in_time(view)


@examples(300)
@given(views(), st.sampled_from((None, 0, 1)), st.integers(1, 9))
def test_a_full_queue_takes_what_makes_a_batch_possible_and_nothing_beside_a_batch(
    view: QueueView, sender: int | None, size: int
) -> None:
    lane, full = (sender, size), FullQueue(view)
    if holds_a_batch(view.lanes, view.live.bounds(BATCH_SIZE)):
        assert not full.takes(lane)
        assert not full.needs_groups
    elif not holds_a_batch(view.lanes, free(view)) and holds_a_batch(with_groups(view, lane).lanes, free(view)):
        assert full.takes(lane)


def test_an_environment_below_its_minimum_is_taken_although_others_hold_a_batch() -> None:
    """The size of one that has left does not make the minimum impossible, so batches wait for it."""
    gone = replace(environment(2, 1), left_ms=0)
    environments = {0: environment(0, 3, 0.25), 1: environment(1, 2, 0.25), 2: gone}
    full = FullQueue(replace(EMPTY, clock_ms=TTL_MS, environments=environments, lanes={(1, 2): 4}))
    assert [full.takes(lane) for lane in ((0, 3), (1, 2), (2, 1), (None, 1))] == [True, False, False, False]


def test_without_a_batch_it_takes_as_many_of_each_size_as_one_can_use() -> None:
    many = replace(EMPTY, environments={0: environment(0, 5)}, lanes={(0, 5): LEAST, (None, 6): LEAST - 1})
    full = FullQueue(many)
    assert [full.takes(lane) for lane in ((0, 5), (0, 9), (None, 5), (None, 6))] == [False, False, True, True]


def test_with_a_replay_buffer_the_fresh_part_of_a_batch_is_enough() -> None:
    mixed = replace(EMPTY, policy=Policy(fresh_fraction=0.5), lanes={(None, 4): 1})
    assert not FullQueue(mixed).takes((None, 4))
    assert FullQueue(replace(mixed, unfilled=True)).takes((None, 4))
