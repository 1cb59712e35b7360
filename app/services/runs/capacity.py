"""Check whether a run's limits leave room. Groups that can never enter a batch are counted separately.

A full queue whose groups hold no batch takes groups that one may need (`app.core.environments.full_queue`). Otherwise
trainers and workers would wait for each other.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from app.core.environments.full_queue import FullQueue
from app.core.environments.reused_readings import reuse_for_s
from app.core.environments.shares import is_oversized
from app.core.model import Bounds, LaneId
from app.core.runs.capacity import FULL, NO_LIMIT, AdmissionLimits, WaitingGroups, limits_for, reached_limit
from app.core.runs.settings import Policy
from app.core.runs.view import RunView
from app.services.threads import MANY_LANES, in_thread_if
from app.store.groups.admission_context import AdmissionContext
from app.store.groups.store import GroupStore
from app.store.runs.store import RunStore

_CHECK_EVERY_S = 0.25  # a full queue refuses many submissions, and each would cause a check


@dataclass(slots=True)
class _CapacityCheck:
    """The state of a run.

    Attributes:
        again_s: When a new check is due, by the clock of this process.
        waiting: All waiting groups, those that fit no batch included.
        oversized: Those that fit no batch.
        full: What the run takes although its queue is full. None: it is not full.
    """

    again_s: float
    epoch: int
    batch_size: int
    bounds: Mapping[int, Bounds]
    waiting: WaitingGroups
    oversized: WaitingGroups
    full: FullQueue | None


class RunCapacity:
    """Checks runs with limits, but seldom, so that submissions to them cost no more than to other runs."""

    def __init__(self, runs: RunStore, groups: GroupStore) -> None:
        self._runs = runs
        self._groups = groups
        self._checks: dict[str, _CapacityCheck] = {}

    async def room(self, run: str, context: AdmissionContext, lanes: Sequence[LaneId]) -> AdmissionLimits:
        """Return the limits for a submission of groups to these lanes, placed by a context."""
        policy = context.policy
        if policy.max_queued_groups is None and policy.max_queued_bytes is None:
            return NO_LIMIT
        check = self._checks.get(run)
        if (
            check is None
            or check.epoch != context.epoch
            or ((check.oversized.groups or check.full or _any_oversized(check, lanes)) and _is_old(check))
        ):
            check = await self._check(run)
        fitting = {lane for lane in lanes if not _is_oversized(check, lane)}
        brings_oversized = not fitting.issuperset(lanes)
        if brings_oversized and reached_limit(policy, check.oversized) is not None:
            return FULL
        if check.full is not None and (not fitting or any(map(check.full.takes, fitting))):
            return AdmissionLimits(max_groups=check.waiting.groups + 1)  # the next submission, if no other was faster
        return limits_for(policy, check.oversized)

    def admitted(self, run: str, lanes: Sequence[LaneId]) -> None:
        """Record that groups of these lanes were admitted."""
        check = self._checks.get(run)
        if check is not None and (check.full or _any_oversized(check, lanes)):
            del self._checks[run]

    async def check_again(self, run: str) -> bool:
        """Check a run again that refused a submission as full; False if it was checked a moment ago."""
        check = self._checks.get(run)
        if check is not None and not _is_old(check):
            return False
        await self._check(run)
        return True

    def full_of_oversized(self, run: str, policy: Policy) -> str | None:
        """Return the limit that groups which fit no batch have reached by the last check, with what to do, or None."""
        check = self._checks.get(run)
        limit = None if check is None else reached_limit(policy, check.oversized)
        no_room = "is reached by groups that fit no batch, so there is no room for this one"
        return limit and f"{limit} of the run {no_room}: send smaller groups, or delete those that wait"

    async def reached(self, run: str, view: RunView) -> str | None:
        """Return the limit for which a run refuses groups, with its value; None if it refuses none."""
        waiting = _waiting(view)
        if view.config is None or reached_limit(view.policy, waiting) is None:
            return None
        oversized, reached = await self._oversized(run, view), []
        if (limit := reached_limit(view.policy, _without(waiting, oversized))) is not None:
            but = ", except those that a batch needs" if (await _full_queue(view)).needs_groups else ""
            reached.append(f"{limit} is reached: groups are refused (`queue_full`){but}")
        if (limit := reached_limit(view.policy, oversized)) is not None:
            those = f"{limit} is reached by groups that fit no batch: more of them are refused (`queue_full`)"
            reached.append(f"{those}, and with them what their workers send after them, until some are deleted")
        return "; ".join(reached) or None

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these."""
        self._checks = {run: check for run, check in self._checks.items() if run in runs}

    async def _check(self, run: str) -> _CapacityCheck:
        view = await self._runs.view(run)
        batch_size = 0 if view.config is None else view.batch_size
        waiting, oversized = _waiting(view), await self._oversized(run, view)
        is_full = batch_size and reached_limit(view.policy, _without(waiting, oversized)) is not None
        rest_s = max(_CHECK_EVERY_S, reuse_for_s(len(view.environments), len(view.lanes)))
        check = self._checks[run] = _CapacityCheck(
            asyncio.get_running_loop().time() + rest_s,
            view.epoch,
            batch_size,
            view.bounds,
            waiting,
            oversized,
            await _full_queue(view) if is_full else None,
        )
        return check

    async def _oversized(self, run: str, view: RunView) -> WaitingGroups:
        if view.config is None:
            return WaitingGroups()
        batch_size, bounds = view.batch_size, view.bounds
        queued = [lane for lane in view.lanes if is_oversized(lane, batch_size, bounds)]
        buffered = [lane for lane in view.buffers if is_oversized(lane, batch_size, bounds)]
        groups = sum(view.lanes[lane] for lane in queued) + sum(view.buffers[lane] for lane in buffered)
        if view.policy.max_queued_bytes is None:
            return WaitingGroups(groups)
        return WaitingGroups(groups, await self._groups.payload_bytes(run, queued, buffered))


async def _full_queue(view: RunView) -> FullQueue:
    return await in_thread_if(len(view.lanes) + len(view.environments) >= MANY_LANES, FullQueue, view)


def _waiting(view: RunView) -> WaitingGroups:
    totals = view.totals
    return WaitingGroups(totals.queued_groups + totals.buffered_groups, totals.queued_bytes + totals.buffered_bytes)


def _without(waiting: WaitingGroups, oversized: WaitingGroups) -> WaitingGroups:
    return WaitingGroups(waiting.groups - oversized.groups, waiting.payload_bytes - oversized.payload_bytes)


def _any_oversized(check: _CapacityCheck, lanes: Sequence[LaneId]) -> bool:
    return any(_is_oversized(check, lane) for lane in lanes)


def _is_oversized(check: _CapacityCheck, lane: LaneId) -> bool:
    return is_oversized(lane, check.batch_size, check.bounds)


def _is_old(check: _CapacityCheck) -> bool:
    return asyncio.get_running_loop().time() >= check.again_s
