"""Find the waiting groups that an operator deletes, and keep the position of the search.

A search visits lanes in a fixed order, and the groups of each lane from the oldest to the newest. So it can stop after
any group and continue from there later, even if groups arrived or left in between.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.core.model import LaneId
from lachesis.wire.errors import InvalidField

QUEUED, BUFFERED = "queued", "buffered"
NO_ENVIRONMENT: Literal["none"] = "none"
LANE_END = 1 << 53
"""Larger than every arrival."""

_CURSOR = re.compile(rf"({QUEUED}|{BUFFERED}):(-|[0-9]{{1,16}}):([0-9]{{1,16}}):([0-9]{{1,16}})")


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """A filter of groups. A group must match every criterion that is not None.

    Attributes:
        environment: The environment they belong to; `NO_ENVIRONMENT`: none.
        size: The number of their sequences.
        older_than_version: Matches only groups sampled by a policy version below this one.
    """

    environment: int | Literal["none"] | None = None
    size: int | None = None
    older_than_version: int | None = None

    def __post_init__(self) -> None:
        if self.environment is None and self.size is None and self.older_than_version is None:
            raise InvalidField("name at least one of environment, size and older_than_version", ("query",))

    def covers(self, lane: LaneId) -> bool:
        """Return whether groups of a lane may match."""
        environment, size = lane
        whose = NO_ENVIRONMENT if environment is None else environment
        return self.environment in (None, whose) and self.size in (None, size)

    def means(self, policy_version: int | None) -> bool:
        """Return whether a group of a covered lane matches, given the policy version that sampled it, or None."""
        if self.older_than_version is None:
            return True
        return policy_version is not None and policy_version < self.older_than_version


class SearchPosition(NamedTuple):
    """The position of a search. All lanes before this one are done, and this one up to an arrival.

    Attributes:
        state: ``queued`` or ``buffered``.
        environment: The lane's environment, or -1 for none.
        size: The lane's size.
        arrival: The arrival of the last group looked at; 0: none yet.
    """

    state: str
    environment: int
    size: int
    arrival: int

    @property
    def lane(self) -> LaneId:
        """Return the lane."""
        return None if self.environment < 0 else self.environment, self.size

    def __str__(self) -> str:
        environment = "-" if self.environment < 0 else self.environment
        return f"{self.state}:{environment}:{self.size}:{self.arrival}"


def parse_position(text: str) -> SearchPosition:
    """Parse ``str`` of a `SearchPosition`.

    Raises:
        InvalidField: The text is not a position.
    """
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidField("is not a cursor: pass the cursor of the last answer, or none to begin", ("query", "cursor"))
    state, environment, size, arrival = found.groups()
    return SearchPosition(state, -1 if environment == "-" else int(environment), int(size), int(arrival))


def stopped_at(start: SearchPosition, last: int | None) -> SearchPosition:
    """Return the position after the last group looked at in a lane. None stands for the lane's end."""
    return start._replace(arrival=LANE_END if last is None else last)


def lanes_left(
    counts: Mapping[str, Mapping[LaneId, int]], wanted: GroupFilter, after: SearchPosition | None
) -> list[tuple[SearchPosition, int]]:
    """Return the lanes that a search has yet to visit, in order.

    Args:
        counts: Waiting groups, by state and lane.
        wanted: The filter.
        after: The position of the search; None at its start.

    Returns:
        The position to start from in each lane, and the number of groups in the lane.
    """
    starts = (
        (SearchPosition(state, -1 if environment is None else environment, size, 0), held)
        for state, lanes in counts.items()
        for (environment, size), held in lanes.items()
        if wanted.covers((environment, size))
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
