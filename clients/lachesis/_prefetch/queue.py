"""A queue of what the service hands out, filled ahead of the work on it."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import ClassVar, Generic, TypeVar

from typing_extensions import Self

from lachesis._compat import timeout
from lachesis._transport.logs import WaitLog
from lachesis._transport.protocol import NothingYet
from lachesis._transport.retry import passes
from lachesis.errors import InvalidField, LachesisError, NoBatch

_LONGEST_POLL_S = 30.0  # proxies give up on requests that wait longer

T = TypeVar("T")


class PrefetchQueue(ABC, Generic[T]):
    """A queue that a background task keeps full. A subclass defines how it takes more.

    As an iterator it ends when it is closed. Several tasks may wait for the next one at once.
    """

    grace_s: ClassVar[float] = 0.0
    """How long to wait for what is on its way when filling ends."""
    none_came: ClassVar[type[LachesisError]] = NoBatch
    """Raised if none came in time."""

    def __init__(self, prefetch: int, wait_s: float | None, where: str, what: str, slack: int = 0) -> None:
        """Take nothing before the first is asked for.

        Args:
            prefetch: How many to keep ready, ``>= 0``.
            wait_s: How long to wait for the next one, seconds, ``> 0``. None means no limit.
            where: Such as ``run math``; for messages.
            what: What one is called; for messages.
            slack: How many may be used before the queue refills.

        Raises:
            InvalidField: ``prefetch`` or ``wait_s`` is out of its range.
        """
        if prefetch < 0:
            raise InvalidField(f"should be 0 or more, not {prefetch}", ("prefetch",))
        if wait_s is not None and not wait_s > 0:
            raise InvalidField(f"should be above 0, not {wait_s}", ("wait_s",))
        self._what = what
        self._prefetch = prefetch
        self._wait_s = wait_s
        self._slack = slack
        # A request waits half as long, so that the service has given a reason before the wait ends.
        self._poll_s = _LONGEST_POLL_S if wait_s is None else min(_LONGEST_POLL_S, wait_s / 2)
        self._awaited = 0
        self._ready: deque[T] = deque()
        self._wait_log = WaitLog(where, what, self._why)
        self._waiting_for = "the service has not answered yet"
        self._room, self._news = asyncio.Event(), asyncio.Event()
        self._filling: asyncio.Task[None] | None = None
        self._paused = self._closed = False
        self._is_idle = False  # take no more until the next one is asked for

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Return the next one.

        After a wait that got none in time, no more are taken until the next one is asked for. If prefetching ended
        with a temporary error before this wait, it starts again.

        Raises:
            NoBatch, NoItem: None came in time.
            ServiceError, Unreachable: None can be taken.
            StopAsyncIteration: It was closed.
        """
        self._awaited += 1
        self._is_idle = False
        self._room.set()
        if self._awaited == 1:
            self._drop_old_error()
        try:
            with nullcontext() if self._has_one() else self._wait_log.watching():
                async with timeout(self._wait_s):
                    while self._closed or not self._has_one():
                        await self._something_new()
        except TimeoutError:
            self._is_idle = self._awaited == 1
            raise self.none_came(f"no {self._what} in {self._wait_s:g} s: {self._waiting_for}") from None
        finally:
            self._awaited -= 1
        one = self._ready.popleft()
        self._room.set()
        return one

    async def pause(self) -> None:
        """Take no more until `resume`. Ready ones stay."""
        self._paused = True
        self._room.set()
        if (filling := self._filling) is None:
            return
        try:
            with suppress(TimeoutError):
                async with timeout(self.grace_s):  # its end cancels the filling, and so does ours
                    await asyncio.gather(filling, return_exceptions=True)
        finally:
            self._filling = None

    def resume(self) -> None:
        """Take more again, unless it was closed."""
        if not self._closed:
            self._paused = False
            self._fill_in_background()

    @abstractmethod
    async def _more(self, missing: int, poll_s: float) -> Sequence[T] | NothingYet:
        """Take up to ``missing``, or wait up to ``poll_s`` for some."""

    async def _why(self) -> str:
        """Return why there is none: the service's last answer."""
        return self._waiting_for

    def _has_one(self) -> bool:
        return bool(self._ready)

    async def _close(self) -> None:
        """Take no more, and end the iteration in all tasks. Wait for what is on its way."""
        self._closed = True
        self._news.set()
        await self.pause()

    def _end(self) -> None:
        """Take no more, and end the iteration in all tasks, without a wait."""
        self._closed = self._paused = True
        self._news.set()
        if self._filling is not None:
            self._filling.cancel()

    def _drop_old_error(self) -> None:
        """Start prefetching again if it ended with a temporary error before this wait."""
        if (filling := self._filling) is None or not filling.done() or filling.cancelled():
            return
        if isinstance(error := filling.exception(), LachesisError) and passes(error):
            self._filling = None
            if not self._paused:
                self._fill_in_background()

    async def _something_new(self) -> None:
        """Wait until there may be one, or the filling has ended."""
        if self._closed:
            raise StopAsyncIteration
        if not self._paused and (filling := self._fill_in_background()).done():
            self._filling = None  # so that another wait tries again
            filling.result()
        self._news.clear()
        await self._news.wait()

    def _fill_in_background(self) -> asyncio.Task[None]:
        if self._filling is None:
            self._filling = asyncio.create_task(self._fill())
            self._filling.add_done_callback(lambda _: self._news.set())
        return self._filling

    async def _fill(self) -> None:
        while not self._paused:
            missing = self._prefetch + self._awaited - len(self._ready)
            slack = 0 if self._awaited > len(self._ready) else self._slack  # who waits now is served at once
            if self._is_idle or missing <= slack:
                self._room.clear()
                await self._room.wait()
                continue
            # A variable would keep these in memory until there are more.
            self._receive(await self._more(missing, self._poll_s))

    def _receive(self, taken: Sequence[T] | NothingYet) -> None:
        if isinstance(taken, NothingYet):
            self._waiting_for = taken.reason
        elif taken:
            self._ready.extend(taken)
            self._news.set()
