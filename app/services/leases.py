"""End and extend leases: one implementation for batches and for samples of the replay buffer.

A request names a lease by its id and may be repeated: if the lease already ended as the request asks, the request
succeeds. Every change is a compare-and-swap of the lease as it was read.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from app.core.batches.leases import Lease, extended_deadline_ms
from app.store.batches.view import BatchEnd
from app.store.redis.compare_and_swap import Attempts
from lachesis.wire.errors import LeaseLost, NotFound
from lachesis.wire.states import BatchOutcome, LeaseOutcome, SampleOutcome

V = TypeVar("V")

HOW_IT_ENDED: dict[BatchOutcome | SampleOutcome, str] = {
    "acknowledged": "was acknowledged",
    "given_back": "was put back",  # by its trainer, by an operator, or because it could not be handed out again
    "discarded": "was discarded",
    "expired": "ended because its lease ran out",
    "overtaken": "ended because a snapshot of the buffer was restored",
}


@dataclass(frozen=True, slots=True)
class LeaseReading(Generic[V]):
    """A lease as it was read.

    Attributes:
        view: The view that it was read with.
        clock_ms: The run clock.
        lease_s: The default duration of leases in the run, seconds.
        lease: The lease; None if it has ended.
        end: How it ended; None if it has not ended, or ended long ago.
    """

    view: V
    clock_ms: int
    lease_s: float
    lease: Lease | None
    end: BatchEnd | None


class LeaseKind(ABC, Generic[V]):
    """A kind of thing that trainers hold under leases.

    Attributes:
        noun: The name of the thing in messages: ``batch``.
    """

    noun: str

    @abstractmethod
    async def read(self, run: str, leased_id: str) -> LeaseReading[V]:
        """Read a lease, or how it ended."""

    @abstractmethod
    async def change(self, run: str, before: Lease, after: Lease) -> bool:
        """Replace a lease; False if it has changed since it was read."""

    @abstractmethod
    def not_found(self, run: str, leased_id: str) -> NotFound:
        """Return the error for an id that the run does not know."""

    def is_meant(self, reading: LeaseReading[V], lease_id: str | None, outcome: LeaseOutcome | None) -> bool:
        """Return whether a request with ``lease_id`` may end or extend the lease that was read.

        Args:
            reading: The lease as it was read.
            lease_id: The id of the lease that the request names.
            outcome: How the request ends the lease; None for an extension. A quarantined batch can still be
                acknowledged under its last lease.
        """
        lease = reading.lease
        states = ("held", "quarantined") if outcome == "acknowledged" else ("held",)
        return lease is not None and lease.lease_id == lease_id and lease.state in states

    async def end(
        self,
        run: str,
        leased_id: str,
        lease_id: str | None,
        outcome: LeaseOutcome,
        finish: Callable[[Lease, V], Awaitable[bool]],
    ) -> bool:
        """End a lease. Safe to repeat.

        Args:
            run: The run's name.
            leased_id: The id of the batch or sample.
            lease_id: The id of the lease; None for a request that needs no lease.
            outcome: How the lease ends.
            finish: Ends the lease as it was read; returns False if it has changed since.

        Returns:
            False if the lease had already ended with this outcome.

        Raises:
            NotFound: The run does not know the batch or sample, or it ended long ago.
            LeaseLost: It is no longer held under that lease. Nothing was changed.
            TooManyConflicts: The lease changed during every attempt.
        """
        attempts = Attempts(f"end the lease of {self.noun} {leased_id}", run)
        while attempts.again():
            reading = await self.read(run, leased_id)
            lease = self._lease_of(run, leased_id, reading, lease_id, outcome)
            if lease is None:
                return False
            if await finish(lease, reading.view):
                return True

    async def extend(self, run: str, leased_id: str, lease_id: str, lease_s: float | None) -> float:
        """Move the deadline of a lease to ``lease_s`` seconds from now; None for the run's default. A later one stays.

        Returns:
            Seconds until the deadline.

        Raises:
            NotFound, LeaseLost, TooManyConflicts: As for `end`.
        """
        attempts = Attempts(f"extend the lease of {self.noun} {leased_id}", run)
        while attempts.again():
            reading = await self.read(run, leased_id)
            lease = self._lease_of(run, leased_id, reading, lease_id, None)
            assert lease is not None, "a lease does not end by an extension"  # noqa: S101
            deadline_ms = extended_deadline_ms(lease, reading.clock_ms, lease_s, reading.lease_s)
            if await self.change(run, lease, replace(lease, deadline_ms=deadline_ms)):
                return (deadline_ms - reading.clock_ms) / 1000

    def _lease_of(
        self, run: str, leased_id: str, reading: LeaseReading[V], lease_id: str | None, outcome: LeaseOutcome | None
    ) -> Lease | None:
        """Return the lease that a request means; None if it already ended as the request asks."""
        lease, end = reading.lease, reading.end
        if lease is not None:
            if self.is_meant(reading, lease_id, outcome):
                return lease
            if outcome == "given_back" and lease_id and lease.given_back == lease_id:
                return None
            raise LeaseLost(f"{self.noun} {leased_id} {_state_of(lease)}")
        if end is None:
            raise self.not_found(run, leased_id)
        if end.outcome == outcome and lease_id in (None, end.lease_id):
            return None
        ago_s = max(0, reading.clock_ms - end.clock_ms) / 1000
        raise LeaseLost(f"{self.noun} {leased_id} {HOW_IT_ENDED[end.outcome]} {ago_s:.0f} s ago")


def _state_of(lease: Lease) -> str:
    match lease.state:
        case "returned":
            return "waits to be handed out again"
        case "quarantined":
            return f"is quarantined: its lease ran out (delivery {lease.delivery_count})"
        case "held":
            return f"is held under another lease (delivery {lease.delivery_count})"
        case "sending" | "sent":
            return "is with a trainer of Atropos, whose next request ends it"
