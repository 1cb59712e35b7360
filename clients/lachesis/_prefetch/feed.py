"""Take batches or samples ahead of the step that trains on them."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Generic

from lachesis._prefetch.acquire import Acquirer, Held, V
from lachesis._prefetch.leased import HeldLease, give_all_back
from lachesis._prefetch.queue import PrefetchQueue
from lachesis._transport.protocol import NothingYet

_POLL_S = 4.0  # without `explain`, so that an answer is there when a long wait is logged

log = logging.getLogger(__name__)


def _never(_taken: V, _version: int, _oldest: int) -> bool:
    return False


class Feed(PrefetchQueue[Held[V]], Generic[V]):
    """The batches or samples of one loop, in the order they were taken: some ready, some handed out.

    Closing it gives back all that is neither acknowledged nor given back.
    """

    grace_s: ClassVar[float] = 0.5  # better to receive a batch that is on its way than to ask for it again

    def __init__(
        self,
        take: Callable[[float], Awaitable[Held[V] | NothingYet]],
        prefetch: int,
        wait_s: float | None,
        where: str,
        what: str,
        instead: str = "",
        explain: Callable[[], Awaitable[str | None]] | None = None,
        is_stale: Callable[[V, int, int], bool] = _never,
        *,
        divided: bool = False,
    ) -> None:
        """Take nothing before the first is asked for.

        Args:
            take: Takes one, or waits for one up to the seconds given.
            prefetch: How many to keep ready, ``>= 0``.
            wait_s: How long to wait for the next one, seconds, ``> 0``. None means no limit.
            where: The run, such as ``run math``; for messages.
            what: ``batch`` or ``sample``; for messages.
            instead: How to take one without a loop; for messages.
            explain: Returns why there is none now. None means that the message has the service's last answer.
            is_stale: Whether one that was taken is too old for this policy version and this oldest version.
            divided: Whether ranks share each one. All ranks must get the same, so none is left out.
        """
        super().__init__(prefetch, wait_s, where, what)
        self._where = where
        self._divided = divided
        self._take = take
        self._instead = instead
        self._explain = explain
        if explain is None:
            self._poll_s = min(self._poll_s, _POLL_S)
        self._is_stale_value = is_stale
        self._handed_out: list[HeldLease] = []
        self._policy_version = self._oldest_version = 0  # of the latest `drop_stale`

    async def __anext__(self) -> Held[V]:
        taken = await super().__anext__()
        self._handed_out = [*(lease for lease in self._handed_out if lease.held), taken.lease]
        return taken

    @property
    def held(self) -> int:
        """How many are held, ready ones included."""
        return sum(lease.held for lease in self._leases())

    async def drop_stale(self, policy_version: int, max_staleness: int) -> None:
        """Give back ready ones that are too old now. Later ones are checked as well."""
        self._policy_version, self._oldest_version = policy_version, policy_version - max_staleness
        stale = [one for one in self._ready if self._is_stale(one)]
        self._ready = deque(one for one in self._ready if not self._is_stale(one))
        self._handed_out += (one.lease for one in stale)  # if this is cancelled, `aclose` gives the rest back
        self._room.set()
        await give_all_back((one.lease for one in reversed(stale)), f"too old for policy version {policy_version}")

    def forget(self) -> None:
        """Drop ready and handed-out ones without a request, for example because a rewind has taken them away.

        It takes no more until its loop asks: another loop may be the next one that does.
        """
        for lease in self._leases():
            lease.forget()
        self._ready.clear()
        self._is_idle = self._awaited == 0
        self._policy_version = self._oldest_version = 0

    async def aclose(self) -> None:
        """Take no more, and give back what is ready or handed out and not acknowledged."""
        try:
            await self._close()
            # The last first: each goes to the front of the queue, so that they end up in the order they came.
            why = f"its loop was left before ack(); acknowledge a {self._what} inside the loop{self._instead}"
            await give_all_back(reversed(self._leases()), "not trained on", why)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Take no more, and give nothing back: the leases expire, as nothing extends them."""
        self._end()
        self.forget()

    def _leases(self) -> list[HeldLease]:
        ready = list(self._ready)  # another thread may ask for them, to show the trainer
        return [*self._handed_out, *(one.lease for one in ready)]

    def _has_one(self) -> bool:
        while self._ready and not (self._divided or self._ready[0].lease.held):
            self._ready.popleft()
            self._room.set()
            log.warning("%s: left out a prefetched %s, because its lease was lost", self._where, self._what)
        return bool(self._ready)

    async def _more(self, missing: int, poll_s: float) -> Sequence[Held[V]] | NothingYet:  # noqa: ARG002 - one by one
        taken = await self._take(poll_s)
        if isinstance(taken, NothingYet):
            return taken
        if self._is_stale(taken):
            await taken.lease.give_back("too old by now")
            return ()
        return (taken,)

    async def _why(self) -> str:
        return (self._explain and await self._explain()) or self._waiting_for

    def _is_stale(self, one: Held[V]) -> bool:
        return self._is_stale_value(one.taken, self._policy_version, self._oldest_version)


async def close_feed(feed: Feed[V], acquirer: Acquirer[V], closing: asyncio.Lock) -> None:
    """Close a feed and give back what interrupted requests took, after others that hold the lock.

    If this is interrupted, the leases expire.
    """
    try:
        async with closing:
            await feed.aclose()
            await acquirer.give_back_unanswered()
    finally:
        if not feed.closed:  # else another task closes it
            feed.abandon()
