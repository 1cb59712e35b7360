"""Batches in trainers' hands on the native API: ended, given back, held longer, looked at."""

import asyncio
from dataclasses import replace
from weakref import WeakValueDictionary

from app.core.batches.leases import Lease, LeaseState, expired, given_back
from app.core.errors import BatchInUse, BatchNotFound, InvalidField, LeaseLost
from app.core.model import DropReason
from app.core.ranks.sharding import Sharding, acknowledged_by
from app.events import BatchDiscarded, BatchGivenBack, emit
from app.services.batches.rewind import Retention
from app.services.groups.staleness import Staleness
from app.services.replay.reservations import UseReservations
from app.store.batches.store import BatchStore
from app.store.batches.view import BatchView
from app.store.groups.store import GroupStore
from app.store.redis.compare_and_swap import Attempts


class BatchLeases:
    """What a trainer does with a batch, and what operators do."""

    def __init__(
        self,
        groups: GroupStore,
        batches: BatchStore,
        retention: Retention,
        reservations: UseReservations,
        staleness: Staleness,
    ) -> None:
        self._groups = groups
        self._batches = batches
        self._retention = retention
        self._reservations = reservations
        self._staleness = staleness
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def acknowledge(self, run: str, batch_id: str, lease_id: str, rank: int | None = None) -> tuple[int, ...]:
        """End a batch that was trained on. Safe to repeat, and right also after the deadline if nobody else had it.

        Args:
            run: The run's name.
            batch_id: The batch.
            lease_id: The lease it is held under.
            rank: Of a batch that is divided: the rank that has trained on its shard. It ends when no other is awaited.

        Returns:
            The ranks whose acknowledgement is still missing.

        Raises:
            RunNotFound: There is no such run.
            BatchNotFound: There is none of that id, or it ended long ago.
            LeaseLost: It is not held under that lease any more; nothing was changed.
            InvalidField: The rank is missing, or is none of the batch.
        """
        # The ranks of a step come at the same time; in one process they need not outdate each other.
        async with self._turns.setdefault((run, batch_id), asyncio.Lock()):
            attempts = Attempts("acknowledge a batch", run)
            while attempts.again():
                view = await self._batches.view(run, batch_id)
                lease = _held(view, run, batch_id, lease_id, "acknowledged")
                if lease is None:
                    return ()
                sharding = _acknowledged(lease.sharding, rank)
                if sharding is not None and sharding.awaited:
                    if await self._batches.change(run, lease, replace(lease, sharding=sharding)):
                        return sharding.awaited
                elif await self._retention.deliver(run, [lease], view.policy):
                    return ()

    async def give_back(self, run: str, batch_id: str, lease_id: str | None, reason: str | None) -> None:
        """Give a batch back: its groups go to the front of their lanes, in their order. Safe to repeat.

        Groups that a newer policy version has made too old are dropped, as they would have been in the queue.
        A batch that a rewind brought back stays whole instead, and is handed out again before any new one, unless an
        operator gives it back.

        Args:
            run: The run's name.
            batch_id: The batch.
            lease_id: The lease it is held under; None for a batch that no trainer holds.
            reason: Why; logged.

        Raises:
            RunNotFound, BatchNotFound, LeaseLost: As for `acknowledge`.
        """
        attempts = Attempts("give back a batch", run)
        while attempts.again():
            view = await self._batches.view(run, batch_id)
            lease = _held(view, run, batch_id, lease_id, "given_back")
            if lease is None:
                return
            if lease.rewound and lease_id is not None:
                if await self._batches.change(run, lease, given_back(lease)):
                    emit(BatchGivenBack(run=run, batch=batch_id, step=lease.step, reason=reason))
                    return
                continue
            groups = await self._batches.groups_of(run, batch_id)
            if groups is not None and await self._batches.dissolve(run, lease, groups, view.policy.history_ms):
                emit(BatchGivenBack(run=run, batch=batch_id, step=lease.step, reason=reason))
                await self._staleness.sweep_versions(run)
                if lease.replayed:
                    await self._reservations.settle(run)
                return

    async def extend(self, run: str, batch_id: str, lease_id: str, lease_s: float | None) -> float:
        """Hold a batch longer; returns for how many seconds from now.

        The latest deadline counts: ranks share a lease, so one must not shorten it for the others.

        Raises:
            RunNotFound, BatchNotFound, LeaseLost: As for `acknowledge`.
        """
        attempts = Attempts("extend the lease of a batch", run)
        while attempts.again():
            view = await self._batches.view(run, batch_id)
            lease = _held(view, run, batch_id, lease_id, None)
            assert lease is not None, "nothing has ended by being held"  # noqa: S101
            seconds = view.policy.lease_s if lease_s is None else lease_s
            deadline_ms = max(lease.deadline_ms, view.clock_ms + round(seconds * 1000))
            if await self._batches.change(run, lease, replace(lease, deadline_ms=deadline_ms)):
                return (deadline_ms - view.clock_ms) / 1000

    async def discard(self, run: str, batch_id: str) -> None:
        """Drop a batch that is quarantined, with its groups.

        Raises:
            RunNotFound: There is no such run.
            BatchNotFound: There is none of that id.
            BatchInUse: It is not quarantined.
        """
        tried: Lease | None = None
        attempts = Attempts("discard a batch", run)
        while attempts.again():
            view = await self._batches.view(run, batch_id)
            lease = view.lease
            if lease is None and tried is not None and view.end is not None and view.end.outcome == "discarded":
                break  # it was done, and the answer was lost
            if lease is None:
                raise BatchNotFound(f"run {run} has no batch {batch_id} in anybody's hands")
            if lease.state is not LeaseState.QUARANTINED:
                raise BatchInUse(f"batch {batch_id} is {lease.state.value}, not quarantined")
            tried = lease
            if await self._batches.discard(run, lease, DropReason.QUARANTINED, view.policy.history_ms):
                emit(BatchDiscarded(run=run, batch=batch_id, step=lease.step))
                break
        if tried.replayed:
            await self._reservations.settle(run)
        await self._groups.delete_marked(run)


def _held(view: BatchView, run: str, batch_id: str, lease_id: str | None, repeated: str | None) -> Lease | None:
    """Find the lease a caller means; None if what it asks for was done before: the batch ended as ``repeated``."""
    lease, end = view.lease, view.end
    if lease is not None and lease_id is None and _is_nobodys(lease, view.clock_ms):
        return lease
    if lease is not None and lease.state is LeaseState.HELD and lease.lease_id == lease_id:
        return lease
    if lease is not None and repeated == "given_back" and lease_id and lease.given_back == lease_id:
        return None
    if lease is not None:
        raise LeaseLost(f"batch {batch_id} {_what_happened(lease)}")
    if end is None:
        raise BatchNotFound(f"run {run} knows no batch {batch_id}")
    if end.outcome != repeated or end.lease_id != lease_id:
        ago_s = max(0, view.clock_ms - end.clock_ms) / 1000
        raise LeaseLost(f"batch {batch_id} was {end.outcome.replace('_', ' ')} {ago_s:.0f} s ago")
    return None


def _is_nobodys(lease: Lease, clock_ms: int) -> bool:
    """Whether no trainer holds a batch: it is quarantined, or waits to be handed out again."""
    return lease.state in (LeaseState.QUARANTINED, LeaseState.RETURNED) or expired(lease, clock_ms)


def _acknowledged(sharding: Sharding | None, rank: int | None) -> Sharding | None:
    """Note that a rank has trained on its shard, of a batch that is divided."""
    if sharding is None and rank is not None:
        raise InvalidField("this batch is not divided between ranks", ("rank",))
    if sharding is None:
        return None
    if rank is None or rank >= sharding.spec.world_size:
        raise InvalidField(f"this batch is divided: say which of ranks 0 to {sharding.spec.world_size - 1}", ("rank",))
    return acknowledged_by(sharding, rank)


def _what_happened(lease: Lease) -> str:
    match lease.state:
        case LeaseState.RETURNED:
            return "waits to be handed out again"
        case LeaseState.QUARANTINED:
            return f"is quarantined: its lease ran out {lease.delivery_count} times"
        case LeaseState.HELD:
            return f"is held under another lease (delivery {lease.delivery_count})"
        case LeaseState.SENDING | LeaseState.SENT:
            return "is with a trainer of Atropos, whose next request ends it"
