"""What passes between those who ask for a batch and those who hand it out."""

from dataclasses import dataclass

from app.core.leasing import Lease, LeasedGroup
from app.core.model import NotReady, RunView


@dataclass(frozen=True, slots=True)
class Timing:
    """The run's patience, milliseconds on the run clock."""

    environment_ttl_ms: int
    relax_after_ms: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who takes a batch to hold it under a lease with a deadline.

    Attributes:
        request_id: Names the request: repeated, it gets the same batch while that is held.
        lease_s: How long to hold it, seconds; None: as the run says.
        trainer: Who asks, for operators.
    """

    request_id: str = ""
    lease_s: float | None = None
    trainer: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to send: its lease, its groups and their columns in training order, and the run it was taken from."""

    lease: Lease
    groups: tuple[LeasedGroup, ...]
    payloads: tuple[bytes, ...]
    view: RunView


@dataclass(frozen=True, slots=True)
class Answer:
    """What a trainer that asked gets.

    Attributes:
        batch: The batch, or None.
        not_ready: Why there is none, or None.
        acknowledges: The leases whose batches had reached the trainer before it asked: once this answer has
            reached it too, they are delivered.
    """

    batch: Batch | None
    not_ready: NotReady | None
    acknowledges: tuple[Lease, ...] = ()
