"""Takes batches or samples ahead of the step that trains on them."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Protocol, TypeVar

from lachesis._prefetch.leased import Lease
from lachesis._prefetch.queue import Ahead
from lachesis._transport.protocol import NothingYet


class Holding(Protocol):
    """A batch or a sample that was taken."""

    @property
    def lease(self) -> Lease:
        """What it is held under."""

    def is_stale(self, version: int, oldest: int) -> bool:
        """Whether it was taken under an older policy version than this, and holds something from before ``oldest``."""


H = TypeVar("H", bound=Holding)
Take = Callable[[float], Awaitable[H | NothingYet]]


class Feed(Ahead[H]):
    """The batches of one loop, in the order they were taken: some ready, some in the loop's hands.

    All that is neither acknowledged nor given back when the feed is closed, it gives back.
    """

    grace_s: ClassVar[float] = 0.5  # a batch that is on its way is better had than asked for again

    def __init__(
        self,
        take: Take[H],
        prefetch: int,
        patience_s: float | None,
        where: str,
        what: str,
        instead: str = "",
        explain: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        """Begin to take batches when the first is asked for.

        Args:
            take: Takes one, or waits for one as long as it is told.
            prefetch: How many to keep ready, ``>= 0``.
            patience_s: How long `next` waits; None: for ever.
            where: Whose they are, such as ``run math``.
            what: What one is called.
            instead: How to take one without a loop.
            explain: Asks why there is none now; None: use the last answer.
        """
        self._instead = instead
        self._explain = explain
        super().__init__(prefetch, patience_s, where, what)
        self._take = take
        self._handed_out: list[H] = []
        self._fresh_from = (0, 0)

    async def next(self) -> H:
        """Return the next batch.

        Raises:
            NoBatch: None came in time.
            ServiceError, Unreachable: None can be taken.
        """
        batch = await super().next()
        self._handed_out = [*(one for one in self._handed_out if one.lease.held), batch]
        return batch

    @property
    def held(self) -> int:
        """How many we hold, ready ones included."""
        return sum(one.lease.held for one in (*self._handed_out, *self._ready))

    async def drop_stale(self, policy_version: int, max_staleness: int) -> None:
        """Give back what is ready and has become too old; what is taken from now on is looked at as well."""
        self._fresh_from = (policy_version, policy_version - max_staleness)
        stale = [batch for batch in self._ready if self._is_stale(batch)]
        self._ready = deque(batch for batch in self._ready if not self._is_stale(batch))
        self._room.set()
        for batch in reversed(stale):
            await batch.lease.give_back(f"too old for policy version {policy_version}")

    async def pause(self) -> None:
        """Take no more batches until it is started again; ready ones stay."""
        await self._stop()

    def forget(self) -> None:
        """Drop ready and held batches without a request: a rewind has taken them away."""
        for batch in (*self._handed_out, *self._ready):
            batch.lease.forget()
        self._ready.clear()
        self._fresh_from = (0, 0)

    async def aclose(self) -> None:
        """Take no more batches, and give back those that are ready or in the loop's hands."""
        await self._stop()
        # The last first: each goes to the front of the queue, so that they end up in the order they came.
        why = f"its loop was left before ack(); acknowledge a {self._what} inside the loop{self._instead}"
        for batch in reversed([*self._handed_out, *self._ready]):
            await batch.lease.give_back("not trained on", why)
        self._ready.clear()

    async def _more(self, missing: int, poll_s: float) -> Sequence[H] | NothingYet:  # noqa: ARG002 - one by one
        taken = await self._take(poll_s)
        if isinstance(taken, NothingYet):
            return taken
        if self._is_stale(taken):
            await taken.lease.give_back("too old by now")
            return ()
        return (taken,)

    async def _why(self) -> str:
        return (self._explain and await self._explain()) or self._waiting_for

    def _is_stale(self, batch: H) -> bool:
        return batch.is_stale(*self._fresh_from)
