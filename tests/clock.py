"""The clock of the running event loop, which a test puts forward in place of waiting."""

import asyncio


class LoopClock:
    """Tell the time to the event loop's timers.

    Args:
        loop: The event loop. It asks its ``time``, which the owner of this clock replaces by `time`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._own = loop.time
        self._ahead_s = 0.0

    def time(self) -> float:
        """Return the loop's own time and what it was put forward."""
        return self._own() + self._ahead_s

    async def advance(self, seconds: float, turns: int = 20) -> None:
        """Put the clock forward, and let the loop take so many turns: timers that are due have run then."""
        self._ahead_s += seconds
        for _ in range(turns):
            await asyncio.sleep(0)
