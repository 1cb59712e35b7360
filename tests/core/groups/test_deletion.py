"""A search for groups to delete sees every group that waits once, however few it looks at in a call."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.groups.deletion import (
    BUFFERED,
    QUEUED,
    SearchPosition,
    first_groups,
    lanes_left,
    parse_position,
    stopped_at,
)
from app.core.groups.listing import GroupQuery, GroupRow
from app.core.model import LaneId
from lachesis.wire.errors import InvalidField
from tests.properties import examples

states = st.sampled_from([QUEUED, BUFFERED])
versions = st.none() | st.integers(0, 3)
waiting_groups = st.tuples(states, st.sampled_from([None, 0, 1, 12]), st.integers(1, 3), versions)
owners = st.sampled_from([None, frozenset({None}), frozenset({0}), frozenset({1, 12})])
queries = st.builds(
    GroupQuery,
    state=st.sampled_from([None, QUEUED, BUFFERED]),
    environments=owners,
    size=st.none() | st.integers(1, 2),
    older_than_version=versions,
    staleness_min=st.none() | st.integers(0, 3),
)


def is_meant(about: tuple[str, int | None, int, int | None], wanted: GroupQuery) -> bool:
    state, environment, size, version = about
    return (
        wanted.state in (None, state)
        and (wanted.environments is None or environment in wanted.environments)
        and wanted.size in (None, size)
        and (wanted.older_than_version is None or (version is not None and version < wanted.older_than_version))
        and (wanted.staleness_min is None or (version is not None and 3 - version >= wanted.staleness_min))
    )


def listed(about: tuple[str, int | None, int, int | None]) -> GroupRow:
    state, environment, size, version = about
    return GroupRow(
        group_id="a",
        shown_id="a",
        state=state,
        environment=environment,
        size=size,
        payload_bytes=1,
        accepted_ms=0,
        policy_version=version,
        staleness=None if version is None else 3 - version,
    )


@examples(300)
@given(st.lists(waiting_groups, max_size=20), queries, st.integers(1, 6))
def test_calls_in_sequence_delete_exactly_the_wanted_groups(
    waiting: list[tuple[str, int | None, int, int | None]], wanted: GroupQuery, limit: int
) -> None:
    left = dict(enumerate(waiting, start=1))
    deleted, after, looked_at = set(), None, []
    for _ in range(2 * len(waiting) + 2):
        lanes: dict[str, defaultdict[LaneId, list[int]]] = {QUEUED: defaultdict(list), BUFFERED: defaultdict(list)}
        for arrival, (state, environment, size, _) in left.items():
            lanes[state][environment, size].append(arrival)
        counts = {state: {lane: len(own) for lane, own in by_lane.items()} for state, by_lane in lanes.items()}
        ahead = lanes_left(counts, wanted.has_lane, after)
        chosen = first_groups(ahead, limit)
        seen: list[int] = []
        rest = 0
        for start, most in chosen:
            behind = [arrival for arrival in lanes[start.state][start.lane] if arrival > start.arrival]
            seen += behind[:most]
            rest = len(behind) - len(behind[:most])
            last = behind[:most][-1] if rest and most else None
        assert len(seen) <= limit
        looked_at += seen
        for arrival in seen:
            if wanted.matches(listed(left[arrival])):
                deleted.add(arrival)
                del left[arrival]
        if not rest and len(chosen) == len(ahead):
            break
        after = parse_position(str(stopped_at(chosen[-1][0], last)))
    else:
        raise AssertionError("the search comes to no end")
    assert len(looked_at) == len(set(looked_at))
    assert deleted == {arrival for arrival, about in enumerate(waiting, start=1) if is_meant(about, wanted)}


@pytest.mark.parametrize("text", ["", "queued:0:1", "held:0:1:1", "queued:0:1:-1", "queued:0:1:1 ", "queued:٣:1:1"])
def test_a_cursor_that_no_answer_had_is_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        parse_position(text)


def test_a_position_reads_as_it_was_written() -> None:
    for position in (SearchPosition(QUEUED, -1, 4, 0), SearchPosition(BUFFERED, 7, 1, 123)):
        assert parse_position(str(position)) == position
