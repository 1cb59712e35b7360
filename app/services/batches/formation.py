"""Form a new batch from the queue: plan, rebalance, fetch, shard, reserve, commit.

Planning is optimistic: it takes no lock. The commit is one atomic step. If the run changed after the plan, the commit
fails and changes nothing. A step returns `ReadAgain` to say that the run must be read again.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.core.batches.leases import Lease, LeasedGroup, contents_of
from app.core.batches.planning import Decision, decide, with_returned
from app.core.environments.shares import debt_changes
from app.core.groups.filters import with_filtered
from app.core.model import BatchPlan, Lane, NotReady, heads_in, sequences_in
from app.core.ranks.requests import awaiting
from app.core.ranks.sharding import Undivided, recorded
from app.core.replay.mixing import fresh_needed
from app.core.runs.view import QueueView
from app.events import BatchRelaxed, BatchTaken, emit
from app.services.batches.lease_taking import LeaseTaking
from app.services.batches.request import BatchRequest, OutgoingBatch, ReadAgain
from app.services.batches.retrieval import DamagedGroups, Retrieval, Retrieved
from app.services.groups.arrivals import Arrivals
from app.services.history.recorder import HistoryRecorder
from app.services.ranks.lookahead import Lookahead
from app.services.ranks.sharding import BatchSharding
from app.services.replay.mixing import Mixture, ReplayMixing
from app.services.replay.reservations import UseReservations
from app.services.threads import MANY_GROUPS, MANY_LANES, in_thread_if
from app.services.timing import Timing
from app.store.batches.store import BatchStore
from app.store.runs.store import RunStore
from lachesis.wire.errors import InvalidField, SequenceTooLong


@dataclass(frozen=True, slots=True)
class Planned:
    """The groups of a new batch, before the commit.

    Attributes:
        decision: The decision of the rules.
        plan: The groups from the queue: those of the decision, or others that load ranks more evenly.
        mixture: The groups from the replay buffer. None means no such groups.
        delays: The number of times that groups were passed over. None means no change.
    """

    decision: Decision
    plan: BatchPlan
    mixture: Mixture | None
    delays: Mapping[str, int] | None = None


class _ReplayedGroupsDoNotFit(Exception):
    """A batch with groups from the replay buffer cannot be divided as its ranks ask.

    Attributes:
        error: Why not.
    """

    def __init__(self, error: InvalidField) -> None:
        super().__init__(error)
        self.error = error


class BatchFormation:
    """Plans new batches, and forms them."""

    def __init__(
        self,
        runs: RunStore,
        batches: BatchStore,
        retrieval: Retrieval,
        sharding: BatchSharding,
        lookahead: Lookahead,
        mixing: ReplayMixing,
        reservations: UseReservations,
        taking: LeaseTaking,
        arrivals: Arrivals,
        timing: Timing,
        history: HistoryRecorder,
    ) -> None:
        self._runs = runs
        self._batches = batches
        self._retrieval = retrieval
        self._sharding = sharding
        self._lookahead = lookahead
        self._mixing = mixing
        self._reservations = reservations
        self._taking = taking
        self._arrivals = arrivals
        self._timing = timing
        self._history = history

    async def form(self, run: str, view: QueueView, request: BatchRequest) -> OutgoingBatch | NotReady | ReadAgain:
        """Form and commit a batch.

        Returns:
            The batch, or what is missing for a batch, or why to read the run again.

        Raises:
            StepMismatch, InvalidField: The batch cannot be divided as the ranks ask.
        """
        shard_request = request.shard_request
        if shard_request is not None and view.config is not None:
            shard_request.check(view.step + 1)
            shard_request.check_size(view.batch_size)
        if self._arrivals.is_due(run, view):
            self._arrivals.note(run, await self._runs.view(run))
        decision, mixture = await self.plan_next(run, view)
        try:
            return await self._form(run, view, request, decision, mixture)
        except _ReplayedGroupsDoNotFit as misfit:
            # The replayed groups came under other limits of micro-batches or costs. Fresh groups alone may fit.
            fresh = await self._plan_fresh(view, await self._retrieval.lanes(run, view))
            formed = await self._form(run, view, request, fresh, None)
            if isinstance(formed, NotReady):
                return await self._without_replay(run, view, formed, misfit.error)
            return formed

    async def plan_next(
        self, run: str, view: QueueView, returning: Sequence[LeasedGroup] = ()
    ) -> tuple[Decision, Mixture | None]:
        """Plan the next batch, and its groups from the replay buffer.

        Args:
            run: The run's name.
            view: The run; ``view.config`` must be set.
            returning: Groups of batches that will be dissolved, because their size differs from the run's batch size.
        """
        needed = fresh_needed(view.batch_size, view.policy.fresh_fraction)
        if not returning and sequences_in(view.lanes) < needed:  # no batch can form: no lane has to be read
            return await self._plan_fresh(view, ()), None
        lanes = await self._retrieval.lanes(run, view)
        if returning:
            lanes = with_returned(view, lanes, returning)
        return await self._mixing.decide(run, view, lanes) or (await self._plan_fresh(view, lanes), None)

    async def cannot_shard(self, run: str, view: QueueView, error: InvalidField, batch_id: str | None) -> InvalidField:
        """Store the group that prevents the division of a batch, and return the error for its ranks.

        Args:
            run: The run's name.
            view: The run.
            error: The reason why the batch cannot be divided.
            batch_id: The batch, if it was taken before. None means a new batch.
        """
        if not isinstance(error, SequenceTooLong):
            return error
        way_out = "delete the group" if batch_id is None else f"give batch {batch_id} back, then delete the group"
        detail = f"{error.message}; ask for larger micro-batches, or {way_out}"
        await self._note_undivided(run, view, Undivided(error.group_id, batch_id, detail))
        return SequenceTooLong(detail, error.location, error.group_id)

    async def _without_replay(self, run: str, view: QueueView, why: NotReady, error: InvalidField) -> NotReady:
        """Add to the reason that replayed groups do not fit, and store it for `explain`."""
        if not isinstance(error, SequenceTooLong):
            return why
        detail = f"{error.message}, and is from the replay buffer: ask for larger micro-batches, or wait for new groups"
        await self._note_undivided(run, view, Undivided(error.group_id, None, detail))
        return why.adding(detail)

    async def _note_undivided(self, run: str, view: QueueView, undivided: Undivided) -> None:
        """Store the group that prevents the division of a batch, unless the run has it already."""
        if view.undivided != undivided:
            await self._runs.note_undivided(run, undivided)

    async def _form(
        self, run: str, view: QueueView, request: BatchRequest, decision: Decision, mixture: Mixture | None
    ) -> OutgoingBatch | NotReady | ReadAgain:
        await self._note(run, view, decision)
        if decision.plan is None:
            return self._reason(run, view, request, decision)
        planned = await self._rebalance(run, view, request, Planned(decision, decision.plan, mixture))
        replayed = () if planned.mixture is None else planned.mixture.groups
        retrieved = await self._retrieval.leasable(run, view, planned.plan, replayed)
        if isinstance(retrieved, DamagedGroups):
            await self._drop_damaged(run, retrieved)
            return ReadAgain.CLEANED_UP
        if not isinstance(retrieved, Retrieved):
            return retrieved
        batch = await self._shard(run, view, request, planned, retrieved)
        if planned.mixture is not None and not await self._mixing.reserve(run, batch.lease, planned.mixture):
            return ReadAgain.CONFLICT  # a group of the replay buffer is no longer available
        if request.chosen is not None:
            request.chosen(batch)
        return batch if await self._commit(run, view, planned, retrieved, batch.lease) else ReadAgain.CONFLICT

    async def _drop_damaged(self, run: str, damaged: DamagedGroups) -> None:
        """Drop damaged groups from the queue, and retire those of the replay buffer."""
        await self._retrieval.drop(run, damaged.reasons)
        await self._mixing.retire_damaged(run, damaged.reasons)

    async def _note(self, run: str, view: QueueView, decision: Decision) -> None:
        """Store the facts for the next decision that a commit does not store."""
        if decision.conflict_since_ms != view.conflict_since_ms:
            await self._runs.note_conflict(run, decision.conflict_since_ms)
        if decision.unfilled != view.unfilled:
            await self._runs.note_unfilled(run, decision.unfilled)
        if decision.plan is None and decision.scarce != view.scarce:
            await self._runs.note_scarce(run, decision.scarce)

    def _reason(self, run: str, view: QueueView, request: BatchRequest, decision: Decision) -> NotReady:
        """Return why there is no plan, with the groups that filters dropped and the ranks still missing."""
        why = decision.not_ready
        assert why is not None, "a decision has one or the other"  # noqa: S101
        why = with_filtered(why, self._arrivals.last_noted(run), view.policy, view.named)
        return why if request.shard_request is None else awaiting(why, view.leases)

    async def _rebalance(self, run: str, view: QueueView, request: BatchRequest, planned: Planned) -> Planned:
        """Exchange groups for other groups that load the ranks more evenly."""
        split = None if request.shard_request is None else request.shard_request.spec
        plan, delays = await self._lookahead.choose(run, view, planned.plan, split)
        return replace(planned, plan=plan, delays=delays)

    async def _shard(
        self, run: str, view: QueueView, request: BatchRequest, planned: Planned, retrieved: Retrieved
    ) -> OutgoingBatch:
        """Divide the batch between ranks, or leave it whole.

        Raises:
            _ReplayedGroupsDoNotFit: A group prevents the division, and the batch has groups from the replay buffer.
            InvalidField: A fresh group prevents the division.
        """
        new = Lease(
            batch_id=uuid.uuid4().hex,
            state="returned",
            worker="",
            delivery_count=1,
            step=view.step + 1,
            relaxed=planned.plan.relaxed,
            contents=contents_of(retrieved.groups),
            replayed=contents_of(() if planned.mixture is None else planned.mixture.groups),
            debts=debt_changes(view.debts, planned.decision.debts),
        )
        shard_request = request.shard_request
        lease = self._taking.lease_for(request, view, new)
        try:
            return await self._sharding.divide(view, lease, retrieved, shard_request)
        except InvalidField as error:
            if planned.mixture is not None:
                raise _ReplayedGroupsDoNotFit(error) from None
            raise await self.cannot_shard(run, view, error, None) from None

    async def _commit(self, run: str, view: QueueView, planned: Planned, retrieved: Retrieved, lease: Lease) -> bool:
        """Take all groups out of the queue. False means that the run has changed, and no group was taken."""
        decision = planned.decision
        commit = self._batches.commit(
            run,
            lease,
            retrieved.groups,
            epoch=view.epoch,
            policy_version=view.policy_version,
            seen_debts=view.debts,
            debts=decision.debts,
            clock_ms=view.clock_ms,
            balance=None if lease.sharding is None else recorded(view.balance, lease.sharding),
            delays=planned.delays,
            scarce=decision.scarce,
        )
        if not await self._taking.take(run, view, lease, commit):
            if lease.replayed:
                await self._reservations.release(run, lease.batch_id)
            return False
        self._history.handed_out(run, view, lease, retrieved.groups, retrieved.rewards)
        emit(
            BatchTaken(
                run=run,
                batch=lease.batch_id,
                step=lease.step,
                groups=len(retrieved.groups),
                trainer=lease.trainer or None,
            )
        )
        if lease.relaxed:
            owed = {environment: sequences for environment, sequences in decision.debts.items() if sequences > 0}
            emit(BatchRelaxed(run=run, batch=lease.batch_id, step=lease.step, owed_sequences=owed))
        return True

    async def _plan_fresh(self, view: QueueView, lanes: Sequence[Lane]) -> Decision:
        own = view.policy.relax_after_s
        relax_after_ms = self._timing.relax_after_ms if own is None else round(own * 1000)
        # With a thousand lanes, or for a very large batch, the decision takes long enough to delay other requests.
        is_large = len(view.lanes) >= MANY_LANES or heads_in(lanes) >= MANY_GROUPS
        return await in_thread_if(is_large, decide, view, lanes, relax_after_ms)
