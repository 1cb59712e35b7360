"""Find the waiting groups that an operator deletes, and keep the position of the search.

A search visits lanes in a fixed order, and the groups of each lane from the oldest to the newest. So it can stop after
any group and continue from there later, even if groups arrived or left in between.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, cast

from app.core.model import LaneId, environment_key, environment_of
from lachesis.wire.errors import InvalidField
from lachesis.wire.states import BUFFERED, QUEUED, GroupState

NO_ENVIRONMENT: Literal["none"] = "none"
LANE_END = 1 << 53
"""Larger than every arrival."""

_CURSOR = re.compile(rf"({QUEUED}|{BUFFERED}):(-|[0-9]{{1,16}}):([0-9]{{1,16}}):([0-9]{{1,16}})")


class SearchPosition(NamedTuple):
    """The position of a search. All lanes before this one are done, and this one up to an arrival.

    Attributes:
        state: ``queued`` or ``buffered``.
        environment: The `environment_key` of the lane's environment: -1 for none.
        size: The lane's size.
        arrival: The arrival of the last group looked at; 0: none yet.
    """

    state: GroupState
    environment: int
    size: int
    arrival: int

    @property
    def lane(self) -> LaneId:
        """Return the lane."""
        return environment_of(self.environment), self.size

    def __str__(self) -> str:
        environment = "-" if self.environment < 0 else self.environment
        return f"{self.state}:{environment}:{self.size}:{self.arrival}"


def not_a_cursor() -> InvalidField:
    """Return the error for a cursor that no answer gave."""
    return InvalidField("is not a cursor: pass the cursor of the last answer, or none to begin", ("query", "cursor"))


def parse_position(text: str) -> SearchPosition:
    """Parse ``str`` of a `SearchPosition`.

    Raises:
        InvalidField: The text is not a position.
    """
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise not_a_cursor()
    state, environment, size, arrival = found.groups()
    return SearchPosition(
        cast(GroupState, state), -1 if environment == "-" else int(environment), int(size), int(arrival)
    )


def stopped_at(start: SearchPosition, last: int | None) -> SearchPosition:
    """Return the position after the last group looked at in a lane. None stands for the lane's end."""
    return start._replace(arrival=LANE_END if last is None else last)


def lanes_left(
    counts: Mapping[GroupState, Mapping[LaneId, int]], covers: Callable[[LaneId], bool], after: SearchPosition | None
) -> list[tuple[SearchPosition, int]]:
    """Return the lanes that a search has yet to visit, in order.

    Args:
        counts: Waiting groups, by state and lane.
        covers: Whether groups of a lane may match.
        after: The position of the search; None at its start.

    Returns:
        The position to start from in each lane, and the number of groups in the lane.
    """
    starts = (
        (SearchPosition(state, environment_key(environment), size, 0), held)
        for state, lanes in counts.items()
        for (environment, size), held in lanes.items()
        if covers((environment, size))
    )
    if after is None:
        return sorted(starts)
    return sorted((max(start, after), held) for start, held in starts if start._replace(arrival=LANE_END) > after)


def first_groups(lanes: Iterable[tuple[SearchPosition, int]], limit: int) -> list[tuple[SearchPosition, int]]:
    """Return the lanes to read, and the number of groups to read from each: ``limit`` in all."""
    chosen = []
    for start, held in lanes:
        if limit <= 0:
            break
        chosen.append((start, min(held, limit)))
        limit -= held
    return chosen
