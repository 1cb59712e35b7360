"""Log messages about long waits and repeated trouble, without flooding the log."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

LOG_WAIT_AFTER_S = 4.9
"""A little less than 5 s, so that a wait of 5 s is logged."""

log = logging.getLogger(__name__)


class RateLimitedLog:
    """Allow the first message, then one per period."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._last_s: float | None = None

    def due(self, now_s: float) -> bool:
        """Return whether to log now. True counts as logged."""
        if self._last_s is not None and now_s < self._last_s + self._period_s:
            return False
        self._last_s = now_s
        return True


class LogSchedule:
    """Schedule the messages of a wait: each pause is three times as long as the previous one.

    If no message follows for one more pause after it is due, the pauses start again with the first.
    """

    def __init__(self, first_s: float = 10.0, longest_s: float = 1800.0) -> None:
        self._first_s = self._pause_s = first_s
        self._longest_s = longest_s
        self.due_s = float("-inf")
        """Time at which the next message is due."""

    def logged(self, now_s: float) -> None:
        """Record that a message was logged."""
        if now_s > self.due_s + self._pause_s:
            self._pause_s = self._first_s
        self.due_s = now_s + self._pause_s
        self._pause_s = min(self._longest_s, 3 * self._pause_s)


class WaitLog:
    """Log what a program waits for: after 5 s, then less and less often. Tasks that wait at once are one wait."""

    def __init__(self, where: str, what: str, why: Callable[[], Awaitable[str]]) -> None:
        """Log nothing yet.

        Args:
            where: For example ``run math``.
            what: What is awaited, for example ``batch``.
            why: Returns the reason; it is asked before each message.
        """
        self._message = f"{where}: no {what} for %.0f s: %s"
        self._why = why
        self._schedule = LogSchedule()
        self._waiting = 0
        self._since_s = 0.0
        self._logging: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Log if the block takes long."""
        if not self._waiting:
            self._since_s = time.monotonic()
            self._logging = asyncio.create_task(self._keep_logging())
        self._waiting += 1
        try:
            yield
            self._since_s = time.monotonic()  # one arrived: tasks that still wait count from now
        finally:
            self._waiting -= 1
            if not self._waiting and self._logging is not None:
                self._logging.cancel()

    async def _keep_logging(self) -> None:
        while True:
            now_s = time.monotonic()
            due_s = max(self._since_s + LOG_WAIT_AFTER_S, self._schedule.due_s)
            if now_s < due_s:
                await asyncio.sleep(due_s - now_s)
                continue
            why = await self._why()
            self._schedule.logged(time.monotonic())
            log.warning(self._message, time.monotonic() - self._since_s, why)
