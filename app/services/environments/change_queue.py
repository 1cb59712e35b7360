"""Let the changes of a run's environments, in this process, come one after the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

from app.store.redis.compare_and_swap import Attempts

_LONGEST_WAIT_S = 30.0  # an outage of Redis must not add up over those that wait


class QueuedAttempts(Attempts):
    """Counts the attempts of a change that waits in line."""

    __slots__ = ("_asked", "_lock", "_taken")

    def __init__(self, change: str, run: str, lock: asyncio.Lock) -> None:
        super().__init__(change, run)
        self._lock = lock
        self._asked = self._taken = False

    async def waited(self) -> bool:
        """Take the turn before the first write, until the change ends. After a long wait, go on without it.

        Returns:
            Whether others had the turn: they changed the run, so read it and decide again.
        """
        if self._asked:
            return False
        self._asked, busy = True, self._lock.locked()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_WAIT_S):
                self._taken = await self._lock.acquire()
        return busy

    def end(self) -> None:
        """Give the turn back if it was taken."""
        if self._taken:
            self._lock.release()


class ChangeQueues:
    """The line of changes of each run.

    Each change makes the others decide again. Without a line, n changes at once would need n² attempts.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def attempts(self, change: str, run: str) -> AsyncIterator[QueuedAttempts]:
        """Begin a change (`Attempts`). Its turn ends with the block."""
        attempts = QueuedAttempts(change, run, self._locks.setdefault(run, asyncio.Lock()))
        try:
            yield attempts
        finally:
            attempts.end()
