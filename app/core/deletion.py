"""Which groups that wait an operator means to delete, and how far a search for them has come.

A search goes through lanes in a fixed order, and through each from its oldest group on. So it can stop at any group and
go on behind it later, whatever has come or gone meanwhile.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.core.errors import InvalidField
from app.core.model import LaneId

QUEUED, BUFFERED = "queued", "buffered"
NO_ENVIRONMENT: Literal["none"] = "none"
LANE_END = 1 << 53
"""Above every arrival."""

_CURSOR = re.compile(rf"({QUEUED}|{BUFFERED}):(-|[0-9]{{1,16}}):([0-9]{{1,16}}):([0-9]{{1,16}})")


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Which groups are meant. A group must meet every criterion that is not None.

    Attributes:
        environment: Whose they are; `NO_ENVIRONMENT`: nobody's.
        size: How many sequences they have.
        older_than_version: They count as sampled by a policy version below this one; who names none is not meant.
    """

    environment: int | Literal["none"] | None = None
    size: int | None = None
    older_than_version: int | None = None

    def __post_init__(self) -> None:
        if self.environment is None and self.size is None and self.older_than_version is None:
            raise InvalidField("say which groups: environment, size or older_than_version, or several", ("query",))

    def covers(self, lane: LaneId) -> bool:
        """Whether groups of a lane may be meant."""
        environment, size = lane
        whose = NO_ENVIRONMENT if environment is None else environment
        return self.environment in (None, whose) and self.size in (None, size)

    def means(self, policy_version: int | None) -> bool:
        """Whether a group of such a lane is meant that counts as sampled by this policy version, or by none."""
        if self.older_than_version is None:
            return True
        return policy_version is not None and policy_version < self.older_than_version


class Position(NamedTuple):
    """How far a search has come: all lanes before this one, and in this one all groups up to an arrival, are behind it.

    Attributes:
        state: ``queued`` or ``buffered``.
        environment: The lane's environment, or -1 for none.
        size: The lane's size.
        arrival: The last group that was looked at; 0: none yet.
    """

    state: str
    environment: int
    size: int
    arrival: int

    @property
    def lane(self) -> LaneId:
        """The lane."""
        return None if self.environment < 0 else self.environment, self.size

    def __str__(self) -> str:
        environment = "-" if self.environment < 0 else self.environment
        return f"{self.state}:{environment}:{self.size}:{self.arrival}"


def parse_position(text: str) -> Position:
    """Invert ``str`` of a `Position`.

    Raises:
        InvalidField: It is none.
    """
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidField("is not the cursor of an answer to such a request", ("query", "cursor"))
    state, environment, size, arrival = found.groups()
    return Position(state, -1 if environment == "-" else int(environment), int(size), int(arrival))


def stopped_at(start: Position, last: int | None) -> Position:
    """Return how far a search has come in a lane: to the last group it looked at, or to the lane's end for None."""
    return start._replace(arrival=LANE_END if last is None else last)


def lanes_left(
    counts: Mapping[str, Mapping[LaneId, int]], wanted: GroupFilter, after: Position | None
) -> list[tuple[Position, int]]:
    """Return which lanes a search has yet to look at, in its order.

    Args:
        counts: Groups that wait, by state and lane.
        wanted: What is searched.
        after: How far it has come; None: it begins.

    Returns:
        Where it goes on in each lane, and how many groups the lane holds.
    """
    starts = (
        (Position(state, -1 if environment is None else environment, size, 0), held)
        for state, lanes in counts.items()
        for (environment, size), held in lanes.items()
        if wanted.covers((environment, size))
    )
    if after is None:
        return sorted(starts)
    return sorted((max(start, after), held) for start, held in starts if start._replace(arrival=LANE_END) > after)


def first_groups(lanes: Iterable[tuple[Position, int]], limit: int) -> list[tuple[Position, int]]:
    """Return from how many of the lanes to read groups, and how many of each: ``limit`` in all."""
    chosen = []
    for start, held in lanes:
        if limit <= 0:
            break
        chosen.append((start, min(held, limit)))
        limit -= held
    return chosen
