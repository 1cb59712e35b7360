"""Handing batches out: what waits to be handed out again first, then what the rules choose from the queue."""

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import replace
from weakref import WeakValueDictionary

from app.core.decision import Decision, decide
from app.core.errors import RunArchived, RunNotFound
from app.core.leasing import Lease, LeaseState, contents_of, exhausted, quarantined, returned
from app.core.model import Blocker, NotReady, RunView
from app.services.arrivals import Arrivals
from app.services.handout import Answer, Batch, Holder, Timing
from app.services.retrieval import Retrieval, history_ms
from app.services.sending import Sending
from app.store.batches import BatchStore
from app.store.runs import RunStore

_MANY_LANES = 128
_RETRY_MS = 10_000  # a trainer whose reply broke off asks again within seconds, or not at all


class Dispatch:
    """The way out."""

    def __init__(
        self,
        runs: RunStore,
        batches: BatchStore,
        retrieval: Retrieval,
        sending: Sending,
        arrivals: Arrivals,
        timing: Timing,
    ) -> None:
        self._runs = runs
        self._batches = batches
        self._retrieval = retrieval
        self._sending = sending
        self._arrivals = arrivals
        self._timing = timing
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # a run's, while somebody asks

    async def take(self, run: str, holder: Holder | None = None) -> Answer:
        """Take the next batch for a trainer.

        A batch that waits to be handed out again goes first, the same groups in the same order. Then come new ones,
        by `app.core.decision`.

        Args:
            run: The run's name.
            holder: Who will hold it under a lease; None for a trainer of Atropos. An answer with a batch for one of
                those must come to an end, whatever happens: `Sending.finish` or `Sending.break_off`.

        Raises:
            RunArchived: The run hands out nothing.
            RunNotFound: There is no run for a lease to be of.
        """
        # Trainers that ask at the same time would plan the same batch; in one process they can simply queue up.
        turn = self._turns.setdefault(run, asyncio.Lock())
        async with turn:
            view = await self._runs.view(run)
            if view.config is not None and not view.started:
                await self._runs.start(run)
            if view.config is not None and self._sending.worker not in view.workers:
                # Others take a sender they never heard of for dead, and would hand out what it is sending.
                await self._runs.tick(run, self._sending.worker, ())
            sent = tuple(lease for lease in view.leases if lease.state is LeaseState.SENT) if holder is None else ()
            while view.config is not None:  # a reset may come in between
                if view.policy.archived:
                    raise RunArchived(f"run {run} is archived: it hands out no batches")
                outcome = await self._next(run, view, holder)
                if isinstance(outcome, Batch):
                    return Answer(outcome, None, sent)
                if isinstance(outcome, NotReady):
                    return Answer(None, outcome, sent)
                view = await self._runs.view(run)
        if holder is not None:
            raise RunNotFound(f"there is no run {run}")
        return Answer(None, unregistered())

    async def again(self, run: str, holder: Holder) -> Answer | None:
        """Find the batch that the same request took before, if that is still held; None if there is none."""
        turn = self._turns.setdefault(run, asyncio.Lock())
        async with turn:  # the first request may be about to take it
            view = await self._runs.view(run)
            mine = holder.taken_before(view)
            if mine is None:
                return None
            batch = await self._handed_out(run, view, mine, replace(mine, deadline_ms=holder.deadline_ms(view)))
        return None if batch is None else Answer(batch, None)

    async def hand_on(self, run: str, batch: Batch) -> None:
        """Note that nobody got a batch that was taken to be held: it goes first to whoever asks next."""
        lease = batch.lease
        await self._batches.change(run, lease, replace(returned(lease), deliveries=lease.deliveries - 1))

    async def let_expire(self, run: str, batch: Batch) -> None:
        """Note that a batch's reply broke off: its trainer may ask for it again, but not for as long as its lease."""
        lease = batch.lease
        soon_ms = batch.view.clock_ms + _RETRY_MS
        if soon_ms < lease.deadline_ms:
            await self._batches.change(run, lease, replace(lease, deadline_ms=soon_ms))

    async def quarantine_exhausted(self, run: str, view: RunView) -> None:
        """Set aside the batches whose leases ran out as often as the run allows."""
        for lease in view.leases:
            if exhausted(lease, view.clock_ms, view.policy.max_deliveries):
                await self._batches.change(run, lease, quarantined(lease))

    async def decision(self, run: str, view: RunView) -> Decision:
        """Decide what would happen if a trainer asked now, without doing it."""
        lanes = await self._retrieval.lanes(run, view)
        own = view.policy.relax_after_s
        relax_after_ms = self._timing.relax_after_ms if own is None else round(own * 1000)
        if len(lanes) < _MANY_LANES:
            return decide(view, lanes, self._timing.environment_ttl_ms, relax_after_ms)
        # With a thousand lanes this takes long enough for other requests to notice.
        return await asyncio.to_thread(decide, view, lanes, self._timing.environment_ttl_ms, relax_after_ms)

    async def _next(self, run: str, view: RunView, holder: Holder | None) -> Batch | NotReady | None:
        """Hand out what was taken before, else a new batch; None if the world moved on meanwhile."""
        if holder is not None and (mine := holder.taken_before(view)) is not None:
            return await self._handed_out(run, view, mine, replace(mine, deadline_ms=holder.deadline_ms(view)))
        await self.quarantine_exhausted(run, view)
        waiting = next((lease for lease in view.leases if self._sending.waits(lease, view)), None)
        if waiting is None:
            return await self._new(run, view, holder)
        taken = self._lease(view, holder, replace(waiting, deliveries=waiting.deliveries + 1))
        return await self._handed_out(run, view, waiting, taken)

    async def _handed_out(self, run: str, view: RunView, seen: Lease, taken: Lease) -> Batch | None:
        """Take a leased batch again, if it can be served as it was; else its groups go back to their lanes."""
        groups = await self._batches.groups_of(run, seen.batch_id)
        if groups is None:
            return None
        whole = view.config is not None and sum(group.size for group in groups) == view.config.batch_size
        payloads, damage = await self._retrieval.payloads(run, groups) if whole else ((), {})
        if damage or not whole:
            # Registered anew with another size, or damaged: its sound groups are packed into other batches.
            await self._batches.dissolve(run, seen, groups, history_ms(view))
            return None
        change = self._batches.change(run, seen, taken)
        return Batch(taken, tuple(groups), payloads, view) if await self._have(taken, change) else None

    def _lease(self, view: RunView, holder: Holder | None, batch: Lease) -> Lease:
        """Put a batch into somebody's hands."""
        if holder is None:
            return self._sending.lease(batch)
        return replace(
            batch,
            state=LeaseState.HELD,
            worker=self._sending.worker,
            lease_id=uuid.uuid4().hex,
            deadline_ms=holder.deadline_ms(view),
            request_id=holder.request_id,
            trainer=holder.trainer,
        )

    async def _new(self, run: str, view: RunView, holder: Holder | None) -> Batch | NotReady | None:
        """Plan and commit a batch; None if the world moved on meanwhile."""
        self._arrivals.note(run, view)
        decision = await self.decision(run, view)
        if decision.conflict_since_ms != view.conflict_since_ms:
            await self._runs.note_conflict(run, decision.conflict_since_ms)
        if decision.plan is None:
            return decision.not_ready
        groups = await self._retrieval.leasable(run, view, decision.plan)
        if groups is None:
            return None
        payloads, damage = await self._retrieval.payloads(run, groups)
        if damage:
            await self._retrieval.drop(run, view, damage)
            return None
        relaxed, contents = decision.plan.relaxed, contents_of(groups)
        new = Lease(uuid.uuid4().hex, LeaseState.RETURNED, "", 1, view.step + 1, relaxed, contents=contents)
        lease = self._lease(view, holder, new)
        commit = self._batches.commit(
            run,
            lease,
            groups,
            epoch=view.epoch,
            policy_version=view.policy_version,
            debts=decision.debts,
            clock_ms=view.clock_ms,
        )
        return Batch(lease, tuple(groups), payloads, view) if await self._have(lease, commit) else None

    async def _have(self, lease: Lease, taking: Coroutine[None, None, bool]) -> bool:
        """Take a lease; False if the world moved on meanwhile."""
        if lease.state is LeaseState.SENDING:
            return await self._sending.begin(lease, taking)
        return await taking  # held until its deadline, wherever its reply goes


def unregistered() -> NotReady:
    """Say that the run has no trainer yet."""
    return NotReady(Blocker.NOT_REGISTERED, "no trainer has registered with this run: POST /register")
