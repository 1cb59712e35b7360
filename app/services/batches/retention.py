"""Keep delivered batches until the trainer has saved its own state, and hand them out again after a crash."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.batches.leases import Lease, as_withdrawn
from app.core.batches.rewind import is_quarantined, plan_rewind
from app.core.runs.settings import Policy
from app.core.runs.view import QueueView, RunView
from app.events import BatchAcknowledged, CheckpointReported, RewindCompleted, emit
from app.services.replay.groups import GroupInserter
from app.services.replay.reservations import UseReservations
from app.store.batches.store import OLDEST_KEPT_READ, Acknowledged, BatchStore, Kept
from app.store.groups.garbage import GarbageStore
from app.store.redis.compare_and_swap import Attempts
from app.store.runs.store import RunStore
from lachesis.wire.errors import InvalidField, RewindImpossible


@dataclass(frozen=True, slots=True)
class RewindResult:
    """The result of a rewind.

    Attributes:
        batches: Leases of the batches that are handed out again, in this order.
        quarantined: Leases of quarantined batches, which are not handed out again.
        policy_version: The policy version from now on.
        rewinds: Number of rewinds of the run, this one included.
    """

    batches: tuple[Lease, ...]
    quarantined: tuple[Lease, ...]
    policy_version: int
    rewinds: int


class Retention:
    """Ends batches that were trained on, and brings them back after a rewind."""

    def __init__(
        self,
        runs: RunStore,
        garbage: GarbageStore,
        batches: BatchStore,
        group_inserter: GroupInserter,
        reservations: UseReservations,
    ) -> None:
        self._runs = runs
        self._garbage = garbage
        self._batches = batches
        self._group_inserter = group_inserter
        self._reservations = reservations

    async def deliver(
        self, run: str, leases: Sequence[Lease], policy: Policy | None = None, epoch: int | None = None
    ) -> int:
        """End leases whose batches were trained on, if they are unchanged; return how many ended.

        Their groups are kept for a rewind within the run's limits. Beyond these, the oldest are released. If the replay
        buffer takes groups, they also enter it.

        Args:
            run: The run's name.
            leases: The leases.
            policy: The run's policy, if the caller has read it.
            epoch: The epoch of the run when the policy was read, if that was some time ago. If the epoch has changed,
                no lease ends.
        """
        policy = policy or (await self._runs.admission_context(run)).policy
        ended = await self._end(run, leases, policy, epoch)
        if ended.batches and ended.kept is not None:
            await self._trim(run, ended.kept)
        return len(ended.batches)

    async def environments(self, run: str) -> set[int]:
        """Return the environments with groups in kept batches."""
        kept = await self._batches.kept(run)
        leases = await self._batches.kept_leases(run, [batch_id for batch_id, _ in kept.batches])
        environments = {portion.environment for one in leases for portion in one.lease.contents}
        return {environment for environment in environments if environment is not None}

    async def _end(self, run: str, leases: Sequence[Lease], policy: Policy, epoch: int | None = None) -> Acknowledged:
        ended = await self._batches.acknowledge(
            run, leases, keep=_keeps(policy), remembered_ms=policy.remembered_ms, epoch=epoch
        )
        for lease in leases:
            if lease.batch_id in ended.batches:
                emit(BatchAcknowledged(run=run, batch=lease.batch_id, step=lease.step))
        # If either fails, maintenance repeats it.
        if ended.replayed_groups:
            await self._reservations.settle(run)
        if ended.entered_groups:
            await self._group_inserter.insert(run)
        return ended

    async def trim(self, run: str) -> None:
        """Release the batches that a run does not keep; `app.services.maintenance` removes their payloads soon after.

        The settings are read after the kept batches. So if a batch ends while the settings change, one of the two
        requests sees both.
        """
        await self._trim(run, await self._batches.kept(run, OLDEST_KEPT_READ))

    async def _trim(self, run: str, kept: Kept) -> None:
        while kept.policy is not None:
            surplus = await self._surplus(run, kept, kept.policy)
            if surplus:
                await self._batches.release_kept(run, surplus)
            if len(surplus) < len(kept.batches) or not surplus:
                return
            kept = await self._batches.kept(run, OLDEST_KEPT_READ)

    async def _surplus(self, run: str, kept: Kept, policy: Policy) -> list[str]:
        """Return which of the oldest batches are beyond the limits. Only of these are the groups read."""
        surplus, payload_bytes = list[str](), kept.payload_bytes
        for batch_id, _ in kept.batches:
            if kept.total - len(surplus) <= policy.keep_batches and payload_bytes <= policy.keep_bytes:
                break
            surplus.append(batch_id)
            if payload_bytes > policy.keep_bytes:
                (groups,) = await self._batches.kept_groups(run, [batch_id])
                payload_bytes -= sum(group.payload_bytes for group in groups)
        return surplus

    async def forget(self, run: str) -> None:
        """Release all kept batches, because the run starts again."""
        await self._batches.release_kept(run, [batch_id for batch_id, _ in (await self._batches.kept(run)).batches])

    async def checkpoint(
        self, run: str, step: int, policy_version: int | None = None, rewinds: int | None = None
    ) -> QueueView:
        """Release all kept batches up to ``step``, because the trainer has saved a state that contains them.

        Args:
            run: The run's name.
            step: Step of the last batch in that state.
            policy_version: The policy version of that state, which a rewind restores; None for the current version.
            rewinds: Number of rewinds of the run when the trainer began; None if unknown.

        Raises:
            InvalidField: No batch of that step was taken yet.
            RunRewound: The run was rewound after the trainer began. Some of the batches may be released.
        """
        _check_taken(await self._runs.queue(run), step)
        kept = (await self._batches.kept(run)).batches
        saved = [batch_id for batch_id, at in kept if at <= step]
        await self._batches.release_kept(run, saved, step, policy_version, rewinds)
        await self._garbage.delete_marked(run)
        emit(CheckpointReported(run=run, step=step, released_batches=len(saved)))
        return await self._runs.queue(run)

    async def rewind(self, run: str, step: int, request_id: str | None = None) -> RewindResult:
        """Hand out every batch after ``step`` again, before any new one (`app.core.batches.rewind.plan_rewind`).

        A trainer that still runs cannot end batches after ``step``, and its requests for more are refused.

        Args:
            run: The run's name.
            step: Step of the last batch in the saved state.
            request_id: The id of the request. If the last rewind has the same id, the run is not rewound again.

        Raises:
            InvalidField: No batch of that step was taken yet, or the last rewind has this id and went to another step.
            RewindImpossible: A batch after ``step`` was delivered and is no longer kept.
        """
        request_id = request_id or uuid.uuid4().hex  # also for a reply of Redis that was lost
        attempts = Attempts("rewind the run", run)
        while attempts.again():
            view = await self._runs.view(run)
            if view.rewound_by == request_id:
                _check_repeated(view, step)
                await self.trim(run)
                return _last_rewind(view, step)
            _check_taken(view, step)
            _check_kept(view, step)
            kept_ids = [batch_id for batch_id, at in (await self._batches.kept(run)).batches if at > step]
            kept = await self._batches.kept_leases(run, kept_ids)
            plan = plan_rewind(step, view, kept)
            if plan.trained:  # not trimmed: that could release batches that must come back
                ended = await self._end(run, plan.trained, view.policy)
                if len(ended.batches) < len(plan.trained):
                    continue  # a trainer extended or ended a lease in the meantime
            if any(own.lease.replayed for own in kept):  # count uses that their acknowledgement did not count
                await self._reservations.settle(run)
            quarantined = tuple(map(as_withdrawn, plan.quarantined))
            changed = [*plan.redelivered, *zip(plan.quarantined, quarantined, strict=True)]
            if await self._batches.rewind(run, step, view, changed, plan.policy_version, request_id):
                batches = tuple(lease for _, lease in plan.redelivered)
                result = RewindResult(batches, quarantined, plan.policy_version, view.rewinds + 1)
                break
        await self.trim(run)
        emit(RewindCompleted(run=run, step=step, batches=len(result.batches)))
        return result


def _last_rewind(view: RunView, step: int) -> RewindResult:
    """Return the result of the last rewind, which went back to ``step``, without batches that have ended since."""
    left_out = tuple(lease for lease in view.leases if lease.step > step and is_quarantined(lease, view))
    batches = (lease for lease in view.leases if lease.state == "returned" or lease.rewound == view.rewinds)
    again = tuple(lease for lease in batches if lease not in left_out)
    return RewindResult(again, left_out, view.policy_version, view.rewinds)


def _check_repeated(view: RunView, step: int) -> None:
    if view.rewound_to not in (None, step):
        message = f"{view.rewound_by!r} is the id of a rewind to step {view.rewound_to}: send a new id for each rewind"
        raise InvalidField(message, ("request_id",))


def _check_taken(view: QueueView, step: int) -> None:
    if step > view.step:
        message = (
            f"is {step}, but the run is only at step {view.step}. If the service was restored to an earlier state, "
            f"rewind to step {view.step}, then set the policy version of your own state"
        )
        raise InvalidField(message, ("step",))


def _check_kept(view: RunView, step: int) -> None:
    earliest = view.kept.unkept_step
    if earliest is not None and step < earliest:
        raise RewindImpossible(f"the run can rewind to step {earliest} at the earliest: it keeps no batches before it")


def _keeps(policy: Policy) -> bool:
    return policy.keep_batches > 0 and policy.keep_bytes > 0
