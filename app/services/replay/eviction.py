"""Make room for fresh groups when the store's memory is full: evict chunks of replay buffers.

The store refuses writes at its limit, and an empty queue has no memory to free. So maintenance evicts chunks before
the limit, and a refused submission evicts chunks at once. Chunks that a sample or a snapshot holds stay.
"""

import asyncio
import logging
from collections.abc import Sequence

from app.core.replay.memory import StoreMemory, bytes_to_free, is_full, shares
from app.services.isolation import Failure, for_each_run, isolated
from app.store.groups.garbage import GarbageStore
from app.store.replay.entries import chunk_key
from app.store.replay.store import ReplayStore
from app.store.runs.store import RunStore

log = logging.getLogger("lachesis.replay")

_AT_ONCE = 300  # chunks of a buffer; then memory is read again, because other processes evict chunks too
_MOST_LOOKED_AT = 20_000  # chunks of a buffer, in case snapshots hold most of them
_REST_S = 5.0  # pause once nothing can be evicted, so that not every submission and tick searches again


class ReplayEviction:
    """Frees memory of replay buffers."""

    def __init__(self, runs: RunStore, garbage: GarbageStore, replay: ReplayStore) -> None:
        self._runs = runs
        self._garbage = garbage
        self._replay = replay
        self._lock = asyncio.Lock()
        self._resting_until = 0.0

    async def evict_if_full(self) -> bool:
        """Evict chunks while the store is nearly full; return whether it takes groups now. Safe to repeat."""
        clock = asyncio.get_running_loop().time
        async with self._lock:
            if clock() < self._resting_until:
                return False
            before = memory = await self._replay.memory()
            if not is_full(memory):
                return True
            evicted = 0
            while wanted_bytes := bytes_to_free(memory):
                gone = await self._evict(wanted_bytes)
                if not gone:
                    self._resting_until = clock() + _REST_S
                    break
                evicted += gone
                memory = await self._replay.memory()
        if evicted:
            _warn(before, memory, evicted)
        return memory.used_bytes <= memory.limit_bytes

    async def _evict(self, wanted_bytes: int) -> int:
        """Evict some chunks of each buffer by its share, and free their payloads; return how many."""
        held, _ = await for_each_run(self._replay.chunk_bytes, await self._runs.names())
        evicted = 0
        for run, share_bytes in shares(wanted_bytes, held).items():
            done = await isolated(self._evict_from(run, share_bytes))
            evicted += 0 if isinstance(done, Failure) else done  # maintenance of that run reports the failure
        return evicted

    async def _evict_from(self, run: str, wanted_bytes: int) -> int:
        view = await self._replay.view(run)
        if view is None:
            return 0
        looked_at, most = 0, _AT_ONCE
        while True:
            keys = await self._replay.candidates(run, view.settings.eviction, most)
            going = await self._held_only_here(run, keys[looked_at:], wanted_bytes)
            if going or len(keys) < most or most >= _MOST_LOOKED_AT:
                break
            looked_at, most = len(keys), 4 * most
        evicted = await self._replay.retire(run, "evicted", going, view)
        await self._garbage.delete_marked(run)
        return evicted

    async def _held_only_here(self, run: str, keys: Sequence[str], wanted_bytes: int) -> list[str]:
        """Choose chunks in order, until evicting them frees ``wanted_bytes`` of payloads; at most `_AT_ONCE` chunks."""
        entries = [entry for entry in await self._replay.entries(run, keys) if entry and not entry.chunk.reserved]
        ids = [fragment_id for entry in entries for fragment_id in entry.fragment_ids]
        elsewhere = await self._replay.named_elsewhere(run, ids)
        chosen = list[str]()
        for entry in entries:
            if wanted_bytes <= 0 or len(chosen) == _AT_ONCE:
                break
            if elsewhere.isdisjoint(entry.fragment_ids):
                chosen.append(chunk_key(entry.chunk.chunk_id))
                wanted_bytes -= entry.chunk.payload_bytes
        return chosen


def _warn(before: StoreMemory, after: StoreMemory, chunks: int) -> None:
    log.warning(
        "Redis used %d of %d bytes: evicted %d chunks of replay buffers to make way for groups; it uses %d bytes now. "
        "Set a smaller max_bytes for the buffers, or give Redis more memory",
        before.used_bytes,
        before.limit_bytes,
        chunks,
        after.used_bytes,
    )
