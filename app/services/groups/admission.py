"""Admit groups: place them by the last known state of the run, and commit only if that has not changed."""

from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from typing import NamedTuple

from app.core.access.queue_limits import LimitedAccount
from app.core.groups.filters import FilterMark, apply_filters
from app.core.groups.length import position_of_too_long
from app.core.model import LaneId
from app.core.runs.capacity import FULL, NO_LIMIT
from app.core.runs.settings import Policy
from app.services.groups.commit import GroupCommit, PlacedGroups
from app.services.history.recorder import HistoryRecorder
from app.services.replay.eviction import ReplayEviction
from app.services.runs.capacity import RunCapacity
from app.services.runs.warnings import RunWarnings
from app.store.groups.admission_context import AdmissionContext
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Outcome, Placement
from app.store.redis.compare_and_swap import Attempts
from app.store.runs.store import RunStore
from lachesis.wire.errors import (
    EnvironmentNotFound,
    IntakePaused,
    InvalidField,
    PermissionDenied,
    QueueFull,
    RunArchived,
    RunNotFound,
    SequenceTooLong,
    StoreFull,
)
from lachesis.wire.runs import LongSequences

_UNKNOWN_RUN = AdmissionContext(0, 0, {})
_MAY_BE_OUTDATED = (EnvironmentNotFound, IntakePaused, InvalidField, PermissionDenied, RunArchived, RunNotFound)

Place = Callable[[EncodedGroup, AdmissionContext], Placement]


class MissingRun(Enum):
    """What happens to groups for a run that does not exist."""

    MAKE = auto()  # the run is made, and takes them
    REFUSE = auto()
    PLACE = auto()  # `place` is called, and refuses them


class GroupSubmission(NamedTuple):
    """Groups to admit, all or none.

    Attributes:
        groups: The groups. Ids given by senders are unique among them.
        place: Decides where each group goes. Called again if the run has changed.
        if_missing: What to do if the run does not exist.
        limited: Whether the run's limits and pauses apply.
        only: The only environment that the sender may act for, by name; None for any.
        account: The account of the sender, if its groups in the queue are limited.
    """

    groups: Sequence[EncodedGroup]
    place: Place
    if_missing: MissingRun
    limited: bool
    only: str | None = None
    account: LimitedAccount | None = None

    def placements(self, run: str, context: AdmissionContext) -> list[Placement]:
        """Return where each group goes, by a context of the run. An error of ``place`` refuses all of them.

        Raises:
            RunArchived, IntakePaused: The run takes no groups.
            PermissionDenied: A group is not of environment ``only``.
        """
        if context.policy.archived:
            raise RunArchived(f"run {run} is archived: it takes no groups")
        if self.limited and context.policy.intake_paused:
            raise IntakePaused(f"an operator has paused the intake of run {run}")
        placements = [self.place(group, context) for group in self.groups]
        if self.only is not None:
            _check_environments(self.groups, context, self.only)
        return placements


class AdmittedGroups(NamedTuple):
    """Admitted groups, with the context they were placed by, their places and their outcomes."""

    context: AdmissionContext
    placements: list[Placement]
    outcomes: list[Outcome]


class Admission:
    """Admits groups to runs.

    It places them by the context of their run, and commits them. It remembers the contexts, so that a submission costs
    one round trip. If the run has changed, it reads the context again.
    """

    def __init__(
        self,
        runs: RunStore,
        commits: GroupCommit,
        capacity: RunCapacity,
        eviction: ReplayEviction,
        warnings: RunWarnings,
        history: HistoryRecorder,
    ) -> None:
        self._runs = runs
        self._commits = commits
        self._capacity = capacity
        self._eviction = eviction
        self._warnings = warnings
        self._history = history
        self._announced: set[str] = set()
        self._contexts: dict[str, AdmissionContext] = {}

    async def admit(self, run: str, submission: GroupSubmission) -> AdmittedGroups:
        """Store groups, all or none. Once this returns they survive any crash.

        Raises:
            RunNotFound, TooManyRuns, RunArchived, IntakePaused, QueueFull, GroupExists, PermissionDenied, StoreFull:
                Nothing was stored.
            StoreUnavailable: Redis did not answer. The groups may be stored or not.
        """
        groups = submission.groups
        if submission.if_missing is not MissingRun.PLACE:
            await self._announce(run, submission.if_missing)
        context, is_fresh, has_evicted = self._contexts.get(run, _UNKNOWN_RUN), False, False
        attempts = Attempts("store groups", run)
        while attempts.again():
            try:
                placements = submission.placements(run, context)
                lanes = _lanes(groups, placements)
                room = await self._capacity.room(run, context, lanes) if submission.limited else NO_LIMIT
                placed = PlacedGroups(context, groups, placements, room, submission.account)
                outcomes = await self._commits.commit(run, placed)
            except QueueFull as error:
                if room == NO_LIMIT or not await self._capacity.check_again(run):
                    said = self._capacity.full_of_oversized(run, context.policy) if room == FULL else None
                    raise (error if said is None else QueueFull(said)) from None
                continue  # the remembered state may be outdated
            except StoreFull:
                if has_evicted or not await self._eviction.evict_if_full():
                    raise
                has_evicted = True  # only once: if the store is full again, the sender must wait
                continue
            except _MAY_BE_OUTDATED:
                if is_fresh:
                    raise
            else:
                if outcomes is not None:
                    break
            context, is_fresh = await self._context(run), True  # the run may have changed since it was read
        self._capacity.admitted(run, lanes)
        self._history.submitted(run, context, groups, placements, outcomes)
        dropped_too_long = any(place.dropped == "too_long" for place in placements)
        await self._warnings.admitted(run, context.epoch, lanes, too_long=dropped_too_long)
        return AdmittedGroups(context, placements, outcomes)

    async def _announce(self, run: str, if_missing: MissingRun) -> None:
        """Note that a run has groups, once; but look each time for a run that must exist: it may have been deleted."""
        if if_missing is MissingRun.REFUSE:
            await self._runs.announce(run, new=False)
        elif if_missing is MissingRun.MAKE and run not in self._announced:
            await self._runs.announce(run)
            self._announced.add(run)

    async def _context(self, run: str) -> AdmissionContext:
        context = self._contexts[run] = await self._runs.admission_context(run)
        return context

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these, because clients can send any number of names."""
        self._announced.intersection_update(runs)
        self._capacity.keep_only(runs)
        self._warnings.keep_only(runs)
        self._contexts = {run: context for run, context in self._contexts.items() if run in runs}


def _check_environments(groups: Sequence[EncodedGroup], context: AdmissionContext, only: str) -> None:
    for group in groups:
        record = None if group.environment is None else context.environments.get(group.environment)
        if record is None or record.desired_name != only:
            raise PermissionDenied(f"the credentials are for groups of environment {only!r} only")


def _lanes(groups: Sequence[EncodedGroup], placements: Sequence[Placement]) -> list[LaneId]:
    pairs = zip(groups, placements, strict=True)
    return [(place.environment, group.size) for group, place in pairs if place.dropped is None]


def checked(
    group: EncodedGroup, place: Placement, context: AdmissionContext, long_sequences: LongSequences
) -> Placement:
    """Return where a group goes, after the checks of its lengths and the filters.

    The result is its place, with or without a mark, or the reason to drop it.

    Raises:
        SequenceTooLong: A sequence is longer than the run allows, and the run refuses such groups.
    """
    sequence = position_of_too_long(group.lengths, context.max_sequence_tokens)
    if sequence is None:
        return filtered(group, place, context.policy)
    if long_sequences == "drop":
        return place._replace(buffered=False, dropped="too_long")
    tokens, most = group.lengths[sequence], context.max_sequence_tokens
    why = f"sequence {sequence} of group {group.given_id} has {tokens} tokens; the run takes {most} at most"
    raise SequenceTooLong(why, (*group.path, "tokens", sequence))


def filtered(group: EncodedGroup, place: Placement, policy: Policy) -> Placement:
    """Return where a group goes after the filters of its run: its place, marked or not, or a reason to drop it."""
    if not policy.filters_groups:
        return place
    match apply_filters(group, policy):
        case FilterMark() as mark:
            return place._replace(mark=mark)
        case reason:
            return place._replace(buffered=place.buffered and reason is None, dropped=reason)
