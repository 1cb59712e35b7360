"""Wake requests that wait to insert or to sample when their run changes. Each run has one listener."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

Changes = Callable[[str], AsyncGenerator[None, None]]

_REST_FACTOR = 3  # rest 3 times as long as an attempt took: many changes cost at most a quarter of a core
_SHORTEST_REST_S = 0.005


@dataclass(slots=True)
class BlockedRequests:
    """The blocked requests of one side, inserts or samples: how many so far, and how many wait now."""

    blocked: int = 0
    waiting: int = 0


@dataclass(slots=True)
class _Listener:
    """The requests that wait for changes of a run."""

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
        """Repeat ``attempt`` after each change until it returns a result.

        An attempt is never cancelled. Its errors are raised.

        Args:
            run: The run's name.
            attempt: Returns a result, or None to be called again.
            wait_s: How long to wait, seconds.
            stop: Ends the wait.
            queue: Counts the request if its first attempt returns None.

        Returns:
            The result; None after ``wait_s`` seconds, or once ``stop`` is set.
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
                    started, changed = clock(), listener.changed  # a change during the attempt sets this event
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
        """Notify the listener after each change, until no request waits."""
        async with aclosing(self._changes(run)) as changes:
            try:
                async for _ in changes:
                    if not listener.waiting:
                        return
                    listener.notify()
            finally:
                del self._listeners[run]
