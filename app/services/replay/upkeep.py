"""Looking a buffer's chunks over: too stale, too old, of a former session, used up, more than fit in."""

from collections.abc import Iterable, Sequence
from itertools import product

from app.core.groups.staleness import oldest_fresh
from app.core.replay.buffer import ChunkDropReason, ChunkRecord, ReplayPolicy, chunk_drop_reason, uses_open, within
from app.core.replay.sampling import weight_of
from app.store.redis.keys import ReplayPart
from app.store.replay.entries import ARCHIVED, RESERVED, SAMPLEABLE, StoredChunk, chunk_key
from app.store.replay.store import ReplayStore
from app.store.replay.view import ReplayView

_AT_ONCE = 300  # chunks; a script retires them within ten milliseconds
_LIVE = (SAMPLEABLE, RESERVED)
_BY_VERSION: tuple[ReplayPart, ...] = ("versions", "reserved")


class ReplayCleanup:
    """Retires what should not be sampled any more. Each step is safe to repeat, and done in slices."""

    def __init__(self, replay: ReplayStore) -> None:
        self._replay = replay

    async def sweep(self, run: str) -> int:
        """Retire what the version in force, time and the configuration have made unfit, or leave no room for.

        Returns:
            How many chunks were retired, or set aside.
        """
        view = await self._replay.view(run)
        if view is None:
            return 0
        retired = await self.settle(run, view)
        retired += await self._sweep_versions(run, view)
        if view.policy.max_age_s is not None:
            retired += await self._sweep_ages(run)
        return retired + await self._make_room(run)

    async def settle(self, run: str, view: ReplayView) -> int:
        """Look all chunks over for a change that concerns any of them, if that is still to be done."""
        if view.unsettled is None:
            return 0
        retired, cursor = 0, None
        while cursor != 0:
            cursor, entries = await self._replay.scan(run, cursor or 0, _AT_ONCE)
            retired += await self._judge(run, entries)
        await self._replay.settled(run, view.unsettled)
        return retired

    async def _judge(self, run: str, entries: Iterable[StoredChunk | None]) -> int:
        """Retire the unfit ones of some chunks, weigh the others again; returns how many went.

        What they are judged by is read after they were: what came in meanwhile came in under nothing later.
        """
        view = await self._replay.view(run)
        if view is None:
            return 0
        fit: list[StoredChunk] = []
        doomed: dict[ChunkDropReason, list[str]] = {}
        for entry in entries:
            if entry is None or entry.place not in _LIVE:
                continue
            reason = chunk_drop_reason(entry.chunk, view.standing, view.policy)
            if reason is None:
                fit.append(entry)
            else:
                doomed.setdefault(reason, []).append(chunk_key(entry.chunk.chunk_id))
        await self._weigh(run, view, fit)
        misplaced = [entry for entry in fit if entry.place != _place_of(entry.chunk, view.policy)]
        await self._replay.place(run, view, [chunk_key(entry.chunk.chunk_id) for entry in misplaced])
        retired = 0
        for reason, keys in doomed.items():
            place = ARCHIVED if reason is ChunkDropReason.OLD_SESSION else reason.value
            retired += await self._replay.retire(run, place, keys, view)
        return retired

    async def _weigh(self, run: str, view: ReplayView, entries: Sequence[StoredChunk]) -> None:
        alpha = view.policy.sampling.alpha
        weights = ((entry, weight_of(entry.chunk.priority, alpha)) for entry in entries)
        changed = [
            (entry.chunk.chunk_id, entry.chunk.priority, weight, entry.chunk.priority)
            for entry, weight in weights
            if weight != entry.weight
        ]
        if changed:
            await self._replay.prioritise(run, view.revision, changed)

    async def _sweep_versions(self, run: str, view: ReplayView) -> int:
        """Retire those whose version is too old, or later than the one in force."""
        current = view.standing.version
        oldest = oldest_fresh(current, view.policy.max_staleness)
        retired = 0
        for part, bounds in product(_BY_VERSION, (("-inf", f"({oldest}"), (f"({current}", "+inf"))):
            while keys := await self._replay.scored(run, part, *bounds, _AT_ONCE):
                done = await self._judge(run, await self._replay.entries(run, keys))
                retired += done
                if not done:
                    break  # somebody else has retired them meanwhile, or the version has changed
        return retired

    async def _sweep_ages(self, run: str) -> int:
        """Retire those that are too old: they are at the front, as chunks stand in the order of their insertion."""
        retired = 0
        while keys := [key for key, _ in await self._replay.ranked(run, "order", 0, _AT_ONCE - 1)]:
            done = await self._judge(run, await self._replay.entries(run, keys))
            retired += done
            if done < len(keys):
                break
        reserved = [key for key, _ in await self._replay.ranked(run, "reserved", 0, -1)]
        for first in range(0, len(reserved), _AT_ONCE):
            entries = await self._replay.entries(run, reserved[first : first + _AT_ONCE])
            retired += await self._judge(run, entries)
        return retired

    async def _make_room(self, run: str) -> int:
        """Evict what is more than fits in, as when the capacity was made smaller."""
        retired, view = 0, await self._replay.view(run)
        while view is not None and not within(view.held.chunks, view.held.payload_bytes, view.policy):
            candidates = await self._replay.candidates(run, view.policy.eviction, _AT_ONCE)
            entries = await self._replay.entries(run, candidates)
            # How many are too many is read last: others may be making room, too, and have evicted the first of these.
            seen, view = view, await self._replay.view(run)
            if view is None or view.revision != seen.revision:
                continue
            done = await self._replay.retire(run, ChunkDropReason.EVICTED.value, _excess(view, entries), view)
            retired += done
            if not done:
                break
            view = await self._replay.view(run)
        return retired


def _excess(view: ReplayView, candidates: Iterable[StoredChunk | None]) -> list[str]:
    """Return chunks that must go for the others to fit in; some of them, if they are many."""
    excess, chunks, payload_bytes = list[str](), view.held.chunks, view.held.payload_bytes
    for entry in candidates:
        if within(chunks, payload_bytes, view.policy):
            break
        if entry is not None:
            excess.append(chunk_key(entry.chunk.chunk_id))
            chunks, payload_bytes = chunks - 1, payload_bytes - entry.chunk.payload_bytes
    return excess


def _place_of(chunk: ChunkRecord, policy: ReplayPolicy) -> str:
    return RESERVED if uses_open(chunk, policy) == 0 else SAMPLEABLE
