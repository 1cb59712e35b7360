"""A full run takes what brings a batch nearer: checked against every batch, and played until a batch is there."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.core.environments.overflow import NOTHING, FullRun, Overflow
from app.core.model import Bounds, LaneId
from app.core.runs.settings import Policy
from app.core.runs.view import DemandView
from tests.core.batches import oracle
from tests.core.views import EMPTY, TTL_MS, environment
from tests.properties import examples

BATCH_SIZE = 8


@st.composite
def views(draw: st.DrawFn) -> DemandView:
    """Draw a run of three environments at most, of which some run groups."""
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
        lanes=draw(st.dictionaries(st.tuples(owners, st.integers(1, 7)), st.integers(1, 2), max_size=2)),
        running={key: draw(st.integers(0, BATCH_SIZE // one.group_size)) for key, one in environments.items()},
    )


def with_groups(view: DemandView, lane: LaneId, groups: int = 1) -> DemandView:
    return replace(view, lanes={**view.lanes, lane: view.lanes.get(lane, 0) + groups})


def holds_a_batch(lanes: Mapping[LaneId, int], bounds: Mapping[int, Bounds]) -> bool:
    queue = [oracle.Group(*lane) for lane, count in lanes.items() for _ in range(count)]
    return oracle.oldest_batch(queue, BATCH_SIZE, bounds) is not None


def free(view: DemandView) -> dict[int, Bounds]:
    return {key: Bounds(0, bound.maximum) for key, bound in view.live.bounds(BATCH_SIZE).items()}


@examples(300)
@given(views())
def test_of_running_groups_that_complete_a_batch_one_is_always_taken(view: DemandView) -> None:
    alive = {key: groups for key, groups in view.running.items() if key in view.live.records}
    running = Counter({(key, view.environments[key].group_size): groups for key, groups in alive.items()})
    bounds = view.live.bounds(BATCH_SIZE)
    while holds_a_batch(Counter(view.lanes) + running, bounds) and not holds_a_batch(view.lanes, bounds):
        full = FullRun("run", view)
        lane = next(lane for lane, groups in running.items() if groups > 0 and full.takes(lane).groups)
        running[lane] -= 1
        view = replace(with_groups(view, lane), running={key: running[key, size] for key, size in running})


@given(views(), st.data())
def test_taken_groups_end_in_a_batch_in_any_order_of_senders(view: DemandView, data: st.DataObject) -> None:
    senders = [(key, record.group_size) for key, record in view.live.records.items()]
    for _ in range(BATCH_SIZE * len(view.environments) + 1):
        full = FullRun("run", view)
        taken = {lane: full.takes(lane) for lane in senders}
        assert all(one.is_certain for one in taken.values()), "these sizes are declared"
        if not any(one.groups for one in taken.values()):
            break
        lane = data.draw(st.sampled_from([lane for lane, one in taken.items() if one.groups]))
        view = with_groups(view, lane, taken[lane].groups)
    else:
        raise AssertionError("it takes groups without end")
    most = Counter({(key, size): BATCH_SIZE // size for key, size in senders}) + Counter(view.lanes)
    bounds = next((one for one in (view.live.bounds(BATCH_SIZE), free(view)) if holds_a_batch(most, one)), None)
    assert bounds is None or holds_a_batch(view.lanes, bounds)


@examples(300)
@given(views(), st.sampled_from((None, 0)), st.integers(1, 9))
def test_a_group_that_completes_a_batch_is_taken_from_every_sender(
    view: DemandView, sender: int | None, size: int
) -> None:
    awaited = replace(view, running={}, environments={**view.environments, 0: replace(view.environments[0], members=1)})
    bounds = (awaited if sender == 0 else view).live.bounds(BATCH_SIZE)
    held = holds_a_batch(view.lanes, free(view))
    if not held and holds_a_batch(with_groups(view, (sender, size)).lanes, bounds):
        assert FullRun("run", view).takes((sender, size)) == Overflow(1)


def test_other_sizes_of_the_environment_that_is_asked_are_uncertain() -> None:
    view = replace(EMPTY, environments={0: environment(0, 1)}, lanes={(0, 5): 3}, policy=Policy(max_staleness=0))
    full = FullRun("run", view)
    assert full.needs_groups
    assert full.takes((0, 1)) == Overflow(3)
    assert full.takes((0, 5)) == Overflow(1, is_certain=False)
    assert full.takes((None, 5)) == NOTHING
