"""Run and end background tasks."""

import asyncio
from typing import Any


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
