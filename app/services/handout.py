"""What passes between those who ask for a batch and those who hand it out."""

from dataclasses import dataclass

from app.core.leasing import Lease, LeasedGroup, LeaseState
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

    def deadline_ms(self, view: RunView) -> int:
        """Return until when it holds what it takes now, run clock."""
        return view.clock_ms + round(1000 * (view.policy.lease_s if self.lease_s is None else self.lease_s))

    def taken_before(self, view: RunView) -> Lease | None:
        """Find the lease that the same request took before, and that is still held."""
        if not self.request_id:
            return None
        held = (lease for lease in view.leases if lease.state is LeaseState.HELD)
        return next((lease for lease in held if lease.request_id == self.request_id), None)


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
