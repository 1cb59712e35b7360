"""Groups that were submitted and are not handed over yet: how many there may be, and which go next. No I/O."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lachesis.errors import LachesisError

MOST_GROUPS_SENT = 64
MOST_BYTES_SENT = 8 * 1024 * 1024
"""Groups and bytes that go into one request; a single group may be larger."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A group as it is sent."""

    group: str
    payload: bytes


class Outbox:
    """A queue with room for so many groups and bytes, in the order they were submitted."""

    def __init__(self, most_groups: int, most_bytes: int) -> None:
        """Make an empty one.

        Args:
            most_groups: ``>= 1``.
            most_bytes: A group that is larger has room when nothing else is there.
        """
        if most_groups < 1:
            raise ValueError(f"buffer_groups: should be 1 or more, not {most_groups}")
        self._most_groups = most_groups
        self._most_bytes = most_bytes
        self._waiting: deque[Parcel] = deque()
        self._bytes = 0
        self._alone = 0
        self._failures: dict[str, LachesisError] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, payload_bytes: int) -> bool:
        """Whether a group of that size may be put in now."""
        fits = len(self._waiting) < self._most_groups and self._bytes + payload_bytes <= self._most_bytes
        return fits or not self._waiting

    def put(self, parcel: Parcel) -> None:
        """Put a group at the end."""
        self._waiting.append(parcel)
        self._bytes += len(parcel.payload)

    def next(self) -> list[Parcel]:
        """Return the groups that go into the next request, without taking them out."""
        chosen: list[Parcel] = []
        size = 0
        for parcel in self._waiting:
            size += len(parcel.payload)
            if chosen and (self._alone or len(chosen) == MOST_GROUPS_SENT or size > MOST_BYTES_SENT):
                break
            chosen.append(parcel)
        return chosen

    def arrived(self, parcels: Sequence[Parcel]) -> None:
        """Take out what `next` returned."""
        for parcel in parcels:
            self._take_out(parcel)

    def refused(self, parcels: Sequence[Parcel], error: LachesisError) -> None:
        """Learn that the service does not take these for good. Of several, each is tried alone: one may be to blame."""
        if len(parcels) > 1:
            self._alone = len(parcels)
        else:
            self._take_out(parcels[0])
            self._failures[parcels[0].group] = error

    def give_up(self, error: LachesisError) -> None:
        """Take all that is left for failed."""
        self._failures |= {parcel.group: error for parcel in self._waiting}
        self._waiting.clear()
        self._bytes = self._alone = 0

    @property
    def has_failures(self) -> bool:
        """Whether any group failed since `failures` was last asked."""
        return bool(self._failures)

    def failures(self) -> dict[str, LachesisError]:
        """Return what failed since this was last asked, by group."""
        failures, self._failures = self._failures, {}
        return failures

    def _take_out(self, parcel: Parcel) -> None:
        gone = self._waiting.popleft()
        assert gone is parcel  # noqa: S101 - one sender takes from the front
        self._bytes -= len(parcel.payload)
        self._alone = max(0, self._alone - 1)
