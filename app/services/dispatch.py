"""Handing batches out: what waits to be served again first, then what the rules choose from the queue."""

import asyncio
import os
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from app.core.decision import Decision, decide
from app.core.model import (
    BatchPlan,
    Blocker,
    DropReason,
    Lane,
    Lease,
    LeasedGroup,
    LeaseState,
    NotReady,
    PlannedGroup,
    RunView,
)
from app.liveness import place, process_exists
from app.store.batches import BatchStore
from app.store.codec import checksum
from app.store.groups import GroupStore
from app.store.runs import RunStore

_WORKER_SILENT_MS = 15_000
_MANY_LANES = 128


@dataclass(frozen=True, slots=True)
class Timing:
    """The run's patience, milliseconds on the run clock."""

    environment_ttl_ms: int
    relax_after_ms: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to send: its lease, and its groups' columns in training order."""

    lease: Lease
    payloads: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a trainer that asked gets.

    Attributes:
        batch: The batch, or None.
        not_ready: Why there is none, or None.
        acknowledges: The leases whose batches had reached the trainer before it asked: once this answer has
            reached it too, they are delivered.
    """

    batch: Batch | None
    not_ready: NotReady | None
    acknowledges: tuple[Lease, ...] = field(default=())


class Dispatch:
    """The way out."""

    def __init__(self, runs: RunStore, groups: GroupStore, batches: BatchStore, timing: Timing) -> None:
        self._runs = runs
        self._groups = groups
        self._batches = batches
        self._timing = timing
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # a run's, while somebody asks
        self._sending: set[Lease] = set()  # what Redis says we are sending, and we are
        self._place = place()
        self.worker = f"{self._place}/{os.getpid()}/{uuid.uuid4().hex[:8]}"

    async def take(self, run: str) -> Answer:
        """Take the next batch for the run's trainer.

        A batch that broke off on its way, or that a former trainer did not acknowledge, is served again first,
        the same groups in the same order. Then come new ones, by `app.core.decision`.

        An answer with a batch must come to an end: `finish` or `break_off` it, whatever happens.
        """
        # Trainers that ask at the same time would plan the same batch; in one process they can simply queue up.
        turn = self._turns.setdefault(run, asyncio.Lock())
        async with turn:
            view = await self._runs.view(run)
            if view.config is None:
                return Answer(None, unregistered())
            if not view.started:
                await self._runs.start(run)
            if self.worker not in view.workers:
                # Others take a sender they never heard of for dead, and would hand out what it is sending.
                await self._runs.tick(run, self.worker, ())
            sent = tuple(lease for lease in view.leases if lease.state is LeaseState.SENT)
            while view.config is not None:  # a reset may come in between
                outcome: Batch | NotReady | None = await self._again(run, view) or await self._new(run, view)
                if isinstance(outcome, Batch):
                    return Answer(outcome, None, sent)
                if isinstance(outcome, NotReady):
                    return Answer(None, outcome, sent)
                view = await self._runs.view(run)
        return Answer(None, unregistered())

    async def finish(self, run: str, answer: Answer) -> None:
        """Note that an answer was written out whole: it acknowledges the batches that had come before."""
        if answer.batch is not None:
            try:
                await self._batches.mark_sent(run, answer.batch.lease)
            finally:
                # Not marked, because Redis stayed away: then it is served again. Better twice than not at all.
                self._sending.discard(answer.batch.lease)
        if answer.acknowledges and await self._batches.acknowledge(run, answer.acknowledges):
            await self._groups.sweep(run)

    async def break_off(self, run: str, batch: Batch) -> None:
        """Note that a batch did not reach its trainer, although it may be marked as sent: it is served again first."""
        try:
            await self._batches.give_back(run, batch.lease)
            await self._batches.give_back(run, replace(batch.lease, state=LeaseState.SENT))
        finally:
            self._sending.discard(batch.lease)

    async def give_back_lost(self, run: str, view: RunView) -> None:
        """Give back the leases this process is said to be sending and is not: Redis did what it never answered.

        Any API process can serve them then; before, others see that we live, and leave them alone.
        """
        for lease in view.leases:
            if lease.state is LeaseState.SENDING and lease.worker == self.worker and self.waits(lease, view):
                await self._batches.give_back(run, lease)

    async def explain(self, run: str, view: RunView) -> Decision:
        """Decide what would happen if a trainer asked now, without doing it."""
        lanes = await self._lanes(run, view)
        if len(lanes) < _MANY_LANES:
            return decide(view, lanes, self._timing.environment_ttl_ms, self._timing.relax_after_ms)
        # With a thousand lanes this takes long enough for other requests to notice.
        return await asyncio.to_thread(
            decide, view, lanes, self._timing.environment_ttl_ms, self._timing.relax_after_ms
        )

    async def _lanes(self, run: str, view: RunView) -> list[Lane]:
        """Read each lane's heads: no more of them than fit into one batch."""
        batch_size = 0 if view.config is None else view.config.batch_size
        return await self._groups.heads(
            run, {lane: (queued, max(1, batch_size // lane[1])) for lane, queued in view.lanes.items()}
        )

    async def _again(self, run: str, view: RunView) -> Batch | None:
        for lease in view.leases:
            if not self.waits(lease, view):
                continue
            groups = await self._batches.groups_of(run, lease)
            if groups is None:
                continue
            whole = view.config is not None and sum(group.size for group in groups) == view.config.batch_size
            payloads, damage = await self._payloads(run, groups) if whole else ((), {})
            if damage or not whole:
                # Registered anew with another size, or damaged: its sound groups are packed into other batches.
                await self._batches.dissolve(run, lease, groups)
                continue
            claimed = replace(lease, state=LeaseState.SENDING, worker=self.worker, deliveries=lease.deliveries + 1)
            if await self._begin_sending(claimed, self._batches.change(run, lease, claimed)):
                return Batch(claimed, payloads)
        return None

    async def _begin_sending(self, lease: Lease, take: Coroutine[None, None, bool]) -> bool:
        """Take a lease: we are sending it from just before Redis can know until its answer has ended.

        If we never hear whether we have it, we are not sending it: should we have it, it `waits` to be served again.
        """
        self._sending.add(lease)
        taken = False
        try:
            taken = await take
        finally:
            if not taken:
                self._sending.discard(lease)
        return taken

    def waits(self, lease: Lease, view: RunView) -> bool:
        """Whether a lease's batch waits to be served again: returned, or nobody is sending it any more."""
        if lease.state is LeaseState.SENDING:
            return not self._is_being_sent(lease, view)
        return lease.state is LeaseState.RETURNED

    def _is_being_sent(self, lease: Lease, view: RunView) -> bool:
        return lease in self._sending if lease.worker == self.worker else self._alive(lease.worker, view)

    def _alive(self, worker: str, view: RunView) -> bool:
        there, pid, _ = worker.rsplit("/", 2)
        if there == self._place and (int(pid) == os.getpid() or not process_exists(int(pid))):
            return False
        ticked = view.workers.get(worker)
        return ticked is not None and view.clock_ms - ticked <= _WORKER_SILENT_MS

    async def _new(self, run: str, view: RunView) -> Batch | NotReady | None:
        """Plan and commit a batch; None if the world moved on meanwhile."""
        decision = await self.explain(run, view)
        if decision.conflict_since_ms != view.conflict_since_ms:
            await self._runs.note_conflict(run, decision.conflict_since_ms)
        if decision.plan is None:
            return decision.not_ready
        groups = await self._leasable(run, decision.plan)
        if groups is None:
            return None
        payloads, damage = await self._payloads(run, groups)
        if damage:
            for group, reason in damage.items():
                planned = PlannedGroup(group.arrival, group.group_id, group.environment, group.size)
                await self._groups.drop(run, planned, reason)
            return None
        relaxed = decision.plan.relaxed
        lease = Lease(uuid.uuid4().hex, LeaseState.SENDING, self.worker, 1, view.step + 1, relaxed)
        commit = self._batches.commit(
            run, lease, groups, epoch=view.epoch, debts=decision.debts, clock_ms=view.clock_ms
        )
        return Batch(lease, payloads) if await self._begin_sending(lease, commit) else None

    async def _leasable(self, run: str, plan: BatchPlan) -> list[LeasedGroup] | None:
        entries = await self._groups.entries(run, [group.group_id for group in plan.groups])
        groups = []
        for group, entry in zip(plan.groups, entries, strict=True):
            if entry is None:
                # Taken by somebody else meanwhile; were it still in its lane, it would be chosen again for ever.
                await self._groups.drop(run, group, DropReason.PAYLOAD_LOST)
                return None
            groups.append(
                LeasedGroup(
                    group.group_id,
                    group.arrival,
                    group.environment,
                    group.size,
                    entry.payload_bytes,
                    entry.checksum,
                    entry.accepted_ms,
                )
            )
        return groups

    async def _payloads(
        self, run: str, groups: Sequence[LeasedGroup]
    ) -> tuple[tuple[bytes, ...], dict[LeasedGroup, DropReason]]:
        """Read payloads, and say which are missing or not what was stored."""
        payloads = await self._groups.payloads(run, [group.group_id for group in groups])
        pairs = zip(groups, payloads, strict=True)
        damage = {group: reason for group, payload in pairs if (reason := _damage(group, payload))}
        return tuple(payload for payload in payloads if payload is not None), damage


def _damage(group: LeasedGroup, payload: bytes | None) -> DropReason | None:
    if payload is None:
        return DropReason.PAYLOAD_LOST
    return None if checksum(payload) == group.checksum else DropReason.CORRUPT


def unregistered() -> NotReady:
    """Say that the run has no trainer yet."""
    return NotReady(Blocker.NOT_REGISTERED, "no trainer has registered with this run: POST /register")
