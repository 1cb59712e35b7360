"""Batches on their way to trainers of Atropos, who say nothing of them: who sends which, what nobody sends any more.

A lease is SENDING in Redis while some API process writes its batch out. That process knows what it is really sending;
others take its word for it for as long as it gives signs of life.
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
    """What this process is sending, and what it knows of others.

    Attributes:
        worker: The name of this process in leases and among those that give signs of life.
    """

    def __init__(self, batches: BatchStore, retention: Retention, worker: str) -> None:
        self._batches = batches
        self._retention = retention
        self._under_way: set[Lease] = set()  # what Redis says we are sending, and we are
        self._pid_space = pid_space()
        self.worker = worker

    def lease(self, batch: Lease) -> Lease:
        """Return the lease under which this process sends a batch."""
        return replace(returned(batch), state=LeaseState.SENDING, worker=self.worker)

    async def begin(self, lease: Lease, take: Coroutine[None, None, bool]) -> bool:
        """Take a lease: we are sending it from just before Redis can know until its answer has ended.

        If we never hear whether we have it, we are not sending it: should we have it, it `waits`.
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
        """Note that an answer was written out whole: it acknowledges the batches that had come before."""
        if answer.batch is not None:
            try:
                await self._batches.mark_sent(run, answer.batch.lease)
            finally:
                # Not marked, because Redis stayed away: then it is handed out again. Better twice than not at all.
                self._under_way.discard(answer.batch.lease)
        if answer.acknowledges:
            await self._retention.deliver(run, answer.acknowledges)

    async def break_off(self, run: str, batch: Batch) -> None:
        """Note that a batch did not reach its trainer, although it may be marked as sent: it goes first from now on."""
        try:
            await self._batches.mark_returned(run, batch.lease)
            await self._batches.mark_returned(run, replace(batch.lease, state=LeaseState.SENT))
        finally:
            self._under_way.discard(batch.lease)

    async def return_lost(self, run: str, view: RunView) -> None:
        """Return the leases this process is said to be sending and is not: Redis did what it never answered.

        Any API process can serve them then; before, others see that we live, and leave them alone.
        """
        for lease in view.leases:
            if lease.state is LeaseState.SENDING and lease.worker == self.worker and lease not in self._under_way:
                await self._batches.mark_returned(run, lease)

    def is_redeliverable(self, lease: Lease, view: RunView) -> bool:
        """Whether a lease's batch waits to be handed out again, as far as this process can tell."""
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
    """Make a new name for this process, as leases and signs of life have it."""
    return f"{pid_space()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
