"""Track which API process sends which batch to a trainer of Atropos, because these trainers acknowledge nothing.

A lease is SENDING in Redis while an API process writes its batch out. Only that process knows what it is really
sending. The others believe Redis as long as that process is alive.
"""

import os
import uuid
from collections.abc import Coroutine
from dataclasses import replace

from app.core.batches.leases import Lease, LeaseState, is_redeliverable, returned
from app.core.runs.view import RunView
from app.liveness import pid_space, process_exists
from app.services.batches.request import Batch, BatchResult
from app.services.batches.rewind import Retention
from app.store.batches.store import BatchStore

_WORKER_SILENT_MS = 15_000


class AtroposDelivery:
    """The batches that this process sends, and what it knows about other processes.

    Attributes:
        worker: The name of this process in leases and in the list of live processes.
    """

    def __init__(self, batches: BatchStore, retention: Retention, worker: str) -> None:
        self._batches = batches
        self._retention = retention
        self._under_way: set[Lease] = set()  # leases that this process really sends
        self._pid_space = pid_space()
        self.worker = worker

    def lease(self, batch: Lease) -> Lease:
        """Return the lease under which this process sends a batch."""
        return replace(returned(batch), state=LeaseState.SENDING, worker=self.worker)

    async def begin(self, lease: Lease, take: Coroutine[None, None, bool]) -> bool:
        """Take a lease. This process sends it from just before Redis knows of it until its answer has ended.

        If Redis does not answer, this process does not send the lease. If Redis took it anyway, the lease `waits`.
        """
        self._under_way.add(lease)
        taken = False
        try:
            taken = await take
        finally:
            if not taken:
                self._under_way.discard(lease)
        return taken

    async def finish(self, run: str, answer: BatchResult) -> None:
        """Record that an answer was sent in full, which acknowledges the batches sent before it."""
        if answer.batch is not None:
            try:
                await self._batches.mark_sent(run, answer.batch.lease)
            finally:
                # Redis did not answer, so the lease is not marked and is handed out again: twice is better than never.
                self._under_way.discard(answer.batch.lease)
        if answer.acknowledges:
            await self._retention.deliver(run, answer.acknowledges)

    async def break_off(self, run: str, batch: Batch) -> None:
        """Record that a batch did not reach its trainer, even if it is marked as sent. It is handed out next."""
        try:
            await self._batches.mark_returned(run, batch.lease)
            await self._batches.mark_returned(run, replace(batch.lease, state=LeaseState.SENT))
        finally:
            self._under_way.discard(batch.lease)

    async def return_lost(self, run: str, view: RunView) -> None:
        """Return the leases that Redis says this process sends, but it does not: Redis wrote them and did not answer.

        After that any API process can serve them. Before, the others leave them alone because this process is alive.
        """
        for lease in view.leases:
            if lease.state is LeaseState.SENDING and lease.worker == self.worker and lease not in self._under_way:
                await self._batches.mark_returned(run, lease)

    def is_redeliverable(self, lease: Lease, view: RunView) -> bool:
        """Return whether the batch of a lease waits to be handed out again, as far as this process knows."""
        sent = lease.state is LeaseState.SENDING and self._is_being_sent(lease, view)
        return is_redeliverable(lease, view.clock_ms, view.policy.max_deliveries, being_sent=sent)

    def _is_being_sent(self, lease: Lease, view: RunView) -> bool:
        return lease in self._under_way if lease.worker == self.worker else self._alive(lease.worker, view)

    def _alive(self, worker: str, view: RunView) -> bool:
        there, pid, _ = worker.rsplit("/", 2)
        if there == self._pid_space and (int(pid) == os.getpid() or not process_exists(int(pid))):
            return False
        ticked = view.workers.get(worker)
        return ticked is not None and view.clock_ms - ticked <= _WORKER_SILENT_MS


def worker_name() -> str:
    """Return a new name for this process, for leases and for the list of live processes."""
    return f"{pid_space()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
