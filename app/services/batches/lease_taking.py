"""Lease a batch to a requester."""

import uuid
from collections.abc import Coroutine
from dataclasses import replace

from app.core.batches.leases import Lease, as_returned
from app.core.runs.view import QueueView
from app.services.batches.atropos_delivery import AtroposDelivery
from app.services.batches.recent_leases import RecentLeases
from app.services.batches.request import BatchRequest


class LeaseTaking:
    """Takes leases for requesters.

    Attributes:
        handed_out: Batches, and shards of batches, that this process has handed out.
    """

    def __init__(self, atropos_delivery: AtroposDelivery, recent: RecentLeases) -> None:
        self._atropos_delivery = atropos_delivery
        self._recent = recent
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
        if taken:
            self.handed_out += 1
            self._recent.remember(lease, view)
        return taken
