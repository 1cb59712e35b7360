"""Drop waiting groups that are too many policy versions or too many seconds old to be trained on."""

from collections.abc import Awaitable, Callable, Sequence

from app.core.groups.staleness import oldest_fresh
from app.core.model import DropReason, Lane, LaneId
from app.core.runs.view import RunView
from app.services.batches.retrieval import unfit_now
from app.store.groups.store import GroupStore, WantedHeads
from app.store.runs.store import RunStore

_AT_ONCE = 1000

Heads = Callable[[str, WantedHeads], Awaitable[list[Lane]]]


class Staleness:
    """Drops stale groups from the queue and the buffers of a run."""

    def __init__(self, runs: RunStore, groups: GroupStore) -> None:
        self._runs = runs
        self._groups = groups

    async def sweep_versions(self, run: str) -> int:
        """Drop the groups that the current version makes too old, and handle those of future versions.

        Returns:
            Number of dropped groups.
        """
        view = await self._runs.view(run)
        oldest = oldest_fresh(view.policy_version, view.policy.max_staleness)
        dropped = await self._drop_versions(run, view, "-inf", f"({oldest}", DropReason.STALE)
        later = f"({view.policy_version}"
        if view.policy.future_versions == "refuse":
            return dropped + await self._drop_versions(run, view, later, "+inf", DropReason.FUTURE_VERSION)
        while group_ids := await self._groups.of_versions(run, later, "+inf", _AT_ONCE):
            if not await self._groups.restamp(run, group_ids, view.policy_version):
                break
        return dropped

    async def _drop_versions(self, run: str, view: RunView, least: str, most: str, reason: DropReason) -> int:
        dropped = 0
        while group_ids := await self._groups.of_versions(run, least, most, _AT_ONCE):
            lanes = await self._lanes_of(run, group_ids)
            done = await self._groups.drop(run, lanes, reason, view.policy.history_ms)
            dropped += done
            if not done:
                break  # another process has dropped or taken them
        return dropped

    async def _lanes_of(self, run: str, group_ids: Sequence[str]) -> list[tuple[str, LaneId]]:
        entries = await self._groups.entries(run, group_ids)
        return [(group_id, entry.lane) for group_id, entry in zip(group_ids, entries, strict=True) if entry]

    async def sweep_ages(self, run: str) -> int:
        """Drop the groups that have waited longer than the run allows; return how many."""
        view = await self._runs.view(run)
        if view.policy.max_age_s is None:
            return 0
        dropped = 0
        for heads, lanes in ((self._groups.heads, view.lanes), (self._groups.buffer_heads, view.buffers)):
            for lane, queued in lanes.items():
                while old := await self._old_heads(run, view, heads, lane, queued):
                    dropped += await self._groups.drop(run, old, DropReason.EXPIRED, view.policy.history_ms)
                    if len(old) < _AT_ONCE:
                        break
        return dropped

    async def _old_heads(
        self, run: str, view: RunView, heads: Heads, lane: LaneId, queued: int
    ) -> list[tuple[str, LaneId]]:
        """Return the groups at the front of a lane that are too old. A lane is in order of arrival."""
        (oldest,) = await heads(run, {lane: (queued, _AT_ONCE)})
        entries = await self._groups.entries(run, [head.group_id for head in oldest.heads]) if oldest.heads else []
        pairs = zip(oldest.heads, entries, strict=True)
        return [
            (head.group_id, lane) for head, entry in pairs if entry and unfit_now(entry, view) is DropReason.EXPIRED
        ]
