"""Find where a group is, or what happened to it."""

from dataclasses import dataclass, replace

from app.core.batches.leases import Lease
from app.core.runs.view import QueueView
from app.store.batches.store import BatchStore
from app.store.groups.entries import EndedEntry, EndedGroup, StoredGroup
from app.store.groups.store import GroupStore
from app.store.runs.store import RunStore
from lachesis.wire.errors import GroupNotFound
from lachesis.wire.states import PlaceOfGroup

MOST_MOVES = 5
"""A group that is held and found nowhere was taken, or given back, between the reads. That does not happen as often."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The history of a group.

    Attributes:
        group_id: The service's own id of the group.
        state: ``queued``, ``buffered``, ``leased``, ``delivered`` or ``dropped``.
        entry: The record made when it arrived; of a group that has left, a part of it.
        received_age_s: Seconds since it arrived.
        version_in_force: The policy version of the run now.
        clock_ms: Its run clock now.
        batch_id: The batch that it is or was in.
        step: The step of that batch.
        ended_age_s: Seconds since it was delivered or dropped.
        reason: Why it was dropped.
        lease: The lease of that batch, until it ends.
        checkpoint: The step of the last checkpoint, if the group was delivered in a batch that it covers.
    """

    group_id: str
    state: PlaceOfGroup
    entry: StoredGroup | EndedEntry
    received_age_s: float
    version_in_force: int
    clock_ms: int
    batch_id: str | None = None
    step: int | None = None
    ended_age_s: float | None = None
    reason: str | None = None
    lease: Lease | None = None
    checkpoint: int | None = None


class GroupHistories:
    """Looks groups up by the ids that their senders or the service gave them."""

    def __init__(self, runs: RunStore, groups: GroupStore, batches: BatchStore) -> None:
        self._runs = runs
        self._groups = groups
        self._batches = batches

    async def of(self, run: str, given_id: str) -> GroupFacts:
        """Return the history of a group.

        Raises:
            RunNotFound: There is no such run.
            GroupNotFound: The run has no such group, or has forgotten it because it left long ago.
        """
        for _ in range(MOST_MOVES):
            facts, is_held = await self._look(run, given_id)
            if facts is not None:
                return facts
            if not is_held:
                break
        raise GroupNotFound(f"run {run} knows no group {given_id}")

    async def _look(self, run: str, given_id: str) -> tuple[GroupFacts | None, bool]:
        """Look a group up once. Return None if it was found nowhere, and whether the run holds it nevertheless."""
        found = (await self._groups.known(run, [given_id])).get(given_id)
        group_id = given_id if found is None else found.group_id
        view = await self._runs.existing(run)
        (entry,) = await self._groups.entries(run, [group_id])
        if entry is not None:
            waits = await self._groups.where(run, group_id, entry.lane)
            if waits is not None:
                return _held(group_id, waits, entry, view), True
            leases = {lease.batch_id: lease for lease in view.leases}
            batch_id = await self._batches.batch_of(run, group_id, list(leases))
            if batch_id is not None:
                lease = leases[batch_id]
                held = _held(group_id, "leased", entry, view)
                return replace(held, batch_id=batch_id, step=lease.step, lease=lease), True
        found = (await self._groups.known(run, [given_id])).get(given_id)  # it may have left in between
        if found is not None and found.ended is not None:
            return await self._ended(run, found.group_id, found.ended, view), entry is not None
        return None, entry is not None

    async def _ended(self, run: str, group_id: str, ended: EndedGroup, view: QueueView) -> GroupFacts:
        saved = view.kept.checkpoint
        is_saved = not ended.reason and ended.step is not None and saved is not None and ended.step <= saved
        return GroupFacts(
            group_id,
            "dropped" if ended.reason else "delivered",
            ended.entry,
            received_age_s=(view.clock_ms - ended.entry.accepted_ms) / 1000,
            version_in_force=view.policy_version,
            clock_ms=view.clock_ms,
            batch_id=await self._groups.batch_of(run, ended),
            step=ended.step,
            ended_age_s=max(0, view.clock_ms - ended.clock_ms) / 1000,
            reason=ended.reason,
            checkpoint=saved if is_saved else None,
        )


def _held(group_id: str, state: PlaceOfGroup, entry: StoredGroup, view: QueueView) -> GroupFacts:
    return GroupFacts(
        group_id,
        state,
        entry,
        received_age_s=(view.clock_ms - entry.accepted_ms) / 1000,
        version_in_force=view.policy_version,
        clock_ms=view.clock_ms,
    )
