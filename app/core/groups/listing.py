"""List the groups of a run: which match a query, in which order, and where a page stopped.

A listing visits sections in a fixed order: groups in the queue, in the set buffer, in leased batches, in kept batches,
and groups that have left. Waiting groups come newest first, over as many as `MOST_LANES` lanes at a time. Groups of
batches come in training order, the latest batch first. Groups that have left come in reverse order of their end.
A position names what was listed last, so a listing continues after any group, even if others arrived or left since.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import isqrt
from typing import NamedTuple

from app.core.environments.record import EnvironmentRecord
from app.core.groups.deletion import LANE_END, NO_ENVIRONMENT, not_a_cursor
from app.core.model import LaneId, QueuedGroup, environment_key, environment_of
from lachesis.wire.criteria import GroupCriteria
from lachesis.wire.errors import EnvironmentNotFound
from lachesis.wire.states import BUFFERED, DELIVERED, DROPPED, KEPT, LEASED, QUEUED, DropReason, FilterName, GroupState

LEFT = "left"
SECTIONS = (QUEUED, BUFFERED, LEASED, KEPT, LEFT)
MOST_LANES = 256
"""Lanes that are merged at a time: a page asks Redis about each of them."""

BATCH_END = LANE_END
"""Larger than every place in a batch."""

_ENDED = (DELIVERED, DROPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """What is known of a group. None stands for what does not apply, or is not known any more.

    Attributes:
        group_id: The service's own id, that of its payload.
        shown_id: The id that finds it: that of its sender, or a short form of it after the group has left.
        state: Where it is.
        environment: Its environment; None: none.
        size: Number of its sequences.
        payload_bytes: Size of its columns.
        accepted_ms: Run clock when it came.
        policy_version: The version it counts as sampled by.
        staleness: Policy versions since then, while it is waiting or leased.
        tokens: Tokens of its sequences.
        mean_score: The mean of its scores.
        item: The dataset entry or task it comes from.
        batch_id: The batch that has or had it.
        step: The step of that batch.
        ended_ms: Run clock when it was delivered or dropped.
        reason: Why it was dropped.
        filtered_by: The filter that matched it and kept it with a weight.
    """

    group_id: str
    shown_id: str
    state: GroupState
    environment: int | None
    size: int
    payload_bytes: int
    accepted_ms: int
    policy_version: int | None = None
    staleness: int | None = None
    tokens: int | None = None
    mean_score: float | None = None
    item: str | None = None
    batch_id: str | None = None
    step: int | None = None
    ended_ms: int | None = None
    reason: DropReason | None = None
    filtered_by: FilterName | None = None

    @property
    def lane(self) -> LaneId:
        """Return the lane of the group."""
        return self.environment, self.size

    def received_age_s(self, clock_ms: int) -> float:
        """Return how long ago it came, by the run clock."""
        return max(0, clock_ms - self.accepted_ms) / 1000

    def ended_age_s(self, clock_ms: int) -> float | None:
        """Return how long ago it was delivered or dropped, by the run clock."""
        return None if self.ended_ms is None else max(0, clock_ms - self.ended_ms) / 1000


class GroupQuery(GroupCriteria):
    """Criteria with the ids of environments, and with times of the run clock.

    Attributes:
        environments: The environments it may belong to; None among them: groups without an environment.
        received_from_ms: Run clock from which on it came.
        received_to_ms: Run clock before which it came.
    """

    environments: frozenset[int | None] | None = None
    received_from_ms: float | None = None
    received_to_ms: float | None = None

    @property
    def environment_id(self) -> int | str | None:
        """Return the id of the environment; its name, if the text is not an id."""
        text = self.environment
        if text is not None and text.isascii() and text.isdecimal() and len(text) <= 16:
            return int(text)
        return text

    @property
    def sections(self) -> tuple[str, ...]:
        """Return the sections that may have groups that match, in order."""
        wanted = [self.state] if self.state else [QUEUED, BUFFERED, LEASED, KEPT, *_ENDED]
        if self.dropped is not None:
            wanted = [state for state in wanted if state == DROPPED]
        if self._has_step:
            wanted = [state for state in wanted if state not in (QUEUED, BUFFERED)]
        if self._has_score:
            wanted = [state for state in wanted if state not in _ENDED]
        if self.staleness_min is not None:
            wanted = [state for state in wanted if state not in (KEPT, *_ENDED)]
        found = {LEFT if state in _ENDED else state for state in wanted}
        return tuple(section for section in SECTIONS if section in found)

    @property
    def _has_score(self) -> bool:
        return self.score_min is not None or self.score_max is not None

    @property
    def _has_step(self) -> bool:
        return self.step_min is not None or self.step_max is not None

    def has_lane(self, lane: LaneId) -> bool:
        """Return whether groups of a lane may match."""
        environment, size = lane
        return (self.environments is None or environment in self.environments) and self.size in (None, size)

    def may_match(self, group: GroupRow) -> bool:
        """Return whether a group matches, apart from its item, which takes longer to read."""
        return (
            (self.state is None or group.state == self.state)
            and self.has_lane(group.lane)
            and (not self._has_score or _is_between(group.mean_score, self.score_min, self.score_max))
            and (not self._has_step or _is_between(group.step, self.step_min, self.step_max))
            and (self.received_from_ms is None or group.accepted_ms >= self.received_from_ms)
            and (self.received_to_ms is None or group.accepted_ms < self.received_to_ms)
            and (self.staleness_min is None or (group.staleness is not None and group.staleness >= self.staleness_min))
            and (self.older_than_version is None or _is_below(group.policy_version, self.older_than_version))
            and (self.dropped is None or group.reason == self.dropped)
        )

    def matches(self, group: GroupRow) -> bool:
        """Return whether a group matches, its item included."""
        return self.may_match(group) and (self.item is None or group.item == self.item)


def _is_between(value: float | None, least: float | None, most: float | None) -> bool:
    return value is not None and (least is None or value >= least) and (most is None or value <= most)


def _is_below(value: int | None, end: int) -> bool:
    return value is not None and value < end


def find_environments(
    environment: int | str | None, known: Mapping[int, EnvironmentRecord]
) -> frozenset[int | None] | None:
    """Return the environments that a query means by an id, by a name or by ``none``; None: all.

    Raises:
        EnvironmentNotFound: None has this name.
    """
    if environment is None:
        return None
    if isinstance(environment, int):
        return frozenset({environment})
    if environment == NO_ENVIRONMENT:
        return frozenset({None})
    named: frozenset[int | None] = frozenset(
        one.environment for one in known.values() if environment in (one.name, one.desired_name)
    )
    if not named:
        raise EnvironmentNotFound(f"the run has no environment named {environment!r}")
    return named


# Positions


class Start(NamedTuple):
    """The start of a section."""

    section: str

    def __str__(self) -> str:
        return self.section


class LanesPosition(NamedTuple):
    """A position in a range of lanes that are merged: the groups that arrived at ``arrival`` or later are done.

    Lanes are (environment, size), with -1 for none. ``arrival`` 0 means the end of the range.
    """

    section: str
    first: tuple[int, int]
    last: tuple[int, int]
    arrival: int

    def __str__(self) -> str:
        first, last = (f"{'-' if owner < 0 else owner}.{size}" for owner, size in (self.first, self.last))
        return f"{self.section}:{first}:{last}:{self.arrival}"


class BatchPosition(NamedTuple):
    """A position in a batch: later batches are done, and this one up to ``place``."""

    section: str
    step: int
    batch_id: str
    place: int

    def __str__(self) -> str:
        return ":".join(map(str, self))


class LeftPosition(NamedTuple):
    """A position among the groups that have left: ``name`` is the last one that was listed.

    Attributes:
        clock_ms: Run clock when it left.
        passed: Later records of the same time.
        name: The name by which the run knows it.
    """

    clock_ms: int
    passed: int
    name: str

    @property
    def section(self) -> str:
        """Return the section that it is in."""
        return LEFT

    def __str__(self) -> str:
        return ":".join(map(str, (LEFT, *self)))


Position = Start | LanesPosition | BatchPosition | LeftPosition


def parse_list_position(text: str) -> Position:
    """Parse ``str`` of a position.

    Raises:
        InvalidField: The text is not a position.
    """
    for pattern, position_of in _POSITIONS.items():
        if found := re.fullmatch(pattern, text, re.ASCII):
            return position_of(*found.groups())
    raise not_a_cursor()


def _lane(owner: str, size: str) -> tuple[int, int]:
    return -1 if owner == "-" else int(owner), int(size)


_LANE = r"(-|\d{1,16})\.(\d{1,16})"
_POSITIONS: dict[str, Callable[..., Position]] = {
    rf"({'|'.join(SECTIONS)})": Start,
    rf"({QUEUED}|{BUFFERED}):{_LANE}:{_LANE}:(\d{{1,16}})": (
        lambda section, owner, size, last_owner, last_size, arrival: LanesPosition(
            section, _lane(owner, size), _lane(last_owner, last_size), int(arrival)
        )
    ),
    rf"({LEASED}|{KEPT}):(-?\d{{1,16}}):([A-Za-z0-9._-]{{1,64}}):(\d{{1,16}})": (
        lambda section, step, batch_id, place: BatchPosition(section, int(step), batch_id, int(place))
    ),
    rf"{LEFT}:(\d{{1,16}}):(\d{{1,16}}):([A-Za-z0-9._-]{{1,64}})": (
        lambda clock_ms, passed, name: LeftPosition(int(clock_ms), int(passed), name)
    ),
}
"""The text of each kind of position, and how to make the position from its parts."""


def section_after(section: str, sections: Sequence[str]) -> Start | None:
    """Return the start of the next of these sections; None after the last one."""
    following = SECTIONS[SECTIONS.index(section) + 1 :]
    return next((Start(one) for one in sections if one in following), None)


# The newest groups of many lanes


def merged_lanes(
    lanes: Iterable[LaneId], at: Start | LanesPosition, most: int
) -> tuple[LanesPosition, list[LaneId]] | None:
    """Return the lanes to merge next, and the position in them; None if there are no more.

    Args:
        lanes: All lanes that may have groups that match.
        at: The position of the listing.
        most: Most lanes to merge.
    """
    keys = sorted((environment_key(environment), size) for environment, size in lanes)
    if isinstance(at, LanesPosition):
        inside = [key for key in keys if at.first <= key <= at.last]
        if at.arrival > 1 and inside:
            return at, list(map(_lane_id, inside))
        keys = [key for key in keys if key > at.last]
    chosen = keys[:most]
    if not chosen:
        return None
    return LanesPosition(at.section, chosen[0], chosen[-1], LANE_END), list(map(_lane_id, chosen))


def _lane_id(key: tuple[int, int]) -> LaneId:
    owner, size = key
    return environment_of(owner), size


def first_share(lanes: int, most: int) -> int:
    """Return how many groups to read of each lane at first, to find the ``most`` newest with few reads in all.

    A second read takes at most ``most`` groups of each lane whose groups were all among the newest, of which there are
    at most ``most`` divided by this share.
    """
    return -(-most // max(1, isqrt(lanes)))


def lanes_to_read_on(
    found: Mapping[LaneId, Sequence[QueuedGroup]], share: int, most: int
) -> dict[LaneId, tuple[int, int]]:
    """Return the lanes that may have more of the ``most`` newest groups.

    Args:
        found: The newest groups of each lane, ``share`` of them or all.
        share: How many were read of each lane.
        most: How many are wanted in all.

    Returns:
        Lane -> the arrivals between which its further groups are, exclusive: the upper one first.
    """
    newest = nlargest(most, (group.arrival for groups in found.values() for group in groups))
    floor = newest[-1] if len(newest) == most else 0
    lowest = {lane: groups[-1].arrival for lane, groups in found.items() if len(groups) == share}
    return {lane: (arrival, floor) for lane, arrival in lowest.items() if arrival > floor}


# The batches of a run


def next_batches(groups: Mapping[tuple[int, str], int], at: Position, most: int) -> list[BatchPosition]:
    """Return where to read on: in the batch of the position if it has more, then at the start of the next batches.

    Args:
        groups: Step and id of each batch -> its groups. Batches may have come or gone since the last page.
        at: The position of the listing.
        most: How many groups are wanted.

    Returns:
        The positions, the latest batch first, until ``most`` groups follow. Empty if there are no more batches.
    """
    found, ahead, missing = list[BatchPosition](), list(groups), most
    if isinstance(at, BatchPosition):
        own = at.step, at.batch_id
        if own in groups and at.place < BATCH_END:
            found, missing = [at], most - (groups[own] - at.place)
        ahead = [one for one in groups if one < own]
    for one in nlargest(most, ahead):
        if missing <= 0:
            break
        found.append(BatchPosition(at.section, *one, 0))
        missing -= groups[one]
    return found
