"""Retire a buffer's chunks that are too stale, too old, of a former session, used up, or more than fit."""

from collections.abc import Iterable, Sequence
from itertools import product

from app.core.groups.staleness import oldest_fresh
from app.core.replay.buffer import ChunkRecord, chunk_drop_reason, fits_capacity, uses_open
from app.core.replay.sampling import weight_of
from app.store.redis.keys import ReplayPart
from app.store.replay.entries import StoredChunk, chunk_key
from app.store.replay.store import PriorityChange, ReplayStore
from app.store.replay.view import ReplayView
from lachesis.wire.replay import ReplaySettings
from lachesis.wire.states import ARCHIVED, RESERVED, SAMPLEABLE, ChunkDropReason

_AT_ONCE = 300  # chunks; a script retires them within ten milliseconds
_LIVE = (SAMPLEABLE, RESERVED)
_BY_VERSION: tuple[ReplayPart, ...] = ("versions", "reserved")
_BY_AGE: tuple[ReplayPart, ...] = ("order", "reserved_order")


class ReplayCleanup:
    """Retires chunks that should no longer be sampled. Each step is safe to repeat, and done in slices."""

    def __init__(self, replay: ReplayStore) -> None:
        self._replay = replay

    async def sweep(self, run: str) -> int:
        """Retire the chunks that are ineligible by policy version, age or configuration, or that have no room.

        Returns:
            Number of chunks that were retired or archived.
        """
        view = await self._replay.view(run)
        if view is None:
            return 0
        retired = await self.settle(run, view)
        retired += await self._sweep_versions(run, view)
        if view.settings.max_age_s is not None:
            retired += await self._sweep_ages(run)
        return retired + await self._make_room(run)

    async def expiries_ms(self, run: str, settings: ReplaySettings) -> list[int]:
        """Return the run clocks at which the oldest chunks will be too old; none if chunks have no maximum age."""
        if settings.max_age_s is None:
            return []
        keys = [key for part in _BY_AGE for key, _ in await self._replay.ranked(run, part, 0, 0)]
        oldest = [entry.chunk for entry in await self._replay.entries(run, keys) if entry is not None]
        return [int(chunk.inserted_ms + settings.max_age_s * 1000) + 1 for chunk in oldest]

    async def settle(self, run: str, view: ReplayView) -> int:
        """Check all chunks after a change that may concern any of them, if that is still to be done."""
        if view.unsettled is None:
            return 0
        retired, cursor = 0, None
        while cursor != 0:
            cursor, entries = await self._replay.scan(run, cursor or 0, _AT_ONCE)
            retired += await self._apply_rules(run, entries)
        await self._replay.settled(run, view.unsettled)
        return retired

    async def _apply_rules(self, run: str, entries: Iterable[StoredChunk | None]) -> int:
        """Retire the ineligible ones of some chunks, and weigh the others again; return how many were retired.

        The rules are read after the chunks, so that no chunk is checked by rules older than itself.
        """
        view = await self._replay.view(run)
        if view is None:
            return 0
        fit: list[StoredChunk] = []
        doomed: dict[ChunkDropReason, list[str]] = {}
        for entry in entries:
            if entry is None or entry.place not in _LIVE:
                continue
            reason = chunk_drop_reason(entry.chunk, view.context, view.settings)
            if reason is None:
                fit.append(entry)
            else:
                doomed.setdefault(reason, []).append(chunk_key(entry.chunk.chunk_id))
        await self._weigh(run, view, fit)
        misplaced = [entry for entry in fit if entry.place != _place_of(entry.chunk, view.settings)]
        await self._replay.place(run, view, [chunk_key(entry.chunk.chunk_id) for entry in misplaced])
        retired = 0
        for reason, keys in doomed.items():
            place = ARCHIVED if reason == "old_session" else reason
            retired += await self._replay.retire(run, place, keys, view)
        return retired

    async def _weigh(self, run: str, view: ReplayView, entries: Sequence[StoredChunk]) -> None:
        alpha = view.settings.sampling.alpha
        changed = [
            PriorityChange(entry.chunk.chunk_id, entry.chunk.priority, weight, before=entry.chunk.priority)
            for entry in entries
            if (weight := weight_of(entry.chunk.priority, alpha)) != entry.weight
        ]
        if changed:
            await self._replay.prioritise(run, view.revision, changed)

    async def _sweep_versions(self, run: str, view: ReplayView) -> int:
        """Retire the chunks whose version is too old, or later than the current one."""
        current = view.context.version
        oldest = oldest_fresh(current, view.settings.max_staleness)
        retired = 0
        for part, bounds in product(_BY_VERSION, (("-inf", f"({oldest}"), (f"({current}", "+inf"))):
            while keys := await self._replay.scored(run, part, *bounds, _AT_ONCE):
                done = await self._apply_rules(run, await self._replay.entries(run, keys))
                retired += done
                if not done:
                    break  # another process has retired them, or the version has changed
        return retired

    async def _sweep_ages(self, run: str) -> int:
        """Retire the chunks that are too old. Chunks are in order of insertion, so these are at the front."""
        retired = 0
        for part in _BY_AGE:
            while keys := [key for key, _ in await self._replay.ranked(run, part, 0, _AT_ONCE - 1)]:
                done = await self._apply_rules(run, await self._replay.entries(run, keys))
                retired += done
                if done < len(keys):
                    break
        return retired

    async def _make_room(self, run: str) -> int:
        """Evict the chunks beyond the capacity, for example after it was made smaller."""
        retired, view = 0, await self._replay.view(run)
        while view is not None and not fits_capacity(view.held.chunks, view.held.payload_bytes, view.settings):
            candidates = await self._replay.candidates(run, view.settings.eviction, _AT_ONCE)
            entries = await self._replay.entries(run, candidates)
            # The number to evict is read last, because other processes may have evicted the first of these chunks.
            seen, view = view, await self._replay.view(run)
            if view is None or view.revision != seen.revision:
                continue
            done = await self._replay.retire(run, "evicted", _excess(view, entries), view)
            retired += done
            if not done:
                break
            view = await self._replay.view(run)
        return retired


def _excess(view: ReplayView, candidates: Iterable[StoredChunk | None]) -> list[str]:
    """Return the chunks to evict so that the others fit; only some if there are many."""
    excess, chunks, payload_bytes = list[str](), view.held.chunks, view.held.payload_bytes
    for entry in candidates:
        if fits_capacity(chunks, payload_bytes, view.settings):
            break
        if entry is not None:
            excess.append(chunk_key(entry.chunk.chunk_id))
            chunks, payload_bytes = chunks - 1, payload_bytes - entry.chunk.payload_bytes
    return excess


def _place_of(chunk: ChunkRecord, settings: ReplaySettings) -> str:
    return RESERVED if uses_open(chunk, settings) == 0 else SAMPLEABLE
