"""Those who wait for something in a run, to insert or to sample: woken by changes, with one listener a run."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

Changes = Callable[[str], AsyncGenerator[None, None]]

_REST_FACTOR = 3  # rest so many times as long as an attempt took: a flood of changes costs a quarter of a core
_SHORTEST_REST_S = 0.005


@dataclass(slots=True)
class BlockedRequests:
    """Requests of one side that cannot be answered at once: how many there were, and how many wait now."""

    blocked: int = 0
    waiting: int = 0


@dataclass(slots=True)
class _Listener:
    """Who waits for changes of a run."""

    waiting: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class ChangeNotifier:
    """Long polls.

    Args:
        changes: Yields whenever something may have changed in a run, and at least once a second.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._listeners: dict[str, _Listener] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def until(
        self,
        run: str,
        attempt: Callable[[], Awaitable[T | None]],
        wait_s: float,
        stop: asyncio.Event | None,
        queue: BlockedRequests,
    ) -> T | None:
        """Repeat ``attempt`` whenever something has changed, until it gives something.

        Never cancels an attempt. Errors of an attempt are the caller's.

        Args:
            run: The run.
            attempt: What to do; None if it must be done again.
            wait_s: For how long, seconds.
            stop: Ends the wait.
            queue: Where it is counted if the first attempt gives nothing.

        Returns:
            What it gave; None once ``wait_s`` seconds are over or ``stop`` is set.
        """
        found = await attempt()
        if found is not None:
            return found
        queue.blocked += 1
        if wait_s <= 0:
            return None
        queue.waiting += 1
        try:
            return await self._listen_until(run, attempt, wait_s, stop)
        finally:
            queue.waiting -= 1

    async def _listen_until(
        self, run: str, attempt: Callable[[], Awaitable[T | None]], wait_s: float, stop: asyncio.Event | None
    ) -> T | None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        stopped = asyncio.create_task((stop or asyncio.Event()).wait())
        try:
            with self._listening(run) as listener:
                while True:
                    started, changed = clock(), listener.changed  # what changes during the attempt rings this one
                    found = await attempt()
                    if found is None and not stopped.done():
                        await asyncio.sleep(max(_SHORTEST_REST_S, _REST_FACTOR * (clock() - started)))
                        change, left_s = asyncio.create_task(changed.wait()), max(0.0, deadline - clock())
                        await asyncio.wait({change, stopped}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                        change.cancel()
                    if found is not None or stopped.done() or clock() >= deadline:
                        return found
        finally:
            stopped.cancel()

    @contextmanager
    def _listening(self, run: str) -> Iterator[_Listener]:
        listener = self._listeners.get(run)
        if listener is None:
            listener = self._listeners[run] = _Listener()
            task = asyncio.create_task(self._listen(run, listener))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        listener.waiting += 1
        try:
            yield listener
        finally:
            listener.waiting -= 1

    async def _listen(self, run: str, listener: _Listener) -> None:
        """Ring whenever something has changed, until nobody waits any more."""
        async with aclosing(self._changes(run)) as changes:
            try:
                async for _ in changes:
                    if not listener.waiting:
                        return
                    listener.notify()
            finally:
                del self._listeners[run]
