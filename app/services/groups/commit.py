"""Committing submissions that come at the same time together.

Most of what the script that admits groups costs Redis is the call, not the groups; so it is with a round trip of this
process. While one is under way, submissions that arrive in one turn of the event loop share the next, as databases do
with commits that meet. Nobody waits for more than that turn: under little load each goes by itself, under much load
more of them meet.
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

_TOGETHER_BYTES = 512 * 1024  # of payload: while Redis stores more than that, nobody is at work on what comes next

log = logging.getLogger("lachesis.commits")


@dataclass(frozen=True, slots=True)
class PlacedGroups:
    """Groups that are to be stored, all or none.

    Attributes:
        context: What they were placed by.
        groups: The groups; ids given by senders are unique among them.
        placements: Where each goes.
        room: The limits of waiting groups.
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
        if self.result.done():  # whoever asked was cancelled
            return
        if isinstance(result, Exception):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)


class GroupCommit:
    """Commits what was placed."""

    def __init__(self, groups: GroupStore) -> None:
        self._groups = groups
        self._forming: dict[str, list[_Submission]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = 0  # commits under way

    async def commit(self, run: str, placed: PlacedGroups) -> list[Outcome] | None:
        """Store groups, all or none; once this returns what became of them they survive any crash.

        Returns:
            What became of each. None if the run moved on: nothing was stored; place and try again.

        Raises:
            QueueFull, GroupExists, StoreFull: Nothing was stored.
            StoreUnavailable: Redis did not answer; nothing is promised.
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
        """Let others join for one turn, then begin."""
        forming = self._forming[run] = [first]
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            first.result.cancel()  # nobody would ask for it
            raise
        finally:  # the others are not to depend on the first
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
        except Exception as error:  # noqa: BLE001 - whatever it is, it is for those who wait
            results = [error] * len(together)
        finally:
            self._busy -= 1
        for waiting, result in zip(together, results, strict=True):
            waiting.resolve(result)

    async def _store(self, run: str, together: Sequence[PlacedGroups]) -> Stored:
        context = together[0].context
        groups = [group for placed in together for group in placed.groups]
        placements = [place for placed in together for place in placed.placements]
        # Under new ids each time: what was written under the ones before may be being removed.
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
    """Divide submissions, in order, into what is committed together.

    All were placed by one context, and have the same limits; they are of `_TOGETHER_BYTES` at
    most, but for one that is larger by itself; and no two bring the same id.
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
    """Log that nothing trainable comes any more, once: by the process that sees the alert begin."""
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
