"""Wait until another group may start, and log the reason of a long wait."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from random import uniform
from types import TracebackType

from lachesis._compat import timeout
from lachesis._public import ForAsyncio, Shown
from lachesis._transport.http import Note
from lachesis._transport.logs import LOG_WAIT_AFTER_S, RateLimitedLog
from lachesis.errors import LachesisError, NoPermit
from lachesis.wire.environments import Credits

_PAUSE_S = 0.5
_LOG_PERIOD_S = 300.0
_NO_ANSWER = "the service has not answered yet"

log = logging.getLogger(__name__)


class AsyncPermit(Shown, ForAsyncio):
    """A permit to start one group. It waits on entry, and is held until the block ends.

    `AsyncEnvironment.permit` returns it.
    """

    def __init__(self, permits: "Permits", wait_s: float | None) -> None:
        self._permits = permits
        self._wait_s = wait_s

    def _facts(self) -> dict[str, object]:
        return {"wait_s": self._wait_s}

    async def __aenter__(self) -> Credits:
        return await self._permits.take(self._wait_s)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._permits.give_back()


class Permits:
    """The permits of one environment. If several tasks wait for permits, one of them sends requests.

    Attributes:
        held: Number of permits that are held.
        trouble: Why the present request for a permit is sent again. None if it is not.
    """

    def __init__(
        self,
        environment: str,
        ask: Callable[[Note], Awaitable[Credits]],
        notify: Callable[[], Awaitable[None]],
    ) -> None:
        """Hold none yet.

        Args:
            environment: Its name.
            ask: Asks the service to start one more group, again and again until it answers.
            notify: Called after a permit was released: other members may then start as many groups.
        """
        self.held = 0
        self.trouble: LachesisError | None = None
        self._environment = environment
        self._ask = ask
        self._notify = notify
        self._asking = asyncio.Lock()
        self._wait_log = RateLimitedLog(_LOG_PERIOD_S)
        self._waiting_for = _NO_ANSWER

    async def take(self, wait_s: float | None) -> Credits:
        """Wait for a permit, and hold it.

        Args:
            wait_s: Maximum time to wait, seconds, ``> 0``. None means no limit.

        Raises:
            NoPermit: There was no permit in time.
            ValueError: ``wait_s`` is not above 0.
        """
        if wait_s is not None and not wait_s > 0:
            raise ValueError(f"wait_s: should be above 0, not {wait_s}; `credits` asks without waiting")
        try:
            async with timeout(wait_s), self._asking:
                return await self._granted()
        except TimeoutError:
            raise NoPermit(
                f"no permit for environment {self._environment} in {wait_s:g} s: {self._waiting_for}"
            ) from None

    async def give_back(self) -> None:
        """Release a permit, because its group was submitted or abandoned."""
        self.held -= 1
        await self._notify()

    async def _granted(self) -> Credits:
        began_s = time.monotonic()
        while True:
            try:
                granted = await self._ask(self._note)
            finally:
                self.trouble = None
            if granted.granted_groups > 0:
                self.held += 1
                self._waiting_for = _NO_ANSWER
                return granted
            self._waiting_for = granted.reason
            now_s = time.monotonic()
            if now_s - began_s >= LOG_WAIT_AFTER_S and self._wait_log.due(now_s):
                log.warning(
                    "environment %s has waited for a permit for %.0f s: %s",
                    self._environment,
                    now_s - began_s,
                    self._waiting_for,
                )
            await asyncio.sleep(_PAUSE_S * uniform(0.5, 1))

    def _note(self, trouble: LachesisError) -> None:
        self.trouble, self._waiting_for = trouble, str(trouble)
