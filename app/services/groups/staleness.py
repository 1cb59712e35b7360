"""Drop waiting groups that are too many policy versions or too many seconds old to be trained on."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from app.core.groups.staleness import drop_reason, oldest_fresh
from app.core.model import Lane, LaneId
from app.core.runs.view import QueueView
from app.store.groups.entries import GroupAge, StoredGroup
from app.store.groups.store import DROPPED_AT_ONCE, GroupStore, WantedHeads
from app.store.redis.compare_and_swap import Attempts
from app.store.runs.store import RunStore
from lachesis.wire.states import DropReason

_REST = 2  # a sweep in the background rests this many times as long as it works
_PAGES_AT_ONCE = 2

Heads = Callable[[str, WantedHeads], Awaitable[list[Lane]]]


class _Page(NamedTuple):
    """A page of groups.

    Attributes:
        changed: How many changed; 0 if no more groups need to.
        dropped: How many were dropped.
        view: The run, if the next page can be decided on it.
    """

    changed: int
    dropped: int
    view: QueueView | None = None


class Staleness:
    """Drops stale groups from the queue and the buffers of a run."""

    def __init__(self, runs: RunStore, groups: GroupStore) -> None:
        self._runs = runs
        self._groups = groups

    async def sweep_versions(self, run: str) -> int:
        """Drop the groups that the current version makes too old, and handle those of future versions.

        This takes a page or a few. If that is not enough, maintenance does the rest (`finish`).

        Returns:
            Number of groups dropped by now.
        """
        sweep, dropped, page = await self._runs.requested_sweep(run), 0, _Page(0, 0)
        for _ in range(_PAGES_AT_ONCE):
            page = await self._sweep_page(run, page.view)
            dropped += page.dropped
            if not page.changed:
                if sweep is not None:
                    await self._runs.finish_sweep(run, sweep)
                return dropped
        await self._runs.request_sweep(run)
        return dropped

    async def finish(self, run: str) -> None:
        """Do the sweep that was requested, page by page. It rests between pages, so that others wait less."""
        while (sweep := await self._runs.requested_sweep(run)) is not None:
            page = _Page(0, 0)
            while True:
                began = time.perf_counter()
                page = await self._sweep_page(run, page.view)
                if not page.changed:
                    break
                await asyncio.sleep(_REST * (time.perf_counter() - began))
            await self._runs.finish_sweep(run, sweep)

    async def _sweep_page(self, run: str, view: QueueView | None) -> _Page:
        attempts = Attempts("sweep versions", run)
        while attempts.again():
            view = view or await self._runs.queue(run)
            page = await self._sweep_page_of(run, view)
            if page is not None:
                return page
            view = None

    async def _sweep_page_of(self, run: str, view: QueueView) -> _Page | None:
        """Handle a page of stale groups, else a page of future ones. None means that the run has changed."""
        oldest = oldest_fresh(view.policy_version, view.policy.max_staleness)
        stale = await self._groups.drop_versions(run, ("-inf", f"({oldest}"), DROPPED_AT_ONCE, "stale", view)
        if stale is None:
            return None
        if stale:
            return _Page(stale, stale, view)
        if view.policy.future_versions == "refuse":
            future = f"({view.policy_version}", "+inf"
            refused = await self._groups.drop_versions(run, future, DROPPED_AT_ONCE, "future_version", view)
            return None if refused is None else _Page(refused, refused)
        restamped = await self._groups.restamp(run, DROPPED_AT_ONCE, view)
        return None if restamped is None else _Page(restamped, 0)

    async def sweep_ages(self, run: str) -> int:
        """Drop the groups that have waited longer than the run allows; return how many."""
        view = await self._runs.queue(run)
        if view.policy.max_age_s is None:
            return 0
        dropped = 0
        for heads, lanes in ((self._groups.heads, view.lanes), (self._groups.buffer_heads, view.buffers)):
            for lane in await self._old_lanes(run, view, heads, lanes):
                while old := await self._old_heads(run, view, heads, lane, lanes[lane]):
                    dropped += await self._groups.drop(run, old, "expired")
                    if len(old) < DROPPED_AT_ONCE:
                        break
        return dropped

    async def _old_lanes(self, run: str, view: QueueView, heads: Heads, lanes: Mapping[LaneId, int]) -> list[LaneId]:
        """Return the lanes whose oldest group is too old, in two round trips for all lanes."""
        fronts = [
            lane for lane in await heads(run, {lane: (queued, 1) for lane, queued in lanes.items()}) if lane.heads
        ]
        entries = await self._groups.entries(run, [lane.heads[0].group_id for lane in fronts])
        pairs = zip(fronts, entries, strict=True)
        return [lane.id for lane, entry in pairs if entry is not None and drop_reason_now(entry, view) == "expired"]

    async def _old_heads(
        self, run: str, view: QueueView, heads: Heads, lane: LaneId, queued: int
    ) -> list[tuple[str, LaneId]]:
        """Return the groups at the front of a lane that are too old. A lane is in order of arrival."""
        (oldest,) = await heads(run, {lane: (queued, DROPPED_AT_ONCE)})
        entries = await self._groups.entries(run, [head.group_id for head in oldest.heads])
        pairs = zip(oldest.heads, entries, strict=True)
        return [(head.group_id, lane) for head, entry in pairs if entry and drop_reason_now(entry, view) == "expired"]


def drop_reason_now(entry: StoredGroup | GroupAge, view: QueueView) -> DropReason | None:
    """Return why a waiting group should no longer be trained on; None if it still may be."""
    return drop_reason(entry.policy_version, view.policy_version, view.policy, view.clock_ms - entry.accepted_ms)
