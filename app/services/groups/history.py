"""Find where a group is, or what happened to it."""

from dataclasses import dataclass, replace

from app.core.batches.leases import Lease
from app.core.groups.listing import GroupRow
from app.core.runs.view import QueueView
from app.services.groups.listing import ended_group, held_group
from app.store.batches.store import BatchStore
from app.store.groups.entries import EndedGroup
from app.store.groups.known import KnownGroupStore
from app.store.groups.listing import GroupListStore
from app.store.groups.store import GroupStore
from app.store.runs.store import RunStore
from lachesis.wire.errors import GroupNotFound
from lachesis.wire.states import LEASED

MOST_MOVES = 5
"""A group that is held and found nowhere was taken, or given back, between the reads. That does not happen as often."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group, and what only its history says.

    Attributes:
        group: The group. A group that is kept for a rewind is ``delivered``.
        version_in_force: The policy version of the run now.
        clock_ms: Its run clock now.
        environment_name: The name of its environment, while the run knows it.
        lease: The lease of its batch, until it ends.
        checkpoint: The step of the last checkpoint, if the group was delivered in a batch that it covers.
    """

    group: GroupRow
    version_in_force: int
    clock_ms: int
    environment_name: str | None
    lease: Lease | None = None
    checkpoint: int | None = None


class GroupHistories:
    """Looks groups up by the ids that their senders or the service gave them."""

    def __init__(
        self,
        runs: RunStore,
        groups: GroupStore,
        known: KnownGroupStore,
        listed: GroupListStore,
        batches: BatchStore,
    ) -> None:
        self._runs = runs
        self._groups = groups
        self._known = known
        self._listed = listed
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
        found = (await self._known.find(run, [given_id])).get(given_id)
        group_id = given_id if found is None else found.group_id
        view = await self._runs.existing(run)
        (entry,) = await self._groups.entries(run, [group_id])
        if entry is not None:
            waits = await self._groups.where(run, group_id, entry.lane)
            if waits is not None:
                return _facts(held_group(group_id, entry, waits, view), view), True
            leases = {lease.batch_id: lease for lease in view.leases}
            batch_id = await self._batches.batch_of(run, group_id, list(leases))
            if batch_id is not None:
                lease = leases[batch_id]
                held = replace(held_group(group_id, entry, LEASED, view), batch_id=batch_id, step=lease.step)
                return _facts(held, view, lease), True
        found = (await self._known.find(run, [given_id])).get(given_id)  # it may have left in between
        if found is not None and found.ended is not None:
            return await self._ended(run, found.group_id, found.ended, view), entry is not None
        return None, entry is not None

    async def _ended(self, run: str, group_id: str, ended: EndedGroup, view: QueueView) -> GroupFacts:
        group, step, saved = ended_group(group_id, ended, group_id), ended.step, view.kept.checkpoint
        if step is not None:
            (batch_id,) = await self._listed.batches_of(run, [(step, ended.clock_ms)])
            group = replace(group, batch_id=batch_id)
        is_saved = not ended.reason and step is not None and saved is not None and step <= saved
        return _facts(group, view, checkpoint=saved if is_saved else None)


def _facts(group: GroupRow, view: QueueView, lease: Lease | None = None, checkpoint: int | None = None) -> GroupFacts:
    known = None if group.environment is None else view.environments.get(group.environment)
    name = None if known is None else known.name
    return GroupFacts(group, view.policy_version, view.clock_ms, name, lease, checkpoint)
