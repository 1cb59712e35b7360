"""Hand out batches: first those that wait to be handed out again, then new ones from the queue."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from app.core.batches.diagnosis import unregistered
from app.core.batches.leases import (
    Lease,
    LeaseState,
    exhausted,
    expired,
    quarantined,
    returned,
)
from app.core.batches.planning import Decision
from app.core.errors import InvalidField, RanksDisagree, RunArchived, RunNotFound, RunRewound
from app.core.model import NotReady
from app.core.ranks.requests import ShardRequest
from app.core.runs.view import RunView
from app.events import BatchQuarantined, BatchRedelivered, emit
from app.services.batches.atropos_delivery import AtroposDelivery
from app.services.batches.formation import BatchFormation
from app.services.batches.lease_taking import LeaseTaking
from app.services.batches.request import Batch, BatchRequest, BatchResult, Timing
from app.services.batches.retrieval import Retrieval
from app.services.ranks.sharding import BatchSharding
from app.services.replay.reservations import UseReservations
from app.store.batches.store import BatchStore
from app.store.redis.compare_and_swap import Attempts
from app.store.runs.store import RunStore
from app.store.runs.tick import NOBODY

_MAX_ATTEMPTS = 10_000  # each may drop a batch of groups that are too old
_RETRY_MS = 10_000  # a trainer whose reply broke off asks again within seconds or never


class Dispatch:
    """Hands out batches."""

    def __init__(
        self,
        runs: RunStore,
        batches: BatchStore,
        retrieval: Retrieval,
        sharding: BatchSharding,
        formation: BatchFormation,
        reservations: UseReservations,
        taking: LeaseTaking,
        atropos_delivery: AtroposDelivery,
        timing: Timing,
    ) -> None:
        self._runs = runs
        self._batches = batches
        self._retrieval = retrieval
        self._sharding = sharding
        self._formation = formation
        self._reservations = reservations
        self._taking = taking
        self._atropos_delivery = atropos_delivery
        self._timing = timing
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by run, while a request is served

    @property
    def handed_out(self) -> int:
        """Return the number of batches, and shards of batches, that this process has handed out."""
        return self._taking.handed_out

    async def take(self, run: str, request: BatchRequest | None = None) -> BatchResult:
        """Take the next batch for a trainer.

        A batch that waits to be handed out again goes first, with the same groups in the same order. After that
        `app.core.batches.planning` plans new ones.

        Args:
            run: The run's name.
            request: Who will hold it under a lease; None for a trainer of Atropos. An answer with a batch for one of
                those must come to an end, whatever happens: `AtroposDelivery.finish` or `AtroposDelivery.break_off`.

        Raises:
            RunArchived: The run hands out nothing.
            RunNotFound: There is no run for a lease to be of.
            RunRewound: The run was rewound after the trainer began.
        """
        # Trainers that ask at the same time would plan the same batch; in one process they can simply queue up.
        turn = self._turns.setdefault(run, asyncio.Lock())
        async with turn:
            view = await self._runs.view(run)
            if view.config is not None and not view.started:
                await self._runs.start(run)
            if view.config is not None and self._atropos_delivery.worker not in view.workers:
                # Without a tick of this process, others would count it as dead and hand out what it is sending.
                await self._runs.tick(run, self._atropos_delivery.worker, NOBODY, self._timing.environment_ttl_ms)
            sent = tuple(lease for lease in view.leases if lease.state is LeaseState.SENT) if request is None else ()
            attempts = Attempts("hand out a batch", run, _MAX_ATTEMPTS)
            while view.config is not None and attempts.again():  # a reset may come in between
                if request is not None:
                    request.check(view)
                if view.policy.archived:
                    raise RunArchived(f"run {run} is archived: it hands out no batches")
                outcome = await self._next(run, view, request)
                if isinstance(outcome, Batch):
                    if view.undivided is not None and request is not None and request.seat is not None:
                        await self._runs.note_undivided(run, None)
                    return BatchResult(outcome, None, sent)
                if isinstance(outcome, NotReady):
                    return BatchResult(None, outcome, sent)
                view = await self._runs.view(run)
        if request is not None:
            raise RunNotFound(f"there is no run {run}")
        return BatchResult(None, unregistered())

    async def again(self, run: str, request: BatchRequest) -> BatchResult | None:
        """Return the batch that the same request took before, if it is still held; None if there is none."""
        turn = self._turns.setdefault(run, asyncio.Lock())
        async with turn:  # the first request may be about to take it
            view = await self._runs.view(run)
            mine = request.own_lease(view, self._waiting(view, request))
            if mine is None:
                return None
            batch = await self._handed_out(run, view, mine, request.renewed(mine, view), request.seat)
        return None if batch is None else BatchResult(batch, None)

    async def due(self, run: str, requests: Sequence[BatchRequest]) -> list[int]:
        """Return the requests that can be answered with a batch that was taken before.

        Their ranks hold it, or it waits to be handed out again. Each whole batch that waits answers one request.
        Requests whose answer is an error are included: their ranks disagree, or the run was rewound.

        Returns:
            Positions in ``requests``, ascending.
        """
        view = await self._runs.view(run)
        free = sum(self._atropos_delivery.is_redeliverable(lease, view) for lease in view.leases)
        found = []
        for position, request in enumerate(requests):
            try:
                request.check(view)
                waiting = self._waiting(view, request)
                has = waiting is not None or request.own_lease(view, waiting) is not None
            except (RanksDisagree, RunRewound):
                found.append(position)
                continue
            if has and (request.seat is not None or free > 0):
                found.append(position)
                free -= request.seat is None
        return found

    async def hand_on(self, run: str, batch: Batch) -> None:
        """Record that a batch was taken and reached no trainer. The next trainer that asks gets it first."""
        lease = batch.lease
        if _is_nobody_elses(batch):
            await self._batches.change(run, lease, replace(returned(lease), delivery_count=lease.delivery_count - 1))

    async def let_expire(self, run: str, batch: Batch) -> None:
        """Record that the reply with a batch broke off, and shorten its lease. Its trainer may ask again until then."""
        lease = batch.lease
        soon_ms = batch.view.clock_ms + _RETRY_MS
        if soon_ms < lease.deadline_ms and _is_nobody_elses(batch):
            await self._batches.change(run, lease, replace(lease, deadline_ms=soon_ms))

    async def quarantine_exhausted(self, run: str, view: RunView) -> None:
        """Quarantine the batches whose leases ran out as often as the run allows."""
        for lease in view.leases:
            if not exhausted(lease, view.clock_ms, view.policy.max_deliveries):
                continue
            if await self._batches.change(run, lease, quarantined(lease)):
                emit(
                    BatchQuarantined(
                        run=run, batch=lease.batch_id, step=lease.step, delivery_count=lease.delivery_count
                    )
                )

    async def decision(self, run: str, view: RunView) -> Decision | None:
        """Return what would happen if a trainer asked now, without handing anything out.

        Groups that are too old to be trained on are dropped, as when a batch is taken.

        Returns:
            The decision; None if groups were dropped: read the run again.
        """
        outgrown = [
            one
            for one in view.leases
            if self._atropos_delivery.is_redeliverable(one, view) and not _is_whole(one.size, view)
        ]
        held = [await self._batches.groups_of(run, lease.batch_id) for lease in outgrown]
        returning = [group for groups in held for group in groups or ()]
        decision, _ = await self._formation.decide(run, view, returning)
        fit = decision.plan is None or await self._retrieval.still_fit(run, view, decision.plan)
        return decision if fit else None

    def again_first(self, view: RunView) -> Lease | None:
        """Return the lease of the batch that is handed out again next, unchanged."""
        waiting = (
            lease
            for lease in view.leases
            if self._atropos_delivery.is_redeliverable(lease, view) and _is_whole(lease.size, view)
        )
        return next(waiting, None)

    async def _next(self, run: str, view: RunView, request: BatchRequest | None) -> Batch | NotReady | None:
        """Hand out a batch that was taken before, else a new one; None if the run changed in the meantime."""
        waiting = self._waiting(view, request)
        mine = None if request is None else request.own_lease(view, waiting)
        if request is not None and mine is not None:
            return await self._handed_out(run, view, mine, request.renewed(mine, view), request.seat)
        await self.quarantine_exhausted(run, view)
        if waiting is None:
            return await self._formation.form(run, view, request)
        taken = self._taking.lease_for(request, view, replace(waiting, delivery_count=waiting.delivery_count + 1))
        batch = await self._handed_out(run, view, waiting, taken, None if request is None else request.seat)
        if batch is not None:
            emit(
                BatchRedelivered(
                    run=run,
                    batch=taken.batch_id,
                    step=taken.step,
                    delivery_count=taken.delivery_count,
                    trainer=taken.trainer or None,
                )
            )
        return batch

    def _waiting(self, view: RunView, request: BatchRequest | None) -> Lease | None:
        """Return the batch to hand out again first. A rank does not get a batch that it already holds."""
        seat = None if request is None else request.seat
        waiting = (lease for lease in view.leases if self._atropos_delivery.is_redeliverable(lease, view))
        return next((lease for lease in waiting if seat is None or seat.wants(lease)), None)

    async def _handed_out(
        self, run: str, view: RunView, seen: Lease, taken: Lease, seat: ShardRequest | None
    ) -> Batch | None:
        """Take a leased batch again if it can be served unchanged; if not, return its groups to their lanes."""
        if seat is not None:
            seat.check(seen.step)
        groups = await self._batches.groups_of(run, seen.batch_id)
        if groups is None:
            return None
        # A trainer that holds it continues with it, even if the run's batch size has changed.
        is_held = seen.state is LeaseState.HELD and not expired(seen, view.clock_ms)
        size = sum(group.size for group in groups)
        whole = is_held or _is_whole(size, view)
        if seat is not None and whole:
            seat.check_size(size)
        try:
            batch = await self._sharding.read(run, view, taken, groups, seat) if whole else None
        except InvalidField as error:
            raise await self._formation.cannot_shard(run, view, error, seen.batch_id) from None
        if not isinstance(batch, Batch):
            # The batch size has changed, or the batch is damaged: its sound groups go into other batches.
            if await self._batches.dissolve(run, seen, groups, view.policy.history_ms) and seen.replayed:
                await self._reservations.settle(run)
            return None
        return batch if await self._taking.take(batch.lease, self._batches.change(run, seen, batch.lease)) else None


def _is_whole(size: int, view: RunView) -> bool:
    """Return whether the run hands out batches of this size."""
    return view.config is not None and size == view.config.batch_size


def _is_nobody_elses(batch: Batch) -> bool:
    """Return whether only the trainer that should get the batch can have a part of it."""
    return batch.lease.sharding is None or len(batch.lease.sharding.taken) == 1
