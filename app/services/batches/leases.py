"""Leases of batches on the native API: acknowledge, give back, extend, discard."""

import asyncio
from dataclasses import replace
from weakref import WeakValueDictionary

from app.core.batches.leases import Lease, as_given_back, is_expired
from app.core.ranks.sharding import Sharding, acknowledged_by
from app.events import BatchDiscarded, BatchGivenBack, emit
from app.services.batches.recent_leases import RecentLeases
from app.services.batches.retention import Retention
from app.services.groups.staleness import Staleness
from app.services.leases import LeaseKind, LeaseReading
from app.services.replay.reservations import UseReservations
from app.store.batches.store import BatchStore
from app.store.batches.view import BatchView
from app.store.groups.garbage import GarbageStore
from app.store.redis.compare_and_swap import Attempts
from lachesis.wire.errors import BatchInUse, BatchNotFound, InvalidField
from lachesis.wire.states import LeaseOutcome


class BatchLeaseKind(LeaseKind[BatchView]):
    """Batches that trainers hold under leases."""

    noun = "batch"

    def __init__(self, batches: BatchStore) -> None:
        self._batches = batches

    async def read(self, run: str, leased_id: str) -> LeaseReading[BatchView]:
        """Read the lease of a batch, or how it ended."""
        view = await self._batches.view(run, leased_id)
        return LeaseReading(view, view.clock_ms, view.policy.lease_s, view.lease, view.end)

    async def change(self, run: str, before: Lease, after: Lease) -> bool:
        """Replace a lease; False if it has changed since it was read."""
        return await self._batches.change(run, before, after)

    def not_found(self, run: str, leased_id: str) -> BatchNotFound:
        """Return the error for an id that the run does not know."""
        return BatchNotFound(f"run {run} knows no batch {leased_id}")

    def is_meant(self, reading: LeaseReading[BatchView], lease_id: str | None, outcome: LeaseOutcome | None) -> bool:
        """Return whether a request may end the lease. Without ``lease_id`` it means a batch that no trainer holds."""
        lease = reading.lease
        if lease is None or lease_id is not None:
            return super().is_meant(reading, lease_id, outcome)
        return lease.state in ("quarantined", "returned") or is_expired(lease, reading.clock_ms)


class BatchLeases:
    """What trainers do with the batches they hold, and what operators do with batches."""

    def __init__(
        self,
        garbage: GarbageStore,
        batches: BatchStore,
        retention: Retention,
        reservations: UseReservations,
        staleness: Staleness,
        recent: RecentLeases,
    ) -> None:
        self._garbage = garbage
        self._batches = batches
        self._leased = BatchLeaseKind(batches)
        self._retention = retention
        self._reservations = reservations
        self._staleness = staleness
        self._recent = recent
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def acknowledge(self, run: str, batch_id: str, lease_id: str, rank: int | None = None) -> tuple[int, ...]:
        """End a batch that was trained on. Safe to repeat.

        A late acknowledgement still counts while no other trainer has taken the batch. It ends a quarantine.

        Args:
            run: The run's name.
            batch_id: The batch.
            lease_id: The lease of the batch.
            rank: The rank that has trained on its shard, if the batch is divided. The last rank ends the batch.

        Returns:
            The ranks whose acknowledgement is still missing.

        Raises:
            RunNotFound: There is no such run.
            BatchNotFound: The run does not know the batch, or it ended long ago.
            LeaseLost: The batch is no longer held under that lease. Nothing was changed.
            InvalidField: The rank is missing, or the batch has no such rank.
        """
        awaited: tuple[int, ...] = ()

        async def finish(lease: Lease, view: BatchView) -> bool:
            nonlocal awaited
            sharding = _acknowledged(lease.sharding, rank)
            awaited = () if sharding is None else sharding.awaited
            if awaited:
                return await self._batches.change(run, lease, replace(lease, sharding=sharding))
            return bool(await self._retention.deliver(run, [lease], view.policy))

        # The ranks of a step come at the same time. In one process they take turns, so that none of them must retry.
        async with self._locks.setdefault((run, batch_id), asyncio.Lock()):
            if rank is None and await self._end_unread(run, batch_id, lease_id):
                return ()
            ended_now = await self._leased.end(run, batch_id, lease_id, "acknowledged", finish)
        return awaited if ended_now else ()

    async def _end_unread(self, run: str, batch_id: str, lease_id: str) -> bool:
        """End a batch whose lease is as this process handed it out. Return False if it is not, or is not known here."""
        recent = self._recent.recall(batch_id)
        if recent is None or recent.lease.lease_id != lease_id:
            return False
        return bool(await self._retention.deliver(run, [recent.lease], recent.policy, recent.epoch))

    async def give_back(self, run: str, batch_id: str, lease_id: str | None, reason: str | None) -> None:
        """Give a batch back: its groups go to the front of their lanes, in their order. Safe to repeat.

        Groups that a newer policy version has made too old are dropped, as they would be in the queue.
        A batch that a rewind brought back stays whole, and is handed out again before any new one. If an operator
        gives it back, its groups return to their lanes too.

        Args:
            run: The run's name.
            batch_id: The batch.
            lease_id: The lease of the batch; None for a batch that no trainer holds.
            reason: Why; written to the log.

        Raises:
            RunNotFound, BatchNotFound, LeaseLost: As for `acknowledge`.
        """

        async def finish(lease: Lease, view: BatchView) -> bool:
            if lease.rewound and lease_id is not None:
                if not await self._batches.change(run, lease, as_given_back(lease)):
                    return False
                emit(BatchGivenBack(run=run, batch=batch_id, step=lease.step, reason=reason))
                return True
            groups = await self._batches.groups_of(run, batch_id)
            if groups is None or not await self._batches.dissolve(run, lease, groups, view.policy.remembered_ms):
                return False
            emit(BatchGivenBack(run=run, batch=batch_id, step=lease.step, reason=reason))
            await self._staleness.sweep_versions(run)
            if lease.replayed:
                await self._reservations.settle(run)
            return True

        await self._leased.end(run, batch_id, lease_id, "given_back", finish)

    async def extend(self, run: str, batch_id: str, lease_id: str, lease_s: float | None) -> float:
        """Extend the lease of a batch, and return the seconds until its deadline.

        A later deadline stays.

        Raises:
            RunNotFound, BatchNotFound, LeaseLost: As for `acknowledge`.
        """
        return await self._leased.extend(run, batch_id, lease_id, lease_s)

    async def discard(self, run: str, batch_id: str) -> None:
        """Drop a batch that is quarantined, with its groups.

        Raises:
            RunNotFound: There is no such run.
            BatchNotFound: There is no batch with that id.
            BatchInUse: The batch is not quarantined.
        """
        tried: Lease | None = None
        attempts = Attempts("discard a batch", run)
        while attempts.again():
            view = await self._batches.view(run, batch_id)
            lease = view.lease
            if lease is None and tried is not None and view.end is not None and view.end.outcome == "discarded":
                break  # it was discarded before, and the answer was lost
            if lease is None:
                raise BatchNotFound(f"run {run} has no batch {batch_id} that is leased or quarantined")
            if lease.state != "quarantined":
                raise BatchInUse(f"batch {batch_id} is {lease.state}, not quarantined")
            tried = lease
            if await self._batches.discard(run, lease, "quarantined", view.policy.remembered_ms):
                emit(BatchDiscarded(run=run, batch=batch_id, step=lease.step))
                break
        if tried.replayed:
            await self._reservations.settle(run)
        await self._garbage.delete_marked(run)


def _acknowledged(sharding: Sharding | None, rank: int | None) -> Sharding | None:
    """Return the sharding after a rank has trained on its shard; None for a batch that is not divided."""
    if sharding is None and rank is not None:
        raise InvalidField("this batch is not divided between ranks", ("rank",))
    if sharding is None:
        return None
    if rank is None or rank >= sharding.spec.world_size:
        raise InvalidField(f"this batch is divided: say which of ranks 0 to {sharding.spec.world_size - 1}", ("rank",))
    return acknowledged_by(sharding, rank)
