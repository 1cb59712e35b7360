"""End the reservations of replayed groups: count their uses or give them back after their batch has ended.

A reservation is a sample under the batch's id. It is made before the batch is committed, and the commit requires it. It
ends after the batch, with the outcome of the batch. So if a process dies in between, a use is not lost and is counted
once. A batch that is rewound has counted its uses, and has no reservation any more.
"""

from app.store.batches.store import BatchStore
from app.store.redis.compare_and_swap import Attempts
from app.store.replay.samples import SampleStore
from app.store.replay.store import ReplayStore

RESERVED_MS = 60_000
"""How long a reservation waits for its batch to be committed, run clock."""


class UseReservations:
    """Ends the reservations of batches. Each step is safe to repeat."""

    def __init__(self, replay: ReplayStore, samples: SampleStore, batches: BatchStore) -> None:
        self._replay = replay
        self._samples = samples
        self._batches = batches

    async def settle(self, run: str) -> None:
        """End the reservations of batches that have ended, and of those that were never committed."""
        reserved = [lease for lease in await self._samples.leases(run) if lease.is_reservation]
        view = await self._replay.view(run) if reserved else None
        if view is None:
            return
        with_lease = await self._batches.with_lease(run, [lease.batch_id for lease in reserved])
        for lease in reserved:
            if lease.batch_id in with_lease:
                continue
            end = await self._batches.end_of(run, lease.batch_id)
            if end is not None or view.context.clock_ms >= lease.deadline_ms:
                acknowledged = end is not None and end.outcome == "acknowledged"
                await self._samples.end(run, lease, "acknowledged" if acknowledged else "given_back", view)

    async def release(self, run: str, batch_id: str) -> None:
        """Give back the reservation of a batch that was not committed."""
        attempts = Attempts("give back replayed groups", run)
        while attempts.again():
            view, lease = await self._replay.view(run), await self._samples.lease(run, batch_id)
            if view is None or lease is None or await self._samples.end(run, lease, "given_back", view):
                return
