"""Track which API process sends which batch to a trainer of Atropos, because these trainers acknowledge nothing.

A lease is ``sending`` in Redis while an API process writes its batch out. Only that process knows whether it still
sends. The others trust Redis while that process is alive.
"""

import os
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace

from app.core.batches.leases import Lease, as_returned, is_redeliverable
from app.core.runs.view import QueueView
from app.process_ids import pid_space, process_exists
from app.services.batches.request import BatchResult, OutgoingBatch
from app.services.batches.retention import Retention
from app.store.batches.store import BatchStore

_WORKER_SILENT_MS = 15_000
_LOOKS = 10  # a second apart, after Redis did not answer: a command that is still on its way arrives by then


class AtroposDelivery:
    """The batches that this process sends, and what it knows about other processes.

    Attributes:
        worker: The name of this process in leases and in the list of live processes.
    """

    def __init__(self, batches: BatchStore, retention: Retention, worker: str) -> None:
        self._batches = batches
        self._retention = retention
        self._under_way: set[Lease] = set()  # leases that this process really sends
        self._to_recheck: dict[str, int] = {}  # runs whose leases may not be what this process believes; looks to take
        self._pid_space = pid_space()
        self.worker = worker

    def lease(self, batch: Lease) -> Lease:
        """Return the lease under which this process sends a batch."""
        return replace(as_returned(batch), state="sending", worker=self.worker)

    async def begin(self, run: str, lease: Lease, take: Coroutine[None, None, bool]) -> bool:
        """Take a lease. This process sends it from just before Redis knows of it until its answer has ended.

        If Redis does not answer, this process does not send the lease. If Redis took it anyway, the lease `waits`.
        """
        self._under_way.add(lease)
        taken = False
        try:
            with self._recheck_if_interrupted(run):
                taken = await take
        finally:
            if not taken:
                self._under_way.discard(lease)
        return taken

    async def finish(self, run: str, answer: BatchResult) -> None:
        """Record that an answer was sent in full, which acknowledges the batches sent before it."""
        if answer.batch is not None:
            try:
                with self._recheck_if_interrupted(run):
                    await self._batches.mark_sent(run, answer.batch.lease)
            finally:
                # Redis did not answer, so the lease is not marked and is handed out again: twice is better than never.
                self._under_way.discard(answer.batch.lease)
        if answer.acknowledges:
            await self._retention.deliver(run, answer.acknowledges)

    async def break_off(self, run: str, batch: OutgoingBatch) -> None:
        """Record that a batch did not reach its trainer, even if it is marked as sent. It is handed out next."""
        try:
            with self._recheck_if_interrupted(run):
                await self._batches.mark_returned(run, batch.lease)
                await self._batches.mark_returned(run, replace(batch.lease, state="sent"))
        finally:
            self._under_way.discard(batch.lease)

    @contextmanager
    def _recheck_if_interrupted(self, run: str) -> Iterator[None]:
        """Look at a run later if a change of a lease was interrupted: Redis may have made it, or may still do so."""
        try:
            yield
        except BaseException:
            self._to_recheck[run] = _LOOKS
            raise

    def runs_to_recheck(self) -> list[str]:
        """Return the runs in which `return_lost` may have something to do."""
        return sorted(self._to_recheck)

    async def return_lost(self, run: str, view: QueueView) -> None:
        """Return the leases that Redis says this process sends, but it does not: Redis wrote them and did not answer.

        After that any API process can serve them. Before, the others leave them alone because this process is alive.
        """
        for lease in view.leases:
            if lease.state == "sending" and lease.worker == self.worker and lease not in self._under_way:
                await self._batches.mark_returned(run, lease)
        looks = self._to_recheck.pop(run, 1) - 1
        if looks:
            self._to_recheck[run] = looks

    def is_redeliverable(self, lease: Lease, view: QueueView) -> bool:
        """Return whether the batch of a lease waits to be handed out again, as far as this process knows."""
        sent = lease.state == "sending" and self._is_being_sent(lease, view)
        return is_redeliverable(lease, view.clock_ms, view.policy.max_deliveries, being_sent=sent)

    def _is_being_sent(self, lease: Lease, view: QueueView) -> bool:
        return lease in self._under_way if lease.worker == self.worker else self._alive(lease.worker, view)

    def seems_dead(self, view: QueueView) -> bool:
        """Return whether other processes would count this one as dead, and hand out what it is sending."""
        return self._silent(self.worker, view)

    def _silent(self, worker: str, view: QueueView) -> bool:
        heard_ms = view.workers.get(worker)
        return heard_ms is None or view.clock_ms - heard_ms > _WORKER_SILENT_MS

    def _alive(self, worker: str, view: QueueView) -> bool:
        there, pid, _ = worker.rsplit("/", 2)
        if there == self._pid_space and (int(pid) == os.getpid() or not process_exists(int(pid))):
            return False
        return not self._silent(worker, view)


def worker_name() -> str:
    """Return a new name for this process, for leases and for the list of live processes."""
    return f"{pid_space()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
