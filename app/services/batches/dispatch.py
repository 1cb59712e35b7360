"""Hand out batches: first batches that wait to be handed out again, then new batches from the queue."""

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from app.core.batches.diagnosis import is_about_old_groups, refusal_of
from app.core.batches.leases import (
    Lease,
    LeasedGroup,
    as_quarantined,
    as_returned,
    is_exhausted,
    is_expired,
    retry_deadline_ms,
)
from app.core.batches.planning import Decision
from app.core.model import NotReady
from app.core.ranks.requests import ShardRequest
from app.core.runs.view import QueueView
from app.events import BatchQuarantined, BatchRedelivered, emit
from app.services.batches.atropos_delivery import AtroposDelivery
from app.services.batches.formation import BatchFormation
from app.services.batches.lease_taking import LeaseTaking
from app.services.batches.old_groups import DroppingAttempts
from app.services.batches.request import OF_ATROPOS, BatchRequest, BatchResult, OutgoingBatch, ReadAgain
from app.services.batches.retrieval import Retrieval
from app.services.long_poll import AttemptLock, LongPoll, WaitPolicy
from app.services.ranks.sharding import BatchSharding
from app.services.replay.reservations import UseReservations
from app.services.turns import Turns
from app.store.batches.store import BatchStore
from app.store.redis.compare_and_swap import Attempts
from app.store.redis.notifications import LEASE_NEWS, Listen
from app.store.runs.processes import ProcessStore
from app.store.runs.store import RunStore
from lachesis.wire.errors import InvalidField, RanksDisagree, RunArchived, RunNotFound, RunRewound, StepMismatch

_OWN_ERRORS = (InvalidField, RanksDisagree, RunRewound, StepMismatch)  # they concern one waiting request only
_NOTE_WAITING_EVERY_MS = 10_000


class Dispatch:
    """Hands out batches."""

    def __init__(
        self,
        processes: ProcessStore,
        runs: RunStore,
        batches: BatchStore,
        retrieval: Retrieval,
        sharding: BatchSharding,
        formation: BatchFormation,
        reservations: UseReservations,
        taking: LeaseTaking,
        atropos_delivery: AtroposDelivery,
        turns: Turns,
    ) -> None:
        self._processes = processes
        self._runs = runs
        self._batches = batches
        self._retrieval = retrieval
        self._sharding = sharding
        self._formation = formation
        self._reservations = reservations
        self._taking = taking
        self._atropos_delivery = atropos_delivery
        self._turns = turns
        self._attempt_locks: WeakValueDictionary[str, AttemptLock] = WeakValueDictionary()  # by run

    def long_poll(self, listen: Listen) -> LongPoll[BatchRequest, BatchResult]:
        """Build the queue of requests that wait for a batch."""
        policy = WaitPolicy(
            attempt=self._attempt,
            overtaking=self.due,
            found=_has_batch,
            release=self._release,
            own_errors=_OWN_ERRORS,
            overtaking_news=LEASE_NEWS,
            turns=self._turns,
            shares=_is_of_a_rank,
        )
        return LongPoll(policy, listen)

    @property
    def handed_out(self) -> int:
        """Return the number of batches, and shards of batches, that this process has handed out."""
        return self._taking.handed_out

    async def take(self, run: str, request: BatchRequest = OF_ATROPOS) -> BatchResult:
        """Take the next batch for a trainer.

        A batch that waits to be handed out again goes first, with the same groups in the same order. Without such a
        batch, `app.core.batches.planning` plans a new batch.

        Args:
            run: The run's name.
            request: The request of the trainer that will hold the lease. `OF_ATROPOS` is that of a trainer of Atropos.
                The caller ends each answer with a batch for such a trainer, after errors too: with
                `AtroposDelivery.finish` or `AtroposDelivery.break_off`.

        Raises:
            RunArchived: The run is archived.
            RunNotFound: The run does not exist, and the request needs a lease.
            RunRewound: The run was rewound after the trainer began.
            StepMismatch: The run has not come to the step of the rank that asks.
        """
        result = await self._take(run, request, compete=True)
        assert result is not None, "it does not give way"  # noqa: S101
        return result

    async def _take(self, run: str, request: BatchRequest, *, compete: bool) -> BatchResult | None:
        """Take as `take`. None means that another process took the batch, and ``compete`` is False."""
        # Concurrent requests would plan the same batch. Within one process they wait for each other.
        async with self._attempt_lock(run).attempt():
            if not request.of_atropos:
                await self._turns.look(run)
            view = await self._runs.queue(run)
            if view.config is not None:
                await self._note_request(run, view)
            sent = tuple(lease for lease in view.leases if lease.state == "sent") if request.of_atropos else ()
            attempts, dropping = Attempts("hand out a batch", run), DroppingAttempts(self._runs, run)
            while view.config is not None and attempts.again():  # a reset may happen in between
                match await self._hand_out(run, view, request):
                    case OutgoingBatch() as batch:
                        return BatchResult(batch, None, sent)
                    case NotReady() as why if not is_about_old_groups(why) or await dropping.was_last():
                        await self._note_waiting(run, view)
                        return BatchResult(None, why, sent)
                    case ReadAgain.CONFLICT:
                        self._turns.note_others(run)
                        if not compete and not self._turns.is_held(run):
                            return None
                view = await self._runs.queue(run)  # groups that were too old or damaged are gone now
        if not request.of_atropos:
            raise RunNotFound.named(run)
        return BatchResult(None, refusal_of(view))

    async def _note_request(self, run: str, view: QueueView) -> None:
        """Note that a trainer asks: the run has started, and this process lives."""
        if not view.started:
            await self._runs.start(run)
        if self._atropos_delivery.seems_dead(view):
            await self._processes.beat(self._atropos_delivery.worker)

    async def _hand_out(self, run: str, view: QueueView, request: BatchRequest) -> OutgoingBatch | NotReady | ReadAgain:
        """Hand out what the run has for this request.

        Raises:
            RunArchived: The run is archived.
            RunRewound, StepMismatch: As `BatchRequest.check`.
        """
        request.check(view)
        if view.policy.archived:
            raise RunArchived(f"run {run} is archived: it hands out no batches")
        found = await self._next(run, view, request)
        if isinstance(found, OutgoingBatch) and view.undivided is not None and request.shard_request is not None:
            await self._runs.note_undivided(run, None)
        return found

    async def _note_waiting(self, run: str, view: QueueView) -> None:
        """Keep the run awake while a trainer waits: its history then says what the trainer waits for."""
        if view.waited_ms is None or view.clock_ms - view.waited_ms >= _NOTE_WAITING_EVERY_MS:
            await self._runs.note_waiting(run)

    async def due(self, run: str, requests: Sequence[BatchRequest], *, ahead: bool = False) -> list[int]:
        """Return the requests that can be answered with a batch that was taken before.

        The trainer of such a request, or a rank of the trainer, holds the batch, or the batch waits to be handed out
        again. A whole batch that waits answers one request. The result includes requests whose answer is an error:
        their ranks disagree, or the run was rewound or created again.

        Args:
            run: The run's name.
            requests: The requests, in the order of arrival.
            ahead: Whether earlier requests wait, which get the whole batches that wait.

        Returns:
            Positions in ``requests``, ascending.
        """
        async with self._attempt_lock(run).attempt():  # the first attempt of a repeated request may be in progress
            view = await self._runs.queue(run)
        redeliverable = self._redeliverable(view)
        may_begin = refusal_of(view) is None or view.policy.archived  # an archived run answers with an error
        free = 0 if ahead else len(redeliverable)
        found = []
        for position, request in enumerate(requests):
            try:
                request.check(view)
                redelivery = _first_wanted(redeliverable, request, view.clock_ms)
                mine = request.own_lease(view, redelivery)
            except (RanksDisagree, RunRewound, StepMismatch):
                found.append(position)
                continue
            if mine is not None or (
                may_begin and redelivery is not None and (request.shard_request is not None or free > 0)
            ):
                found.append(position)
                free -= mine is None and request.shard_request is None
        return found

    async def hand_on(self, run: str, batch: OutgoingBatch) -> None:
        """Record that a taken batch reached no trainer. The next trainer that asks gets the batch first.

        The trainer of a repeated batch may have it from the first reply. Then this does the same as `let_expire`.
        """
        lease = batch.lease
        if batch.is_repeated:
            await self.let_expire(run, batch)
        elif _has_one_receiver(batch):
            await self._batches.change(run, lease, replace(as_returned(lease), delivery_count=lease.delivery_count - 1))

    async def let_expire(self, run: str, batch: OutgoingBatch) -> None:
        """Record that the reply with a batch broke off, and shorten the lease. Until then the trainer may ask again.

        The lease is never shorter than before a repeated request: the trainer may train on an earlier reply.
        """
        lease = batch.lease
        soon_ms = retry_deadline_ms((await self._runs.queue(run)).clock_ms)
        if batch.held_until_ms <= soon_ms < lease.deadline_ms and _has_one_receiver(batch):
            await self._batches.change(run, lease, replace(lease, deadline_ms=soon_ms))

    async def quarantine_exhausted(self, run: str, view: QueueView) -> None:
        """Quarantine the batches whose last allowed lease has expired."""
        for lease in view.leases:
            if not is_exhausted(lease, view.clock_ms, view.policy.max_deliveries):
                continue
            if await self._batches.change(run, lease, as_quarantined(lease)):
                emit(
                    BatchQuarantined(
                        run=run, batch=lease.batch_id, step=lease.step, delivery_count=lease.delivery_count
                    )
                )

    async def plan_next(self, run: str, view: QueueView) -> Decision | None:
        """Plan the next batch for a trainer that asked now, without handing it out.

        Groups that are too old to be trained on are dropped, as when a batch is taken.

        Returns:
            The decision. None means that groups were dropped: read the run again.
        """
        outgrown = [lease for lease in self._redeliverable(view) if not _has_batch_size(lease.size, view)]
        held = [await self._batches.groups_of(run, lease.batch_id) for lease in outgrown]
        returning = [group for groups in held for group in groups or ()]
        decision, _ = await self._formation.plan_next(run, view, returning)
        fit = decision.plan is None or await self._retrieval.still_fit(run, view, decision.plan)
        return decision if fit else None

    def next_redelivery(self, view: QueueView) -> Lease | None:
        """Return the lease of the batch that is handed out again next, without a change."""
        return next((lease for lease in self._redeliverable(view) if _has_batch_size(lease.size, view)), None)

    async def _next(self, run: str, view: QueueView, request: BatchRequest) -> OutgoingBatch | NotReady | ReadAgain:
        """Hand out a batch that was taken before, else a new batch.

        While serving is paused, a request gets only what it holds: its batch again, or the shard of a batch that other
        ranks have.
        """
        redelivery = _first_wanted(self._redeliverable(view), request, view.clock_ms)
        mine = request.own_lease(view, redelivery)
        if mine is not None:
            again = await self._redeliver(run, view, mine, request.renewed(mine, view), request.shard_request)
            return replace(again, held_until_ms=mine.deadline_ms) if isinstance(again, OutgoingBatch) else again
        await self.quarantine_exhausted(run, view)
        refusal = refusal_of(view)
        if refusal is not None:
            return refusal
        if redelivery is None:
            return await self._formation.form(run, view, request)
        taken = self._taking.lease_for(request, view, replace(redelivery, delivery_count=redelivery.delivery_count + 1))
        batch = await self._redeliver(run, view, redelivery, taken, request.shard_request)
        if isinstance(batch, OutgoingBatch):
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

    async def _attempt(
        self, run: str, request: BatchRequest, ahead: Sequence[BatchRequest], *, compete: bool
    ) -> BatchResult | None:
        if ahead and not await self.due(run, [request], ahead=True):
            return None
        return await self._take(run, request, compete=compete)

    async def _release(self, run: str, result: BatchResult) -> None:
        if result.batch is not None:
            await self.hand_on(run, result.batch)

    def _attempt_lock(self, run: str) -> AttemptLock:
        return self._attempt_locks.setdefault(run, AttemptLock())

    def _redeliverable(self, view: QueueView) -> list[Lease]:
        return [lease for lease in view.leases if self._atropos_delivery.is_redeliverable(lease, view)]

    async def _redeliver(
        self, run: str, view: QueueView, seen: Lease, taken: Lease, shard_request: ShardRequest | None
    ) -> OutgoingBatch | ReadAgain:
        """Hand out a leased batch again, unchanged. If that is impossible, return its groups to their lanes."""
        if shard_request is not None:
            shard_request.check(seen.step)
        groups = await self._batches.groups_of(run, seen.batch_id)
        if groups is None:
            return ReadAgain.CONFLICT
        # A trainer that holds the batch continues with it, even if the run's batch size has changed.
        is_held = seen.state == "held" and not is_expired(seen, view.clock_ms)
        size = sum(group.size for group in groups)
        if not is_held and not _has_batch_size(size, view):
            return await self._dissolve(run, view, seen, groups)
        if shard_request is not None:
            shard_request.check_size(size)
        try:
            batch = await self._sharding.read(run, view, taken, groups, shard_request)
        except InvalidField as error:
            raise await self._formation.cannot_shard(run, view, error, seen.batch_id) from None
        if not isinstance(batch, OutgoingBatch):
            return await self._dissolve(run, view, seen, groups)
        change = self._batches.change(run, seen, batch.lease, view.epoch)
        return batch if await self._taking.take(run, view, batch.lease, change) else ReadAgain.CONFLICT

    async def _dissolve(self, run: str, view: QueueView, lease: Lease, groups: Sequence[LeasedGroup]) -> ReadAgain:
        """Return the groups of a batch to their lanes. The intact groups go into other batches."""
        if not await self._batches.dissolve(run, lease, groups, view.policy.remembered_ms):
            return ReadAgain.CONFLICT
        if lease.replayed:
            await self._reservations.settle(run)
        return ReadAgain.CLEANED_UP


def _has_batch(result: BatchResult) -> bool:
    return result.batch is not None


def _is_of_a_rank(request: BatchRequest) -> bool:
    return request.shard_request is not None


def _first_wanted(redeliverable: Sequence[Lease], request: BatchRequest, clock_ms: int) -> Lease | None:
    """Return the batch to hand out again first. A rank gets only batches that it does not hold yet."""
    shard_request = request.shard_request
    wanted = (lease for lease in redeliverable if shard_request is None or shard_request.wants(lease, clock_ms))
    return next(wanted, None)


def _has_batch_size(size: int, view: QueueView) -> bool:
    """Return whether the run hands out batches of this size."""
    return view.config is not None and size == view.batch_size


def _has_one_receiver(batch: OutgoingBatch) -> bool:
    """Return whether the receiving trainer or rank is the only one that can have a part of the batch."""
    return batch.lease.sharding is None or len(batch.lease.sharding.taken) == 1
