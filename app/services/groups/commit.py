"""Commit submissions that arrive at the same time together (group commit).

A commit costs Redis more for the call and the fsync than for a small group, and so does a round trip of this process.
So a commit starts when a turn of the event loop brings no further submissions, and takes all that wait. While a commit
is in progress, small submissions wait for the next one. Under little load each is committed alone, under high load many
together.

Processes take turns as well: while one commits, the others collect submissions. Where submissions come one by
one, or each to another run, no commit waits for another.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from app.core.access.queue_limits import LimitedAccount
from app.core.runs.capacity import NO_LIMIT, AdmissionLimits
from app.services.curriculum.groups import observations_of
from app.services.groups.commit_lock import CommitLock
from app.store.groups.admission_context import AdmissionContext
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import AdmissionResult, Outcome, PendingGroup, Placement, Preconditions, Stored
from app.store.groups.store import GroupStore

_TOGETHER_BYTES = 768 * 1024  # of payload: larger commits would leave this process idle while Redis stores them
_ENOUGH_BYTES = 160 * 1024  # of payload: sharing a commit saves little of what that costs
_OFTEN_ALONE = 8  # commits in a row: if submissions do not arrive together, waiting saves nothing
_LONGEST_WAIT_S = 0.1  # for other commits: in an outage of Redis, each submission must reach its own timeout

log = logging.getLogger("lachesis.commits")


class PlacedGroups(NamedTuple):
    """Groups to store, all or none.

    Attributes:
        context: The context that they were placed by.
        groups: The groups. Ids given by senders are unique among them.
        placements: Where each group goes.
        room: The limits for waiting groups.
        account: The account of the sender, if its groups in the queue are limited.
    """

    context: AdmissionContext
    groups: Sequence[EncodedGroup]
    placements: Sequence[Placement]
    room: AdmissionLimits = NO_LIMIT
    account: LimitedAccount | None = None

    def given_ids(self) -> set[str]:
        """Return the ids that senders gave."""
        return {group.given_id for group in self.groups if group.given_id is not None}


class _Submission(NamedTuple):
    placed: PlacedGroups
    payload_bytes: int
    result: asyncio.Future[list[Outcome] | None]

    def resolve(self, result: AdmissionResult | Exception) -> None:
        if self.result.done():  # the caller was cancelled
            return
        if isinstance(result, Exception):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)


class GroupCommit:
    """Commits placed groups, those of several submissions together.

    Args:
        groups: Stores them.
        lock: The lock that this process shares with others that commit, if there are any.
        longest_wait_s: How long a submission waits for commits in progress.
    """

    def __init__(
        self, groups: GroupStore, lock: CommitLock | None = None, longest_wait_s: float = _LONGEST_WAIT_S
    ) -> None:
        self._groups = groups
        self._longest_wait_s = longest_wait_s
        self._lock = lock
        self._waiting: dict[str, deque[_Submission]] = {}  # by run; each has a task that will take it
        self._small_commits = asyncio.Semaphore(1)  # `locked` of a Lock is false while another task is about to take it
        self._commits_alone = 0  # the last so many had one submission each
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(self, run: str, placed: PlacedGroups) -> list[Outcome] | None:
        """Store groups, all or none. Once this returns outcomes, the groups survive any crash.

        Returns:
            The outcome of each group. None if the run has changed and nothing was stored: place them again and repeat.

        Raises:
            QueueFull, GroupExists, StoreFull: Nothing was stored.
            StoreUnavailable: Redis did not answer. The groups may be stored or not.
        """
        payload_bytes = sum([len(group.payload) for group in placed.groups])
        submission = _Submission(placed, payload_bytes, asyncio.get_running_loop().create_future())
        if run in self._waiting:
            self._waiting[run].append(submission)
        else:
            self._waiting[run] = deque([submission])
            self._start(self._commit_next(run))
        return await submission.result

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task in the next turn of the event loop. A sender that goes away does not end it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit_next(self, run: str) -> None:
        """Commit submissions of a run that wait. Others may join them until a commit in progress ends."""
        waiting = self._waiting[run]
        entered = await self._enter(waiting)
        try:
            if self._lock and entered:
                await self._lock.acquire(self._longest_wait_s)
            await _gather(waiting)
            together = _take(waiting)
            self._commits_alone = self._commits_alone + 1 if len(together) == 1 else 0
            if waiting:
                self._start(self._commit_next(run))
            else:
                del self._waiting[run]
            await self._commit_group(run, together)
        finally:
            if entered:
                self._leave()

    async def _enter(self, waiting: Iterable[_Submission]) -> bool:
        """Wait for the turn of these submissions. Return False if they need none, or have waited long enough for it."""
        if _payload_bytes(waiting) >= _ENOUGH_BYTES or self._commits_alone >= _OFTEN_ALONE:
            return False
        if not self._small_commits.locked():
            return await self._small_commits.acquire()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._longest_wait_s):
                return await self._small_commits.acquire()
        return False

    def _leave(self) -> None:
        if self._lock:
            self._lock.release()
        self._small_commits.release()

    async def _commit_group(self, run: str, together: Sequence[_Submission]) -> None:
        results: Sequence[AdmissionResult | Exception]
        try:
            results = (await self._store(run, [waiting.placed for waiting in together])).results
        except Exception as error:  # noqa: BLE001 - every error belongs to the callers that wait
            results = [error] * len(together)
        for waiting, result in zip(together, results, strict=True):
            waiting.resolve(result)

    async def _store(self, run: str, together: Sequence[PlacedGroups]) -> Stored:
        context = together[0].context
        groups = [group for placed in together for group in placed.groups]
        placements = [place for placed in together for place in placed.placements]
        # New ids for each attempt, because payloads written under earlier ids may be removed at any time.
        submissions = [
            [
                PendingGroup(_new_id(), group, place)
                for group, place in zip(placed.groups, placed.placements, strict=True)
            ]
            for placed in together
        ]
        accounts = [placed.account for placed in together] if any(placed.account for placed in together) else ()
        preconditions = _preconditions(context, groups, together[0].room, accounts)
        stored = await self._groups.admit(run, submissions, preconditions, observations_of(groups, placements, context))
        _warn(run, context, together, stored)
        return stored


async def _gather(waiting: Collection[_Submission]) -> None:
    """Wait while each turn of the event loop brings more submissions, until there are as many as a commit takes."""
    before = 0
    while before < len(waiting) and _payload_bytes(waiting) < _TOGETHER_BYTES:
        before = len(waiting)
        await asyncio.sleep(0)


def _payload_bytes(submissions: Iterable[_Submission]) -> int:
    return sum([submission.payload_bytes for submission in submissions])


def _new_id() -> str:
    """Return a new id of a group: milliseconds since 1970 and 52 random bits, in hex.

    Ids in the order of arrival keep groups that leave together close to each other in the sorted sets of Redis.
    """
    return f"{time.time_ns() // 1_000_000:011x}{random.getrandbits(52):013x}"


def _take(waiting: deque[_Submission]) -> list[_Submission]:
    """Take those submissions from the front that are committed together, at least one.

    These were placed by one context and have the same limits. Together they have at most `_TOGETHER_BYTES`. No two of
    them have the same id.
    """
    first = waiting.popleft()
    together, ids, size_bytes = [first], first.placed.given_ids(), first.payload_bytes
    while waiting:
        placed = waiting[0].placed
        own_ids = placed.given_ids()
        size_bytes += waiting[0].payload_bytes
        alike = placed.context == first.placed.context and placed.room == first.placed.room
        if size_bytes > _TOGETHER_BYTES or not alike or not ids.isdisjoint(own_ids):
            break
        together.append(waiting.popleft())
        ids |= own_ids
    return together


def _preconditions(
    context: AdmissionContext,
    groups: Sequence[EncodedGroup],
    room: AdmissionLimits,
    accounts: Sequence[LimitedAccount | None],
) -> Preconditions:
    policy = context.policy
    versioned = any(group.policy_version is not None for group in groups)
    return Preconditions(
        epoch=context.epoch,
        policy_version=context.policy_version if versioned else None,
        dedup_ms=policy.dedup_ms,
        max_groups=room.max_groups,
        max_bytes=room.max_bytes,
        accounts=accounts,
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
