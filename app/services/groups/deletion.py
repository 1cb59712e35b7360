"""Delete waiting groups for operators: one by its id, or those that match a filter, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.errors import GroupNotWaiting
from app.core.groups.deletion import BUFFERED, QUEUED, GroupFilter, SearchPosition, first_groups, lanes_left, stopped_at
from app.core.model import DropReason
from app.events import GroupDeleted, GroupsDeleted, emit
from app.services.groups.history import GroupHistories, GroupHistory
from app.store.groups.store import GroupStore, LaneSlice
from app.store.redis.compare_and_swap import Attempts
from app.store.runs.store import RunStore


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """The result of one call.

    Attributes:
        groups: Number of deleted groups.
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
            life = await self._histories.of(run, given_id)
            if life.reason == DropReason.DELETED:
                return
            if life.state not in (QUEUED, BUFFERED):
                raise GroupNotWaiting(f"group {given_id} {_where(life)}: only a waiting group can be deleted")
            policy = (await self._runs.view(run)).policy
            found = [(life.group_id, life.entry.lane)]
            if await self._groups.drop(run, found, DropReason.DELETED, policy.history_ms):
                emit(GroupDeleted(run=run, group=given_id))
                return

    async def delete_matching(
        self, run: str, wanted: GroupFilter, *, limit: int, after: SearchPosition | None = None
    ) -> DeletionResult:
        """Delete waiting groups that match a filter.

        Args:
            run: The run's name.
            wanted: The filter.
            limit: Largest number of groups to check in this call.
            after: Where an earlier call stopped; None to begin.

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
        deleted = await self._groups.drop(run, meant, DropReason.DELETED, view.policy.history_ms)
        if deleted:
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


def _where(life: GroupHistory) -> str:
    if life.state == "leased":
        return f"is in batch {life.batch_id} (step {life.step})"
    if life.state == "delivered":
        return f"was delivered in batch {life.batch_id} (step {life.step})"
    return f"was dropped: {life.reason}"
