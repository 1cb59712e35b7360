"""Delete waiting groups for operators: one by its id, or those that match a filter, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.groups.deletion import BUFFERED, QUEUED, GroupFilter, SearchPosition, first_groups, lanes_left, stopped_at
from app.core.model import DropReason
from app.events import GroupDeleted, GroupsDeleted, emit
from app.services.groups.history import GroupFacts, GroupHistories
from app.store.groups.store import GroupStore, LaneSlice
from app.store.redis.compare_and_swap import Attempts
from app.store.runs.store import RunStore
from lachesis.wire.errors import GroupNotWaiting


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """The result of one call.

    Attributes:
        groups: Number of deleted groups, or in a dry run of those that would be.
        left: Number of groups in the matching lanes that were not checked.
        position: Where to continue; None if all groups were checked.
    """

    groups: int
    left: int
    position: SearchPosition | None


class GroupDeletion:
    """Drops waiting groups for the reason ``deleted``."""

    def __init__(self, runs: RunStore, groups: GroupStore, histories: GroupHistories) -> None:
        self._runs = runs
        self._groups = groups
        self._histories = histories

    async def delete(self, run: str, given_id: str) -> None:
        """Delete a waiting group. Safe to repeat.

        Raises:
            RunNotFound: There is no such run.
            GroupNotFound: The run has no such group, or has forgotten it.
            GroupNotWaiting: The group is in a batch, or was delivered or dropped. The message says which.
        """
        attempts = Attempts("delete a group", run)
        while attempts.again():
            facts = await self._histories.of(run, given_id)
            if facts.reason == DropReason.DELETED:
                return
            if facts.state not in (QUEUED, BUFFERED):
                raise GroupNotWaiting(f"group {given_id} {_where(facts)}: only a waiting group can be deleted")
            found = [(facts.group_id, facts.entry.lane)]
            if await self._groups.drop(run, found, DropReason.DELETED):
                emit(GroupDeleted(run=run, group=given_id))
                return

    async def delete_matching(
        self, run: str, wanted: GroupFilter, *, limit: int, after: SearchPosition | None = None, dry_run: bool = False
    ) -> DeletionResult:
        """Delete waiting groups that match a filter.

        Args:
            run: The run's name.
            wanted: The filter.
            limit: Largest number of groups to check in this call.
            after: Where an earlier call stopped; None to begin.
            dry_run: Whether to count the groups and delete none.

        Raises:
            RunNotFound: There is no such run.
        """
        view = await self._runs.existing(run)
        lanes = lanes_left({QUEUED: view.lanes, BUFFERED: view.buffers}, wanted, after)
        chosen = first_groups(lanes, limit)
        slices = await self._groups.slices(run, chosen)
        ids = [group.group_id for part in slices for group in part.groups]
        entries = await self._groups.entries(run, ids) if ids else []
        meant = [
            (group_id, entry.lane)
            for group_id, entry in zip(ids, entries, strict=True)
            if entry is not None and wanted.means(entry.policy_version)
        ]
        deleted = len(meant) if dry_run else await self._groups.drop(run, meant, DropReason.DELETED)
        if deleted and not dry_run:
            emit(
                GroupsDeleted(
                    run=run,
                    groups=deleted,
                    environment=wanted.environment,
                    size=wanted.size,
                    older_than_version=wanted.older_than_version,
                )
            )
        left = sum(part.left for part in slices) + sum(held for _, held in lanes[len(chosen) :])
        return DeletionResult(deleted, left, _stopped_at(chosen, slices) if left else None)


def _stopped_at(chosen: Sequence[tuple[SearchPosition, int]], slices: Sequence[LaneSlice]) -> SearchPosition:
    """Return where to continue: after the last group checked, or after its lane if that has no more."""
    (start, _), last = chosen[-1], slices[-1]
    return stopped_at(start, last.groups[-1].arrival if last.left and last.groups else None)


def _where(facts: GroupFacts) -> str:
    if facts.state == "leased":
        return f"is in batch {facts.batch_id} (step {facts.step})"
    if facts.state == "delivered":
        return f"was delivered in batch {facts.batch_id} (step {facts.step})"
    return f"was dropped: {facts.reason}"
