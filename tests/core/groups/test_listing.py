"""A listing of groups shows each of them once, however few a page has, and the newest of many lanes first."""

from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.environments.record import EnvironmentRecord
from app.core.groups.listing import (
    BATCH_END,
    LEASED,
    LEFT,
    SECTIONS,
    BatchPosition,
    GroupQuery,
    GroupRow,
    LanesPosition,
    LeftPosition,
    Position,
    Start,
    find_environments,
    first_share,
    lanes_to_read_on,
    merged_lanes,
    next_batches,
    parse_list_position,
    section_after,
)
from app.core.model import LaneId, QueuedGroup
from lachesis.wire.errors import EnvironmentNotFound, InvalidField
from lachesis.wire.states import QUEUED
from tests.properties import examples

lane_ids = st.tuples(st.sampled_from([None, 0, 1, 2, 12]), st.integers(1, 3))


def read_lane(arrivals: Sequence[int], below: int, above: int, most: int) -> list[QueuedGroup]:
    """Read the newest groups of a lane as Redis does."""
    wanted = sorted((one for one in arrivals if above < one < below), reverse=True)
    return [QueuedGroup(arrival, f"g{arrival}") for arrival in wanted[:most]]


@examples(300)
@given(st.lists(lane_ids, max_size=60), st.integers(1, 12), st.integers(1, 6))
def test_pages_of_merged_lanes_have_each_group_once_newest_first(
    owners: list[LaneId], most: int, most_lanes: int
) -> None:
    lanes: defaultdict[LaneId, list[int]] = defaultdict(list)
    for arrival, lane in enumerate(owners, start=1):
        lanes[lane].append(arrival)
    position: Start | LanesPosition = Start(QUEUED)
    listed: list[int] = []
    ranges: defaultdict[tuple[tuple[int, int], tuple[int, int]], list[int]] = defaultdict(list)
    while (merged := merged_lanes(lanes, position, most_lanes)) is not None:
        at, chosen = merged
        share = first_share(len(chosen), most)
        first = {lane: read_lane(lanes[lane], at.arrival, 0, share) for lane in chosen}
        rest = lanes_to_read_on(first, share, most)
        more = {lane: read_lane(lanes[lane], *between, most) for lane, between in rest.items()}
        read = [group.arrival for part in (first, more) for groups in part.values() for group in groups]
        page = sorted(read, reverse=True)[:most]
        held = [arrival for lane in chosen for arrival in lanes[lane] if arrival < at.arrival]
        assert page == sorted(held, reverse=True)[:most], "the newest ones, as if all had been read"
        assert len(rest) * share <= most, "few lanes are read twice"
        listed += page
        ranges[at.first, at.last] += page
        position = at._replace(arrival=page[-1] if len(page) == most else 0)
        assert parse_list_position(str(position)) == position
    assert sorted(listed) == list(range(1, len(owners) + 1))
    assert all(part == sorted(part, reverse=True) for part in ranges.values())
    if len(lanes) <= most_lanes:
        assert len(ranges) <= 1


def test_a_lane_that_comes_or_goes_moves_no_other_lane_to_another_page() -> None:
    lanes: list[LaneId] = [(0, 1), (0, 2), (1, 1), (1, 2)]
    merged = merged_lanes(lanes, Start(QUEUED), 2)
    assert merged is not None
    at, chosen = merged
    assert chosen == [(0, 1), (0, 2)]
    within = at._replace(arrival=5)
    assert merged_lanes([(None, 1), (0, 2), *lanes[2:]], within, 2) == (within, [(0, 2)])
    assert merged_lanes([(0, 1), (0, 2), (0, 3), (1, 1)], at._replace(arrival=0), 2) == (
        LanesPosition(QUEUED, (0, 3), (1, 1), 1 << 53),
        [(0, 3), (1, 1)],
    )
    assert merged_lanes([], within, 2) is None


@examples(300)
@given(
    st.dictionaries(st.tuples(st.integers(-1, 3), st.sampled_from("abc")), st.integers(0, 4), max_size=6),
    st.integers(1, 3),
)
def test_pages_of_batches_have_each_group_once_the_latest_batch_first(
    sizes: dict[tuple[int, str], int], most: int
) -> None:
    position: Start | BatchPosition = Start(LEASED)
    listed: list[tuple[int, str, int]] = []
    while batches := next_batches(sizes, position, most):
        assert len(batches) <= most + 1
        assert sum(sizes[at.step, at.batch_id] - at.place for at in batches[:-1]) < most, "all of them are needed"
        read = [
            at._replace(place=place) for at in batches for place in range(at.place + 1, sizes[at.step, at.batch_id] + 1)
        ][:most]
        listed += [(at.step, at.batch_id, at.place) for at in read]
        position = read[-1] if len(read) == most else batches[-1]._replace(place=BATCH_END)
    latest_first = sorted(sizes, reverse=True)
    assert listed == [(*batch, place) for batch in latest_first for place in range(1, sizes[batch] + 1)]


def test_a_listing_continues_though_batches_came_or_left() -> None:
    within = BatchPosition(LEASED, 2, "b", 1)
    a, b, c = (1, "a"), (2, "b"), (3, "c")
    first = BatchPosition(LEASED, 1, "a", 0)
    assert next_batches({a: 2, b: 2, c: 2}, within, 1) == [within]
    assert next_batches({a: 2, b: 2, c: 2}, within, 2) == [within, first]
    assert next_batches({a: 2, (2, "a"): 2, (2, "c"): 2, c: 2}, within, 1) == [BatchPosition(LEASED, 2, "a", 0)]
    assert next_batches({a: 2, b: 2}, within._replace(place=BATCH_END), 9) == [first]
    assert next_batches({(2, "c"): 2, c: 2}, within, 1) == []


@pytest.mark.parametrize(
    "position",
    [
        *map(Start, SECTIONS),
        LanesPosition(QUEUED, (-1, 4), (12, 3), 0),
        LanesPosition("buffered", (0, 1), (0, 1), 1 << 53),
        BatchPosition("leased", 3, "0123456789abcdef0123456789abcdef", 0),
        BatchPosition("kept", -1, "b", 1 << 53),
        LeftPosition(1_234_567, 3, "0123456789abcdef"),
    ],
)
def test_a_position_reads_as_it_was_written(position: Position) -> None:
    assert parse_list_position(str(position)) == position
    assert len(str(position)) <= 128


@pytest.mark.parametrize(
    "text",
    ["", "gone", "queued:0.1:0.1", "kept:1:b", "left:1:1:", "left:1:1:a b", "queued:0.1:0.1:٣", "left ", "leased\n"],
)
def test_a_cursor_that_no_answer_had_is_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        parse_list_position(text)


def test_sections_in_which_nothing_can_match_are_not_read() -> None:
    assert GroupQuery().sections == SECTIONS
    assert GroupQuery(state="delivered").sections == (LEFT,)
    assert GroupQuery(dropped="stale").sections == (LEFT,)
    assert GroupQuery(dropped="stale", state="queued").sections == ()
    assert GroupQuery(score_min=0.5).sections == ("queued", "buffered", "leased", "kept")
    assert GroupQuery(score_max=0.5, step_min=1).sections == ("leased", "kept")
    assert GroupQuery(step_max=1).sections == ("leased", "kept", LEFT)
    assert GroupQuery(received_from_ms=1).sections == SECTIONS
    assert GroupQuery(staleness_min=1).sections == ("queued", "buffered", "leased")
    assert section_after("buffered", ("queued", "left")) == Start("left")
    assert section_after("left", SECTIONS) is None


bounds = st.none() | st.integers(0, 4)


@examples(200)
@given(bounds, bounds, bounds, bounds, bounds, bounds, st.none() | st.integers(0, 4), bounds, st.integers(0, 4))
def test_bounds_of_a_query_hold_for_its_groups(
    score_min: int | None,
    score_max: int | None,
    step_min: int | None,
    step_max: int | None,
    from_ms: int | None,
    to_ms: int | None,
    score: int | None,
    step: int | None,
    accepted_ms: int,
) -> None:
    query = GroupQuery(
        score_min=score_min,
        score_max=score_max,
        step_min=step_min,
        step_max=step_max,
        received_from_ms=from_ms,
        received_to_ms=to_ms,
    )
    group = GroupRow(
        group_id="a",
        shown_id="a",
        state="leased",
        environment=None,
        size=1,
        payload_bytes=1,
        accepted_ms=accepted_ms,
        mean_score=score,
        step=step,
    )
    outside = [
        from_ms is not None and accepted_ms < from_ms,
        to_ms is not None and accepted_ms >= to_ms,
        score_min is not None and (score is None or score < score_min),
        score_max is not None and (score is None or score > score_max),
        step_min is not None and (step is None or step < step_min),
        step_max is not None and (step is None or step > step_max),
    ]
    assert query.matches(group) is not any(outside)


def test_an_environment_is_found_by_id_name_or_none() -> None:
    records = {
        0: EnvironmentRecord(0, "math", "math_0", 4, 512, 1.0, None, None, registered_ms=0),
        1: EnvironmentRecord(1, "math", "math_1", 4, 512, 1.0, None, None, registered_ms=0),
    }
    assert find_environments(None, records) is None
    assert find_environments(7, records) == {7}
    assert find_environments("none", records) == {None}
    assert find_environments("math_1", records) == {1}
    assert find_environments("math", records) == {0, 1}
    with pytest.raises(EnvironmentNotFound, match="code"):
        find_environments("code", records)
