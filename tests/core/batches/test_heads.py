"""A batch from the lanes that `app.core.batches.heads` chooses is the batch from all lanes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from app.core.batches.heads import lanes_to_read, with_unread
from app.core.batches.leases import LeasedGroup
from app.core.batches.planning import decide, with_returned
from app.core.environments.live import LiveEnvironments
from app.core.model import Lane, LaneId, sequences_in
from app.core.replay.mixing import fresh_needed, mix
from app.core.runs.view import RunView
from tests.core.batches.oracle import Group, lanes_of
from tests.core.views import EMPTY, environment
from tests.properties import examples

PATIENCE_MS = 30_000

groups = st.builds(Group, st.none() | st.integers(0, 7), st.sampled_from([1, 2, 3, 4, 9]))
queues = st.lists(groups, max_size=40)
shares = st.dictionaries(
    st.integers(0, 7),
    st.fixed_dictionaries({}, optional={"min_share": st.sampled_from([0.0, 0.2, 0.5]), "max_share": st.just(0.5)}),
    max_size=4,
)
debts = st.dictionaries(st.integers(0, 7), st.integers(-2, 4), max_size=3)


def by_age(queue: Sequence[Group | None]) -> list[LaneId]:
    return list(dict.fromkeys((group.environment, group.size) for group in queue if group is not None))


def chosen_of(
    lanes: Sequence[Lane], batch_size: int, live: LiveEnvironments, ages: Sequence[LaneId]
) -> tuple[dict[LaneId, int], list[Lane]]:
    """Return how many groups each lane has, and the lanes that are read."""
    queued = {(lane.environment, lane.size): lane.queued for lane in lanes}
    chosen = lanes_to_read(batch_size, queued, live.limited, ages)
    assert len(chosen) == len(set(chosen))
    return queued, [lane for lane in lanes if (lane.environment, lane.size) in chosen]


def view_of(batch_size: int, promised: Mapping[int, dict[str, float]], **changes: object) -> RunView:
    assert EMPTY.config is not None
    environments = {number: environment(number, 4, **promised.get(number, {})) for number in range(8)}
    config = EMPTY.config.model_copy(update={"batch_size": batch_size})
    return replace(EMPTY, config=config, environments=environments, **changes)  # type: ignore[arg-type]


@examples(500)
@given(
    queues, st.lists(st.integers(0, 39), max_size=5), st.integers(1, 14), shares, debts, st.booleans(), st.booleans()
)
def test_a_decision_from_some_lanes_is_the_decision_from_all(
    queue: list[Group],
    taken: list[int],
    batch_size: int,
    promised: dict[int, dict[str, float]],
    owed: dict[int, int],
    long_since: bool,
    returns: bool,
) -> None:
    """Also where minimums are relaxed, or a batch with some of the groups is dissolved."""
    waiting: list[Group | None] = [None if place in taken else group for place, group in enumerate(queue)]
    since = 0 if long_since else None
    view = view_of(batch_size, promised, clock_ms=60_000, debts=owed, conflict_since_ms=since)
    every = lanes_of(waiting, batch_size)
    queued, read = chosen_of(every, batch_size, view.live, by_age(waiting))
    view = replace(view, lanes=queued)
    if returns:
        back = [LeasedGroup(f"g{n}", n, *queue[n], 0, "", 0, None, None) for n in {*taken} if n < len(queue)]
        every, read = with_returned(view, every, back), with_returned(view, read, back)
    assert decide(view, read, PATIENCE_MS) == decide(view, every, PATIENCE_MS)


def test_groups_of_a_batch_that_another_process_has_dissolved_count_once() -> None:
    """Their batch was read before the lanes, and its groups were back when the lanes were read."""
    queue: list[Group | None] = [Group(0, 2)] * 3
    view = replace(view_of(4, {}, clock_ms=0), lanes={(0, 2): 3})
    lanes = lanes_of(queue, 4)
    back = [LeasedGroup(f"g{n}", n, 0, 2, 0, "", 0, None, None) for n in range(2)]
    assert with_returned(view, lanes, back) == lanes
    assert decide(view, with_returned(view, lanes, back), PATIENCE_MS).plan is not None


@examples(300)
@given(queues, st.lists(groups, max_size=12), st.integers(2, 14), st.sampled_from([0.1, 0.5, 0.8]), shares)
def test_a_mixture_from_some_lanes_is_the_mixture_from_all(
    queue: list[Group],
    candidates: list[Group],
    batch_size: int,
    fraction: float,
    promised: dict[int, dict[str, float]],
) -> None:
    live, every, drawn = (
        view_of(batch_size, promised).live,
        lanes_of(queue, batch_size),
        list(map(tuple, candidates)),
    )
    queued, read = chosen_of(every, batch_size, live, by_age(queue))
    found = mix(batch_size, fraction, with_unread(queued, read), drawn, live.shares, {})  # type: ignore[arg-type]
    assert found == mix(batch_size, fraction, every, drawn, live.shares, {})  # type: ignore[arg-type]


@examples(500)
@given(queues, st.integers(2, 60), st.sampled_from([0.0, 0.1, 0.5, 0.8, 1.0]), shares, debts, st.booleans())
def test_a_queue_with_too_few_sequences_is_not_read_for_the_same_decision(
    queue: list[Group],
    batch_size: int,
    fraction: float,
    promised: dict[int, dict[str, float]],
    owed: dict[int, int],
    long_since: bool,
) -> None:
    since = 0 if long_since else None
    view = view_of(batch_size, promised, clock_ms=60_000, debts=owed, conflict_since_ms=since, last_batch_ms=0)
    every = lanes_of(queue, batch_size)
    view = replace(view, lanes={(lane.environment, lane.size): lane.queued for lane in every})
    needed = fresh_needed(batch_size, fraction)
    assume(sequences_in(view.lanes) < needed)
    assert sum(group.size for group in queue) < needed
    assert decide(view, (), PATIENCE_MS) == decide(view, every, PATIENCE_MS)
    candidates: list[LaneId] = [(None, 1)] * batch_size
    assert mix(batch_size, fraction, every, candidates, view.live.shares, {}) is None


def test_sequences_are_counted_over_all_lanes() -> None:
    assert sequences_in({(1, 4): 2, (None, 3): 1}) == 11
    assert sequences_in({}) == 0


@given(queues, st.integers(1, 14), shares)
def test_no_more_lanes_of_a_size_are_read_than_groups_fit_into_a_batch(
    queue: list[Group], batch_size: int, promised: dict[int, dict[str, float]]
) -> None:
    live = view_of(batch_size, promised).live
    _, read = chosen_of(lanes_of(queue, batch_size), batch_size, live, by_age(queue))
    lanes = Counter(lane.size for lane in read if lane.environment not in live.limited)
    assert all(count <= batch_size // size for size, count in lanes.items())


def test_an_order_that_lacks_needed_lanes_makes_all_be_read() -> None:
    queued: dict[LaneId, int] = {(number, 4): 1 for number in range(6)}
    ages: list[LaneId] = [(number, 4) for number in (9, 3, 1, 5, 0, 2, 4)]
    assert lanes_to_read(8, queued, frozenset(), ages) == [(3, 4), (1, 4)]
    assert lanes_to_read(8, queued, frozenset({0, 1}), ages) == [(0, 4), (1, 4), (3, 4), (5, 4)]
    assert lanes_to_read(8, queued, frozenset(), ages[:2]) == list(queued)
