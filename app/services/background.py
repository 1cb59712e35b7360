"""Run and end background tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from app.logs import LogBackoff
from app.services.isolation import Failure, isolated
from lachesis.wire.errors import StoreUnavailable

log = logging.getLogger("lachesis.background")


async def end(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task, and wait until it has ended. None is no task."""
    if task is not None:
        task.cancel()
        await asyncio.wait({task})


class Broadcast:
    """Wakes all tasks that wait for news."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def notify(self) -> None:
        """Wake the tasks that wait now. Later ones wait for the next call."""
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        await self._news.wait()


class Periodic:
    """Does something again and again in a task of its own. A failure is logged, and does not end it.

    Args:
        what: What it does, for the log: ``reading rate limits``.
        pause_s: Pause before each time, seconds.
        work: Does it once.
    """

    def __init__(self, what: str, pause_s: float, work: Callable[[], Awaitable[None]]) -> None:
        self._what = what
        self._pause_s = pause_s
        self._work = work
        self._lines = LogBackoff()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, and go on until `stop`."""
        self._task = asyncio.create_task(self._run(), name=self._what)

    async def stop(self) -> None:
        """End, also in the middle of the work."""
        await end(self._task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                done = await isolated(self._work())
            except StoreUnavailable as error:  # the next time does what is missing
                log.debug("%s: %s", self._what, error)
                continue
            if isinstance(done, Failure):
                self._failed(done)
            else:
                self._lines = LogBackoff()  # the next failure is a new one

    def _failed(self, failure: Failure) -> None:
        if self._lines.is_due(type(failure.error).__name__):
            log.error("%s failed, and will be tried again: %s", self._what, failure.error, exc_info=failure.trace)
