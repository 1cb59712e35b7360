"""Delete waiting groups for operators: one by its id, or those that match a filter, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.groups.deletion import SearchPosition, first_groups, lanes_left, stopped_at
from app.core.groups.listing import GroupQuery, GroupRow
from app.core.model import LaneId
from app.core.runs.view import QueueView
from app.events import GroupDeleted, GroupsDeleted, emit
from app.services.groups.history import GroupHistories
from app.services.groups.listing import held_group, resolved_query
from app.store.groups.listing import GroupListStore
from app.store.groups.store import GroupStore, LaneSlice
from app.store.redis.compare_and_swap import Attempts
from app.store.runs.store import RunStore
from lachesis.wire.criteria import GroupCriteria
from lachesis.wire.errors import GroupNotWaiting, InvalidField
from lachesis.wire.states import BUFFERED, DELIVERED, LEASED, QUEUED


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

    def __init__(self, runs: RunStore, groups: GroupStore, listed: GroupListStore, histories: GroupHistories) -> None:
        self._runs = runs
        self._groups = groups
        self._listed = listed
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
            group = (await self._histories.of(run, given_id)).group
            if group.reason == "deleted":
                return
            if group.state not in (QUEUED, BUFFERED):
                raise GroupNotWaiting(f"group {given_id} {_where(group)}: only a waiting group can be deleted")
            found = [(group.group_id, group.lane)]
            if await self._groups.drop(run, found, "deleted"):
                emit(GroupDeleted(run=run, group=given_id))
                return

    async def delete_matching(
        self,
        run: str,
        criteria: GroupCriteria,
        *,
        limit: int,
        after: SearchPosition | None = None,
        dry_run: bool = False,
    ) -> DeletionResult:
        """Delete waiting groups that match every criterion.

        Args:
            run: The run's name.
            criteria: The criteria.
            limit: Largest number of groups to check in this call.
            after: Where an earlier call stopped; None to begin.
            dry_run: Whether to count the groups and delete none.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: There is no criterion.
            EnvironmentNotFound: No environment has this name.
        """
        if criteria == GroupCriteria():
            raise InvalidField("name a criterion, such as environment, size or older_than_version", ("query",))
        view = await self._runs.existing(run)
        wanted = await resolved_query(self._listed, view, criteria)
        waiting = {QUEUED: view.lanes, BUFFERED: view.buffers}
        counts = {state: lanes for state, lanes in waiting.items() if state in wanted.sections}
        lanes = lanes_left(counts, wanted.has_lane, after)
        chosen = first_groups(lanes, limit)
        slices = await self._groups.slices(run, chosen)
        meant = await self._matching(run, view, wanted, chosen, slices)
        deleted = len(meant) if dry_run else await self._groups.drop(run, meant, "deleted")
        if deleted and not dry_run:
            named = dict(criteria) | {"environment": wanted.environment_id}
            emit(GroupsDeleted(run=run, groups=deleted, criteria=named))
        left = sum(part.left for part in slices) + sum(held for _, held in lanes[len(chosen) :])
        return DeletionResult(deleted, left, _stopped_at(chosen, slices) if left else None)

    async def _matching(
        self,
        run: str,
        view: QueueView,
        wanted: GroupQuery,
        chosen: Sequence[tuple[SearchPosition, int]],
        slices: Sequence[LaneSlice],
    ) -> list[tuple[str, LaneId]]:
        """Return those groups of slices that match, with their lanes. Items are read if the query is about them."""
        found = [
            (group.group_id, start.state)
            for (start, _), part in zip(chosen, slices, strict=True)
            for group in part.groups
        ]
        entries = await self._groups.entries(run, [group_id for group_id, _ in found])
        meant = [
            (group_id, entry.lane)
            for (group_id, state), entry in zip(found, entries, strict=True)
            if entry is not None and wanted.may_match(held_group(group_id, entry, state, view))
        ]
        if wanted.item is None or not meant:
            return meant
        items = await self._listed.items(run, [group_id for group_id, _ in meant])
        return [one for one, item in zip(meant, items, strict=True) if item == wanted.item]


def _stopped_at(chosen: Sequence[tuple[SearchPosition, int]], slices: Sequence[LaneSlice]) -> SearchPosition:
    """Return where to continue: after the last group checked, or after its lane if that has no more."""
    (start, _), last = chosen[-1], slices[-1]
    return stopped_at(start, last.groups[-1].arrival if last.left and last.groups else None)


def _where(group: GroupRow) -> str:
    if group.state == LEASED:
        return f"is in batch {group.batch_id} (step {group.step})"
    if group.state == DELIVERED:
        return f"was delivered in batch {group.batch_id} (step {group.step})"
    return f"was dropped: {group.reason}"
