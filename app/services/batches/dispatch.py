"""Handing batches out: what waits to be handed out again first, then what the rules choose from the queue."""

import asyncio
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from app.core.batches.diagnosis import unregistered
from app.core.batches.leases import (
    Lease,
    LeasedGroup,
    LeaseState,
    contents_of,
    exhausted,
    expired,
    quarantined,
    returned,
)
from app.core.batches.planning import Decision, decide, with_returned
from app.core.environments.shares import debt_changes
from app.core.errors import InvalidField, RanksDisagree, RunArchived, RunNotFound, RunRewound, SequenceTooLong
from app.core.model import Lane, NotReady, RunView
from app.core.ranks.requests import Seat, awaiting
from app.core.ranks.sharding import Undivided, recorded
from app.events import BatchQuarantined, BatchRedelivered, BatchRelaxed, emit
from app.services.batches.atropos_delivery import AtroposDelivery
from app.services.batches.request import Batch, BatchRequest, BatchResult, Timing
from app.services.batches.retrieval import Retrieval
from app.services.groups.arrivals import Arrivals
from app.services.ranks.lookahead import Lookahead
from app.services.ranks.sharding import BatchSharding
from app.services.replay.mixing import Mixture, ReplayMixing
from app.services.replay.reservations import UseReservations
from app.store.batches.store import BatchStore
from app.store.runs.store import RunStore
from app.store.runs.tick import NOBODY

_MANY_LANES = 128
_RETRY_MS = 10_000  # a trainer whose reply broke off asks again within seconds, or not at all


class Dispatch:
    """The way out.

    Attributes:
        handed_out: Batches, and shards of batches, that this process has put into trainers' hands.
    """

    def __init__(
        self,
        runs: RunStore,
        batches: BatchStore,
        retrieval: Retrieval,
        sharding: BatchSharding,
        window: Lookahead,
        mixing: ReplayMixing,
        reservations: UseReservations,
        atropos_delivery: AtroposDelivery,
        arrivals: Arrivals,
        timing: Timing,
    ) -> None:
        self._runs = runs
        self._batches = batches
        self._retrieval = retrieval
        self._sharding = sharding
        self._window = window
        self._mixing = mixing
        self._reservations = reservations
        self._atropos_delivery = atropos_delivery
        self._arrivals = arrivals
        self._timing = timing
        self.handed_out = 0
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # a run's, while somebody asks

    async def take(self, run: str, request: BatchRequest | None = None) -> BatchResult:
        """Take the next batch for a trainer.

        A batch that waits to be handed out again goes first, the same groups in the same order. Then come new ones,
        by `app.core.batches.planning`.

        Args:
            run: The run's name.
            holder: Who will hold it under a lease; None for a trainer of Atropos. An answer with a batch for one of
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
                # Others take a sender they never heard of for dead, and would hand out what it is sending.
                await self._runs.tick(run, self._atropos_delivery.worker, NOBODY, self._timing.environment_ttl_ms)
            sent = tuple(lease for lease in view.leases if lease.state is LeaseState.SENT) if request is None else ()
            while view.config is not None:  # a reset may come in between
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
        """Find the batch that the same request took before, if that is still held; None if there is none."""
        turn = self._turns.setdefault(run, asyncio.Lock())
        async with turn:  # the first request may be about to take it
            view = await self._runs.view(run)
            mine = request.own_lease(view, self._waiting(view, request))
            if mine is None:
                return None
            batch = await self._handed_out(run, view, mine, request.renewed(mine, view), request.seat)
        return None if batch is None else BatchResult(batch, None)

    async def due(self, run: str, requests: Sequence[BatchRequest]) -> list[int]:
        """Find those for whom there is a batch that was taken before: in their ranks' hands, or to be handed out again.

        Of trainers that take whole batches, no more than there are batches for; and those that get an error because
        their ranks disagree or the run was rewound.

        Returns:
            Their positions, ascending.
        """
        view = await self._runs.view(run)
        free = sum(self._atropos_delivery.waits(lease, view) for lease in view.leases)
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
        """Note that nobody got a batch that was taken to be held: it goes first to whoever asks next."""
        lease = batch.lease
        if _is_nobody_elses(batch):
            await self._batches.change(run, lease, replace(returned(lease), delivery_count=lease.delivery_count - 1))

    async def let_expire(self, run: str, batch: Batch) -> None:
        """Note that a batch's reply broke off: its trainer may ask for it again, but not for as long as its lease."""
        lease = batch.lease
        soon_ms = batch.view.clock_ms + _RETRY_MS
        if soon_ms < lease.deadline_ms and _is_nobody_elses(batch):
            await self._batches.change(run, lease, replace(lease, deadline_ms=soon_ms))

    async def quarantine_exhausted(self, run: str, view: RunView) -> None:
        """Set aside the batches whose leases ran out as often as the run allows."""
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
        """Decide what would happen if a trainer asked now, without handing anything out.

        Groups that are too old to be trained on are dropped, as when a batch is taken.

        Returns:
            What would happen; None if groups were dropped: look again.
        """
        outgrown = [
            one for one in view.leases if self._atropos_delivery.waits(one, view) and not _is_whole(one.size, view)
        ]
        held = [await self._batches.groups_of(run, lease.batch_id) for lease in outgrown]
        returning = [group for groups in held for group in groups or ()]
        decision, _ = await self._decided(run, view, returning)
        fit = decision.plan is None or await self._retrieval.still_fit(run, view, decision.plan)
        return decision if fit else None

    def again_first(self, view: RunView) -> Lease | None:
        """Find the batch that is handed out again next, unchanged."""
        waiting = (
            lease for lease in view.leases if self._atropos_delivery.waits(lease, view) and _is_whole(lease.size, view)
        )
        return next(waiting, None)

    async def _decided(
        self, run: str, view: RunView, returning: Sequence[LeasedGroup] = (), *, mixing: bool = True
    ) -> tuple[Decision, Mixture | None]:
        """Decide on the next batch, and on the groups that it gets from the replay buffer.

        Args:
            run: The run's name.
            view: The run.
            returning: Groups of batches that will be dissolved, because their size is not the run's.
            mixing: Whether it may have groups from the replay buffer.
        """
        lanes = await self._retrieval.lanes(run, view)
        if returning:
            lanes = with_returned(view, lanes, returning)
        mixed = await self._mixing.decide(run, view, lanes, self._timing.environment_ttl_ms) if mixing else None
        return mixed or (await self._unmixed(view, lanes), None)

    async def _unmixed(self, view: RunView, lanes: Sequence[Lane]) -> Decision:
        own = view.policy.relax_after_s
        relax_after_ms = self._timing.relax_after_ms if own is None else round(own * 1000)
        if len(lanes) < _MANY_LANES:
            return decide(view, lanes, self._timing.environment_ttl_ms, relax_after_ms)
        # With a thousand lanes this takes long enough for other requests to notice.
        return await asyncio.to_thread(decide, view, lanes, self._timing.environment_ttl_ms, relax_after_ms)

    async def _next(self, run: str, view: RunView, request: BatchRequest | None) -> Batch | NotReady | None:
        """Hand out what was taken before, else a new batch; None if the world moved on meanwhile."""
        waiting = self._waiting(view, request)
        mine = None if request is None else request.own_lease(view, waiting)
        if request is not None and mine is not None:
            return await self._handed_out(run, view, mine, request.renewed(mine, view), request.seat)
        await self.quarantine_exhausted(run, view)
        if waiting is None:
            return await self._new(run, view, request)
        taken = self._lease(view, request, replace(waiting, delivery_count=waiting.delivery_count + 1))
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
        """Find the batch that is to be handed out again first; a rank wants none that it has in hand."""
        seat = None if request is None else request.seat
        waiting = (lease for lease in view.leases if self._atropos_delivery.waits(lease, view))
        return next((lease for lease in waiting if seat is None or seat.wants(lease)), None)

    async def _handed_out(self, run: str, view: RunView, seen: Lease, taken: Lease, seat: Seat | None) -> Batch | None:
        """Take a leased batch again, if it can be served as it was; else its groups go back to their lanes."""
        if seat is not None:
            seat.check(seen.step)
        groups = await self._batches.groups_of(run, seen.batch_id)
        if groups is None:
            return None
        # Who has it goes on with it, whatever the run's batch size is by now.
        is_held = seen.state is LeaseState.HELD and not expired(seen, view.clock_ms)
        size = sum(group.size for group in groups)
        whole = is_held or _is_whole(size, view)
        if seat is not None and whole:
            seat.check_size(size)
        try:
            batch = await self._sharding.read(run, view, taken, groups, seat) if whole else None
        except InvalidField as error:
            raise await self._cannot_divide(run, view, error, seen.batch_id) from None
        if not isinstance(batch, Batch):
            # Registered anew with another size, or damaged: its sound groups are packed into other batches.
            if await self._batches.dissolve(run, seen, groups, view.policy.history_ms) and seen.replayed:
                await self._reservations.settle(run)
            return None
        return batch if await self._have(batch.lease, self._batches.change(run, seen, batch.lease)) else None

    def _lease(self, view: RunView, request: BatchRequest | None, batch: Lease) -> Lease:
        """Put a batch into somebody's hands."""
        if request is None:
            return self._atropos_delivery.lease(batch)
        return replace(
            returned(batch),
            state=LeaseState.HELD,
            worker=self._atropos_delivery.worker,
            lease_id=uuid.uuid4().hex,
            deadline_ms=request.deadline_ms(view),
            request_id=request.request_id,
            trainer=request.trainer,
        )

    async def _new(
        self, run: str, view: RunView, request: BatchRequest | None, *, mixing: bool = True
    ) -> Batch | NotReady | None:
        """Plan and commit a batch; None if the world moved on meanwhile."""
        seat = None if request is None else request.seat
        if seat is not None and view.config is not None:
            seat.check(view.step + 1)
            seat.check_size(view.config.batch_size)
        self._arrivals.note(run, view)
        decision, mixture = await self._decided(run, view, mixing=mixing)
        if decision.conflict_since_ms != view.conflict_since_ms:
            await self._runs.note_conflict(run, decision.conflict_since_ms)
        if decision.unfilled != view.unfilled:
            await self._runs.note_unfilled(run, decision.unfilled)
        if decision.plan is None:
            if decision.scarce != view.scarce:
                await self._runs.note_scarce(run, decision.scarce)
            why = decision.not_ready
            return why if seat is None or why is None else awaiting(why, view.leases)
        plan, delays = await self._window.choose(run, view, decision.plan, None if seat is None else seat.split)
        replayed = () if mixture is None else mixture.groups
        retrieved = await self._retrieval.leasable(run, view, plan, replayed)
        if retrieved is None:
            return None
        new = Lease(
            batch_id=uuid.uuid4().hex,
            state=LeaseState.RETURNED,
            worker="",
            delivery_count=1,
            step=view.step + 1,
            relaxed=plan.relaxed,
            contents=contents_of(retrieved.groups),
            replayed=contents_of(replayed),
            debts=debt_changes(view.debts, decision.debts),
        )
        try:
            batch = await self._sharding.divide(view, self._lease(view, request, new), retrieved, seat)
        except InvalidField as error:
            if mixture is None:
                raise await self._cannot_divide(run, view, error, None) from None
            # Ranks once had other micro-batches or costs: what was trained on then must not keep them from the rest.
            return await self._new(run, view, request, mixing=False)
        if not isinstance(batch, Batch):
            await self._retrieval.drop(run, view, batch.reasons)
            await self._mixing.retire_damaged(run, batch.reasons)
            return None
        if mixture is not None and not await self._mixing.reserve(run, batch.lease, mixture):
            return None
        if request is not None and request.chosen is not None:
            request.chosen(batch)
        commit = self._batches.commit(
            run,
            batch.lease,
            retrieved.groups,
            epoch=view.epoch,
            policy_version=view.policy_version,
            debts=decision.debts,
            clock_ms=view.clock_ms,
            balance=None if batch.lease.shards is None else recorded(view.balance, batch.lease.shards),
            delays=delays,
            scarce=decision.scarce,
        )
        if await self._have(batch.lease, commit):
            if plan.relaxed:
                owed = {environment: sequences for environment, sequences in decision.debts.items() if sequences > 0}
                emit(BatchRelaxed(run=run, batch=new.batch_id, step=new.step, owed_sequences=owed))
            return batch
        if mixture is not None:
            await self._reservations.release(run, batch.lease.batch_id)
        return None

    async def _cannot_divide(self, run: str, view: RunView, error: InvalidField, batch_id: str | None) -> InvalidField:
        """Store which group prevents the division of a batch, and return the error for its ranks.

        Args:
            run: The run's name.
            view: The run.
            error: What is wrong.
            batch_id: The batch, if it was taken before; None: a new one.
        """
        if not isinstance(error, SequenceTooLong):
            return error
        way_out = "delete the group" if batch_id is None else f"give batch {batch_id} back, then delete the group"
        detail = f"{error.message}; ask for larger micro-batches, or {way_out}"
        undivided = Undivided(error.group_id, batch_id, detail)
        if view.undivided != undivided:
            await self._runs.note_undivided(run, undivided)
        return SequenceTooLong(detail, error.location, error.group_id)

    async def _have(self, lease: Lease, taking: Coroutine[None, None, bool]) -> bool:
        """Take a lease; False if the world moved on meanwhile."""
        # One that is not on its way to a trainer of Atropos is held until its deadline, wherever its reply goes.
        have = await (self._atropos_delivery.begin(lease, taking) if lease.state is LeaseState.SENDING else taking)
        self.handed_out += have
        return have


def _is_whole(size: int, view: RunView) -> bool:
    """Whether the run hands out batches of this size."""
    return view.config is not None and size == view.config.batch_size


def _is_nobody_elses(batch: Batch) -> bool:
    """Whether nobody but who should have got it can have a part of a batch."""
    return batch.lease.shards is None or len(batch.lease.shards.taken) == 1
