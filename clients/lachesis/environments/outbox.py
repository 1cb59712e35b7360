"""The outbox of an environment: groups that were submitted and have not arrived yet. No I/O."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from lachesis._transport.protocol import REQUEST_BYTES
from lachesis._transport.tracing import TraceHeaders, go_together
from lachesis.errors import LachesisError
from lachesis.wire import blob

MOST_GROUPS_SENT = 64
"""Maximum number of groups in one request."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A group that names no environment yet, and the headers of the span in which it was submitted."""

    group: str
    payload: bytes
    trace: TraceHeaders = field(default_factory=dict)
    has_item: bool = False

    def addressed(self, environment: int) -> bytes:
        """Return the payload, as that of a group of this environment."""
        header = blob.read_header(self.payload)
        return blob.with_metadata(self.payload, header, {**header.metadata, "environment": str(environment)})


class Outbox:
    """A bounded queue of groups, in the order they were submitted.

    Attributes:
        removed: Number of groups that have left it so far, in this order.
    """

    def __init__(self, most_groups: int, most_bytes: int) -> None:
        """Create an empty outbox.

        Args:
            most_groups: ``>= 1``.
            most_bytes: A larger group fits if the outbox is empty.
        """
        if most_groups < 1:
            raise ValueError(f"buffer_groups: should be 1 or more, not {most_groups}")
        self.removed = 0
        self._most_groups = most_groups
        self._most_bytes = most_bytes
        self._waiting: deque[Parcel] = deque()
        self._bytes = 0
        self._alone = 0
        self._failures: dict[str, LachesisError] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, payload_bytes: int) -> bool:
        """Return whether a group of this size fits now."""
        fits = len(self._waiting) < self._most_groups and self._bytes + payload_bytes <= self._most_bytes
        return fits or not self._waiting

    def put(self, parcel: Parcel) -> None:
        """Put a group at the end."""
        self._waiting.append(parcel)
        self._bytes += len(parcel.payload)

    def next(self) -> list[Parcel]:
        """Return the groups of the next request. They stay in the outbox until they have arrived."""
        chosen: list[Parcel] = []
        size = 0
        for parcel in self._waiting:
            size += len(parcel.payload)
            if chosen and (self._alone or len(chosen) == MOST_GROUPS_SENT or size > REQUEST_BYTES):
                break
            if chosen and not go_together(chosen[0].trace, parcel.trace):
                break
            chosen.append(parcel)
        return chosen

    def arrived(self, parcels: Sequence[Parcel]) -> None:
        """Remove what `next` returned."""
        for parcel in parcels:
            self._take_out(parcel)

    def refused(self, parcels: Sequence[Parcel], error: LachesisError) -> None:
        """Record a permanent refusal. If there were several, each is sent alone: one may be to blame."""
        if len(parcels) > 1:
            self._alone = len(parcels)
        else:
            self._take_out(parcels[0])
            self._failures[parcels[0].group] = error

    def give_up(self, error: LachesisError) -> None:
        """Record that all groups that are left have failed."""
        self._failures |= {parcel.group: error for parcel in self._waiting}
        self.removed += len(self._waiting)
        self._waiting.clear()
        self._bytes = self._alone = 0

    @property
    def has_failures(self) -> bool:
        """Whether any group failed since the last call of `failures`."""
        return bool(self._failures)

    def failures(self) -> dict[str, LachesisError]:
        """Return the failures since the last call, by group."""
        failures, self._failures = self._failures, {}
        return failures

    def _take_out(self, parcel: Parcel) -> None:
        gone = self._waiting.popleft()
        assert gone is parcel  # noqa: S101 - one sender takes from the front
        self.removed += 1
        self._bytes -= len(parcel.payload)
        self._alone = max(0, self._alone - 1)
