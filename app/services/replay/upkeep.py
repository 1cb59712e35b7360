"""Looking a buffer's chunks over: too stale, too old, of a former session, used up, more than fit in."""

from collections.abc import Sequence

from app.core.drawing import weight_of
from app.core.freshness import oldest_fresh
from app.core.replay import Unfit, unfit
from app.store.keys import ReplayPart
from app.store.replay import ReplayStore
from app.store.replay_entries import PAST, SAMPLEABLE, WITHHELD, StoredChunk, chunk_key
from app.store.replay_view import ReplayView

_AT_ONCE = 300  # chunks; a script retires them within ten milliseconds
_LIVE = (SAMPLEABLE, WITHHELD)


class ReplayUpkeep:
    """Retires what should not be sampled any more. Each step is safe to repeat, and done in slices."""

    def __init__(self, replay: ReplayStore) -> None:
        self._replay = replay

    async def sweep(self, run: str, *, every: bool = False) -> int:
        """Retire what the version in force, time and the configuration have made unfit, or leave no room for.

        Args:
            run: The run's name.
            every: Whether to look at chunks one by one. No order tells which are partly of later versions than that in
                force, as there are once it goes down.

        Returns:
            How many chunks were retired, or set aside.
        """
        view = await self._replay.view(run)
        if view is None:
            return 0
        retired = await (self.look_over(run, view) if every else self.settle(run, view))
        retired += await self._sweep_versions(run, view)
        retired += await self._sweep_ages(run, view)
        return retired + await self._make_room(run)

    async def settle(self, run: str, view: ReplayView) -> int:
        """Look all chunks over for a change that concerns any of them, if that is still to be done."""
        if view.unsettled is None:
            return 0
        retired = await self.look_over(run, view)
        await self._replay.settled(run, view.unsettled)
        return retired

    async def look_over(self, run: str, view: ReplayView) -> int:
        """Look at all chunks, one by one: retire the unfit ones, weigh the others again; returns how many went."""
        retired, cursor = 0, None
        while cursor != 0:
            cursor, entries = await self._replay.scan(run, cursor or 0, _AT_ONCE)
            live = [entry for entry in entries if entry.place in _LIVE]
            verdicts = {entry: unfit(entry.chunk, view.standing, view.policy) for entry in live}
            for reason in {verdict for verdict in verdicts.values() if verdict is not None}:
                keys = [chunk_key(entry.chunk.chunk_id) for entry, verdict in verdicts.items() if verdict is reason]
                where = PAST if reason is Unfit.OLD_SESSION else reason.value
                retired += await self._replay.retire(run, where, keys)
            await self._weigh(run, view, [entry for entry, verdict in verdicts.items() if verdict is None])
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
        current = view.standing.version
        oldest = oldest_fresh(current, view.policy.max_staleness)
        stale = await self._sweep_scores(run, ("versions", "withheld"), "-inf", f"({oldest}", Unfit.STALE)
        return stale + await self._sweep_scores(
            run, ("versions", "withheld"), f"({current}", "+inf", Unfit.FUTURE_VERSION
        )

    async def _sweep_scores(self, run: str, parts: Sequence[ReplayPart], least: str, most: str, reason: Unfit) -> int:
        """Retire the chunks whose scores in some orders are in a range."""
        retired = 0
        for part in parts:
            while keys := await self._replay.scored(run, part, least, most, _AT_ONCE):
                done = await self._replay.retire(run, reason.value, keys)
                retired += done
                if not done:
                    break  # somebody else has retired them meanwhile
        return retired

    async def _sweep_ages(self, run: str, view: ReplayView) -> int:
        """Retire those that are too old: they are at the front, as chunks stand in the order of their insertion."""
        if view.policy.max_age_s is None:
            return 0
        retired = 0
        while keys := [key for key, _ in await self._replay.ranked(run, "order", 0, _AT_ONCE - 1)]:
            old = await self._unfit(run, view, keys, Unfit.EXPIRED)
            done = await self._replay.retire(run, Unfit.EXPIRED.value, old)
            retired += done
            if len(old) < len(keys) or not done:
                break
        withheld = [key for key, _ in await self._replay.ranked(run, "withheld", 0, -1)]
        old = await self._unfit(run, view, withheld, Unfit.EXPIRED)
        return retired + await self._replay.retire(run, Unfit.EXPIRED.value, old)

    async def _unfit(self, run: str, view: ReplayView, keys: Sequence[str], reason: Unfit) -> list[str]:
        entries = await self._replay.entries(run, keys)
        return [
            key
            for key, entry in zip(keys, entries, strict=True)
            if entry is not None and unfit(entry.chunk, view.standing, view.policy) is reason
        ]

    async def _make_room(self, run: str) -> int:
        """Evict what is more than fits in, as when the capacity was made smaller."""
        retired = 0
        while (view := await self._replay.view(run)) is not None:
            done = await self._replay.retire(run, Unfit.EVICTED.value, await self._excess(run, view))
            retired += done
            if not done:
                break
        return retired

    async def _excess(self, run: str, view: ReplayView) -> list[str]:
        """Return chunks that must go for the others to fit in; some of them, if they are many."""
        policy, chunks, payload_bytes = view.policy, view.held.chunks, view.held.payload_bytes
        most_bytes = payload_bytes if policy.max_bytes is None else policy.max_bytes
        if chunks <= policy.max_chunks and payload_bytes <= most_bytes:
            return []
        candidates = await self._replay.candidates(run, policy.eviction, _AT_ONCE)
        excess = []
        for key, entry in zip(candidates, await self._replay.entries(run, candidates), strict=True):
            if chunks <= policy.max_chunks and payload_bytes <= most_bytes:
                break
            if entry is not None:
                excess.append(key)
                chunks, payload_bytes = chunks - 1, payload_bytes - entry.chunk.payload_bytes
        return excess
