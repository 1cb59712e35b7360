"""Look at a replay buffer as a grid."""

from dataclasses import dataclass

from app.core.replay.grid import MOST_LOOKED_AT, Grid, grid, spread_ranks
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
        view = await self._replay.existing(run)
        sizes = await self._replay.sizes(run, _PARTS)
        spots = await self._replay.spots(run, spread_ranks(sum(sizes), MOST_LOOKED_AT))
        return BufferGrid(sum(sizes), len(spots), grid(spots, view.context.version))
