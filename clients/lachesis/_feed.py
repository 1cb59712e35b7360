"""Takes batches or samples ahead of the step that trains on them."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from lachesis._lease import Lease
from lachesis._protocol import NothingYet
from lachesis._retry import Seldom
from lachesis.errors import NoBatch

LONGEST_POLL_S = 30.0
"""How long one request waits for a batch: what stands between us and the service gives up on longer ones."""

_GRACE_S = 0.5
_SAID_AFTER_S, _SAID_EVERY_S = 5.0, 300.0

log = logging.getLogger(__name__)


class Holding(Protocol):
    """A batch or a sample that was taken."""

    @property
    def lease(self) -> Lease:
        """What it is held under."""

    def is_stale(self, version: int, oldest: int) -> bool:
        """Whether it was taken under an older policy version than this, and holds something from before ``oldest``."""


H = TypeVar("H", bound=Holding)
Take = Callable[[float], Awaitable[H | NothingYet]]


class Feed(Generic[H]):
    """The batches of one loop, in the order they were taken: some ready, some in the loop's hands.

    All that is neither acknowledged nor given back when the feed is closed, it gives back.
    """

    def __init__(self, take: Take[H], prefetch: int, patience_s: float | None, what: str = "batch") -> None:
        """Begin to take batches.

        Args:
            take: Takes one, or waits for one as long as it is told.
            prefetch: How many to keep ready, ``>= 0``.
            patience_s: How long `next` waits; None: for ever.
            what: What one is called.
        """
        self._what = what
        self._take = take
        self._prefetch = prefetch
        self._patience_s = patience_s
        # Half of what `next` waits: so it knows by then what the service waits for.
        self._poll_s = LONGEST_POLL_S if patience_s is None else min(LONGEST_POLL_S, patience_s / 2)
        self._wanted = prefetch
        self._ready: deque[H] = deque()
        self._handed_out: list[H] = []
        self._fresh_from = (0, 0)
        self._notice = Seldom(_SAID_EVERY_S)
        self._waiting_for = "the service has not answered yet"
        self._room, self._news = asyncio.Event(), asyncio.Event()
        self._filling: asyncio.Task[None] | None = None
        self._stopping = False

    async def next(self) -> H:
        """Return the next batch.

        Raises:
            NoBatch: None came in time.
            ServiceError, Unreachable: None can be taken.
        """
        self._wanted = self._prefetch + 1
        self._room.set()
        try:
            async with asyncio.timeout(self._patience_s):
                while not self._ready:
                    await self._something_new(self.start())
        except TimeoutError:
            raise NoBatch(f"no {self._what} in {self._patience_s:g} s: {self._waiting_for}") from None
        finally:
            self._wanted = self._prefetch
        batch = self._ready.popleft()
        self._room.set()
        self._handed_out = [*(one for one in self._handed_out if one.lease.held), batch]
        return batch

    async def drop_stale(self, policy_version: int, max_staleness: int) -> None:
        """Give back what is ready and has become too old; what is taken from now on is looked at as well."""
        self._fresh_from = (policy_version, policy_version - max_staleness)
        stale = [batch for batch in self._ready if self._is_stale(batch)]
        self._ready = deque(batch for batch in self._ready if not self._is_stale(batch))
        self._room.set()
        for batch in reversed(stale):
            await batch.lease.give_back(f"too old for policy version {policy_version}")

    def start(self) -> asyncio.Task[None]:
        """Take batches from now on."""
        if self._filling is None:
            self._filling = asyncio.create_task(self._fill())
            self._filling.add_done_callback(lambda _: self._news.set())
        return self._filling

    async def forget(self) -> None:
        """Take no more batches, and let go of those that are ready without a word to the service."""
        await self._stop()
        for batch in self._ready:
            batch.lease.forget()
        self._ready.clear()

    async def aclose(self) -> None:
        """Take no more batches, and give back those that are ready or in the loop's hands."""
        await self._stop()
        # The last first: each goes to the front of the queue, so that they end up in the order they came.
        for batch in reversed([*self._handed_out, *self._ready]):
            await batch.lease.give_back("not trained on")
        self._ready.clear()

    async def _stop(self) -> None:
        """End the filling: a batch that is on its way is better had than asked for again, so it may arrive."""
        if self._filling is not None:
            self._stopping = True
            self._room.set()
            await asyncio.wait([self._filling], timeout=_GRACE_S)
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
            self._filling, self._stopping = None, False

    async def _something_new(self, filling: asyncio.Task[None]) -> None:
        if filling.done():
            self._filling = None  # so that another call tries again
            filling.result()
        self._news.clear()
        await self._news.wait()

    async def _fill(self) -> None:
        while not self._stopping:
            if len(self._ready) >= self._wanted:
                self._room.clear()
                await self._room.wait()
                continue
            taken = await self._take(self._poll_s)
            if isinstance(taken, NothingYet):
                self._waiting_for = taken.reason
                self._say(taken.reason)
            elif self._is_stale(taken):
                await taken.lease.give_back("too old by now")
            else:
                self._ready.append(taken)
                self._news.set()

    def _say(self, reason: str) -> None:
        is_awaited = self._wanted > self._prefetch
        if is_awaited and self._poll_s >= _SAID_AFTER_S and self._notice.due(time.monotonic()):
            log.warning("still no %s after a wait of %g s: %s", self._what, self._poll_s, reason)

    def _is_stale(self, batch: H) -> bool:
        return batch.is_stale(*self._fresh_from)
