"""Admitting groups: placed on the run as we last saw it, committed only if it still is so."""

import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from app.core.errors import InvalidField, RunArchived, RunNotFound
from app.core.filters import Mark, judged
from app.core.policy import Policy
from app.services.curriculum.groups import told_by
from app.services.presence import Presence
from app.store.codec import EncodedGroup
from app.store.group_entries import Outcome, Placement, Stored, Submission, Terms
from app.store.groups import GroupStore
from app.store.roster import Roster
from app.store.runs import RunStore

_NOBODY = Roster(0, {})

log = logging.getLogger("lachesis.admission")

Place = Callable[[EncodedGroup, Roster], Placement]


@dataclass(frozen=True, slots=True)
class Admitted:
    """Groups that were admitted: on which roster, where to, and what became of them."""

    roster: Roster
    placements: list[Placement]
    outcomes: list[Outcome]


class Admission:
    """Remembers who is registered where, so that a submission costs one round trip."""

    def __init__(self, runs: RunStore, groups: GroupStore, presence: Presence) -> None:
        self._runs = runs
        self._groups = groups
        self._presence = presence
        self._announced: set[str] = set()
        self._rosters: dict[str, Roster] = {}

    async def admit(
        self, run: str, groups: Sequence[EncodedGroup], place: Place, *, announce: bool, limited: bool
    ) -> Admitted:
        """Store groups, all or none; once this returns they survive any crash.

        Args:
            run: The run's name.
            groups: What to store; ids given by senders are unique among them.
            place: Decides where each goes; called again if the run moved on.
            announce: Whether to make the run if it is not there.
            limited: Whether the run's capacity binds.

        Raises:
            RunArchived, QueueFull, GroupExists, StoreFull: Nothing was stored.
            StoreUnavailable: Redis did not answer; nothing is promised.
        """
        if announce and run not in self._announced:
            await self._runs.announce(run)
            self._announced.add(run)
        roster, fresh = self._rosters.get(run, _NOBODY), False
        while True:
            try:
                if roster.policy.archived:
                    raise RunArchived(f"run {run} is archived: it takes no groups")
                placements = [place(group, roster) for group in groups]
                # Under new ids each time: what was written under the ones before may be being removed.
                submissions = [Submission(secrets.token_hex(16), group) for group in groups]
                terms = _terms(roster, groups, limited=limited)
                told = told_by(groups, placements, roster)
                admitted = await self._groups.admit(run, submissions, placements, terms, told)
            except (InvalidField, RunArchived, RunNotFound):
                if fresh:
                    raise
                admitted = None  # things may have changed since we last looked
            if admitted is not None:
                _warn(run, roster, groups, admitted)
                for environment in {placement.environment for placement in placements}:
                    if environment is not None:
                        self._presence.heard(run, environment)
                return Admitted(roster, placements, admitted.outcomes)
            roster, fresh = await self._roster(run), True

    async def _roster(self, run: str) -> Roster:
        roster = self._rosters[run] = await self._runs.roster(run)
        return roster

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget what is remembered of runs that are no more: anybody can make up names."""
        self._announced.intersection_update(runs)
        self._rosters = {run: roster for run, roster in self._rosters.items() if run in runs}


def filtered(group: EncodedGroup, place: Placement, policy: Policy) -> Placement:
    """Return where a group goes for its rewards: its place, with a mark or without, or nowhere."""
    if not policy.filters_groups:
        return place
    match judged(group.rewards.tolist(), policy):
        case Mark() as mark:
            return replace(place, mark=mark)
        case reason:
            return replace(place, buffered=place.buffered and reason is None, dropped=reason)


def _warn(run: str, roster: Roster, groups: Sequence[EncodedGroup], admitted: Stored) -> None:
    """Log that nothing trainable comes any more, once: by the process that sees the alert begin."""
    drought, batch_size, after = admitted.drought, roster.batch_size, roster.policy.alert_after_batches
    if drought is None or batch_size is None or not drought.alarms(batch_size, after):
        return
    pairs = zip(groups, admitted.outcomes, strict=True)
    before = drought.sequences - sum(group.size for group, outcome in pairs if not outcome.repeated)
    if not replace(drought, sequences=before).alarms(batch_size, after):
        log.warning("run %s: %s", run, drought)


def _terms(roster: Roster, groups: Sequence[EncodedGroup], *, limited: bool) -> Terms:
    policy = roster.policy
    versioned = any(group.policy_version is not None for group in groups)
    return Terms(
        epoch=roster.epoch,
        policy_version=roster.policy_version if versioned else None,
        dedup_ms=round(policy.dedup_window_s * 1000),
        history_ms=policy.history_ms,
        max_groups=policy.max_queued_groups if limited else None,
        max_bytes=policy.max_queued_bytes if limited else None,
    )
