"""Log what a program waits for: after 5 s, then less and less often."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from lachesis._public import in_background
from lachesis._transport.retry import LessOften

_FIRST_S = 4.9  # a little less than 5 s, so that a wait of 5 s is logged

log = logging.getLogger(__name__)


class WaitNotice:
    """Warns while something is waited for; several tasks that wait at once are one wait."""

    def __init__(self, where: str, what: str, why: Callable[[], Awaitable[str]]) -> None:
        """Log nothing yet.

        Args:
            where: For example ``run math``.
            what: What is awaited, for example ``batch``.
            why: Returns the reason; it is asked before each line.
        """
        self._said = f"{where}: no {what} for %.0f s: %s"
        self._why = why
        self._rhythm = LessOften()
        self._waiting = 0
        self._since_s = 0.0
        self._telling: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Warn if the block takes long."""
        if not self._waiting:
            self._since_s = time.monotonic()
            self._telling = in_background(self._tell())
        self._waiting += 1
        try:
            yield
            self._since_s = time.monotonic()  # one arrived: tasks that still wait count from now
        finally:
            self._waiting -= 1
            if not self._waiting and self._telling is not None:
                self._telling.cancel()

    async def _tell(self) -> None:
        while True:
            now_s = time.monotonic()
            due_s = max(self._since_s + _FIRST_S, self._rhythm.due_s)
            if now_s < due_s:
                await asyncio.sleep(due_s - now_s)
                continue
            why = await self._why()
            self._rhythm.said(time.monotonic())
            log.warning(self._said, time.monotonic() - self._since_s, why)
