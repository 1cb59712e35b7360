"""Commit submissions that arrive at the same time together (group commit).

The script that admits groups costs Redis more for the call than for the groups, and so does a round trip of this
process. While a commit is in progress, submissions that arrive in one turn of the event loop share the next commit. A
submission waits for one turn at most. Under little load each is committed alone, under high load many together.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from app.core.runs.capacity import NO_LIMIT, AdmissionLimits
from app.services.curriculum.groups import observations_of
from app.store.groups.admission_context import AdmissionContext
from app.store.groups.codec import EncodedGroup
from app.store.groups.entries import AdmissionResult, Outcome, PendingGroup, Placement, Preconditions, Stored
from app.store.groups.store import GroupStore

_TOGETHER_BYTES = 512 * 1024  # of payload: a larger commit would leave this process idle while Redis stores it

log = logging.getLogger("lachesis.commits")


@dataclass(frozen=True, slots=True)
class PlacedGroups:
    """Groups to store, all or none.

    Attributes:
        context: The context that they were placed by.
        groups: The groups. Ids given by senders are unique among them.
        placements: Where each group goes.
        room: The limits for waiting groups.
    """

    context: AdmissionContext
    groups: Sequence[EncodedGroup]
    placements: Sequence[Placement]
    room: AdmissionLimits = NO_LIMIT


@dataclass(frozen=True, slots=True)
class _Submission:
    placed: PlacedGroups
    result: asyncio.Future[list[Outcome] | None]

    def resolve(self, result: AdmissionResult | Exception) -> None:
        if self.result.done():  # the caller was cancelled
            return
        if isinstance(result, Exception):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)


class GroupCommit:
    """Commits placed groups, those of several submissions together."""

    def __init__(self, groups: GroupStore) -> None:
        self._groups = groups
        self._forming: dict[str, list[_Submission]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = 0  # commits in progress

    async def commit(self, run: str, placed: PlacedGroups) -> list[Outcome] | None:
        """Store groups, all or none. Once this returns outcomes, the groups survive any crash.

        Returns:
            The outcome of each group. None if the run has changed and nothing was stored: place them again and repeat.

        Raises:
            QueueFull, GroupExists, StoreFull: Nothing was stored.
            StoreUnavailable: Redis did not answer. The groups may be stored or not.
        """
        waiting = _Submission(placed, asyncio.get_running_loop().create_future())
        if run in self._forming:
            self._forming[run].append(waiting)
        elif self._busy:
            await self._form_group(run, waiting)
        else:
            await self._commit_group(run, [waiting])
        return await waiting.result

    async def _form_group(self, run: str, first: _Submission) -> None:
        """Let other submissions join for one turn of the event loop, then commit."""
        forming = self._forming[run] = [first]
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            first.result.cancel()  # its caller is gone
            raise
        finally:  # the others must not depend on the first
            del self._forming[run]
            for together in _divided(forming):
                task = asyncio.create_task(self._commit_group(run, together))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _commit_group(self, run: str, together: Sequence[_Submission]) -> None:
        results: Sequence[AdmissionResult | Exception]
        self._busy += 1
        try:
            results = (await self._store(run, [waiting.placed for waiting in together])).results
        except Exception as error:  # noqa: BLE001 - every error belongs to the callers that wait
            results = [error] * len(together)
        finally:
            self._busy -= 1
        for waiting, result in zip(together, results, strict=True):
            waiting.resolve(result)

    async def _store(self, run: str, together: Sequence[PlacedGroups]) -> Stored:
        context = together[0].context
        groups = [group for placed in together for group in placed.groups]
        placements = [place for placed in together for place in placed.placements]
        # New ids for each attempt, because payloads written under earlier ids may be removed at any time.
        submissions = [
            [
                PendingGroup(secrets.token_hex(16), group, place)
                for group, place in zip(placed.groups, placed.placements, strict=True)
            ]
            for placed in together
        ]
        preconditions = _preconditions(context, groups, together[0].room)
        stored = await self._groups.admit(run, submissions, preconditions, observations_of(groups, placements, context))
        _warn(run, context, together, stored)
        return stored


def _divided(forming: Sequence[_Submission]) -> Iterator[list[_Submission]]:
    """Divide submissions, in order, into those that are committed together.

    These were placed by one context and have the same limits. Together they have at most `_TOGETHER_BYTES`, except for
    a single submission that is larger. No two of them have the same id.
    """
    together: list[_Submission] = []
    ids: set[str] = set()
    size_bytes = 0
    for waiting in forming:
        placed = waiting.placed
        own_ids = {group.group_id for group in placed.groups if group.group_id is not None}
        own_bytes = sum(len(group.payload) for group in placed.groups)
        first = together[0].placed if together else placed
        alike = placed.context == first.context and placed.room == first.room and ids.isdisjoint(own_ids)
        if together and not (alike and size_bytes + own_bytes <= _TOGETHER_BYTES):
            yield together
            together, ids, size_bytes = [], set(), 0
        together.append(waiting)
        ids |= own_ids
        size_bytes += own_bytes
    yield together


def _preconditions(context: AdmissionContext, groups: Sequence[EncodedGroup], room: AdmissionLimits) -> Preconditions:
    policy = context.policy
    versioned = any(group.policy_version is not None for group in groups)
    return Preconditions(
        epoch=context.epoch,
        policy_version=context.policy_version if versioned else None,
        dedup_ms=round(policy.dedup_window_s * 1000),
        history_ms=policy.history_ms,
        max_groups=room.max_groups,
        max_bytes=room.max_bytes,
    )


def _warn(run: str, context: AdmissionContext, together: Sequence[PlacedGroups], stored: Stored) -> None:
    """Log once that no trainable groups arrive any more. The process that sees the alert begin logs it."""
    starvation, batch_size, after = stored.starvation, context.batch_size, context.policy.alert_after_batches
    if starvation is None or batch_size is None or not starvation.alarms(batch_size, after):
        return
    came = sum(_new_sequences(placed, result) for placed, result in zip(together, stored.results, strict=True))
    if not replace(starvation, sequences=starvation.sequences - came).alarms(batch_size, after):
        log.warning("run %s: %s", run, starvation)


def _new_sequences(placed: PlacedGroups, result: AdmissionResult) -> int:
    if not isinstance(result, list):
        return 0
    return sum(group.size for group, outcome in zip(placed.groups, result, strict=True) if not outcome.repeated)
