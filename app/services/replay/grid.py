"""Look at a replay buffer as a grid."""

from dataclasses import dataclass

from app.core.replay.grid import MOST_LOOKED_AT, Grid, grid, spread_ranks
from app.services.replay.samples import existing_view
from app.store.redis.keys import ReplayPart
from app.store.replay.store import ReplayStore

_PARTS: tuple[ReplayPart, ...] = ("order", "reserved_order")


@dataclass(frozen=True, slots=True)
class BufferGrid:
    """A grid of ``looked_at`` chunks out of ``chunks``."""

    chunks: int
    looked_at: int
    grid: Grid


class ReplayGrids:
    """Describes replay buffers. The work does not grow with the buffer."""

    def __init__(self, replay: ReplayStore) -> None:
        self._replay = replay

    async def of(self, run: str) -> BufferGrid:
        """Describe the chunks that may be sampled now or later, all or some of them, evenly by order of insertion.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        view = await existing_view(self._replay, run)
        sizes = await self._replay.sizes(run, _PARTS)
        ranks, before, keys = spread_ranks(sum(sizes), MOST_LOOKED_AT), 0, list[str]()
        for part, size in zip(_PARTS, sizes, strict=True):
            own = [rank - before for rank in ranks if before <= rank < before + size]
            keys += await self._replay.at_ranks(run, part, own)
            before += size
        entries = await self._replay.entries(run, keys)
        chunks = [entry.chunk for entry in entries if entry is not None]  # some may have left in the meantime
        return BufferGrid(sum(sizes), len(chunks), grid(chunks, view.standing.version))
