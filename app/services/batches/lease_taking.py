"""Lease a batch to a requester."""

import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, replace

from app.core.batches.leases import Lease, as_returned
from app.core.runs.settings import Policy
from app.core.runs.view import QueueView
from app.services.batches.atropos_delivery import AtroposDelivery
from app.services.batches.request import BatchRequest

_MOST_KNOWN = 1000  # leases of all runs
_MOST_KNOWN_SHARES = 64  # environments in a lease that is remembered: it names each of them


@dataclass(frozen=True, slots=True)
class KnownLease:
    """A lease that this process has handed out, with the policy and the epoch of its run at that time."""

    lease: Lease
    policy: Policy
    epoch: int


class LeaseTaking:
    """Takes leases for requesters, and remembers the last ones. Mostly, the same process ends them.

    Attributes:
        handed_out: Batches, and shards of batches, that this process has handed out.
    """

    def __init__(self, atropos_delivery: AtroposDelivery) -> None:
        self._atropos_delivery = atropos_delivery
        self._known: dict[str, KnownLease] = {}
        self.handed_out = 0

    def lease_for(self, request: BatchRequest, view: QueueView, batch: Lease) -> Lease:
        """Return the lease of a batch for a requester."""
        if request.of_atropos:
            return self._atropos_delivery.lease(batch)
        return replace(
            as_returned(batch),
            state="held",
            worker=self._atropos_delivery.worker,
            lease_id=uuid.uuid4().hex,
            deadline_ms=request.deadline_ms(view),
            request_id=request.request_id,
            trainer=request.trainer,
        )

    async def take(self, run: str, view: QueueView, lease: Lease, write: Coroutine[None, None, bool]) -> bool:
        """Write a lease that was decided on a view; False if the run changed in the meantime."""
        # Leases of the native API are held until their deadline, even if the reply is lost.
        taken = await (self._atropos_delivery.begin(run, lease, write) if lease.state == "sending" else write)
        self.handed_out += taken
        is_small = len(lease.contents) + len(lease.debts) <= _MOST_KNOWN_SHARES
        if taken and lease.state == "held" and lease.sharding is None and is_small:
            self._known[lease.batch_id] = KnownLease(lease, view.policy, view.epoch)
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
        return taken

    def recall(self, batch_id: str) -> KnownLease | None:
        """Return the lease of a batch as it was handed out, once; None if that is not known here."""
        return self._known.pop(batch_id, None)
