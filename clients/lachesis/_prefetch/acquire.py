"""Asks for batches, whole or a rank's shard of each, so that none is lost with an answer that never came."""

import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from lachesis._prefetch.leased import Ends, Lease
from lachesis._transport.bodies import checked
from lachesis._transport.http import Sender
from lachesis._transport.protocol import Call, NothingYet, RunCalls, Taken
from lachesis.errors import LachesisError, RunRewound
from lachesis.rank import Rank
from lachesis.wire.batches import TakeBatch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held:
    """A batch that was taken, and what it is held under."""

    taken: Taken
    lease: Lease

    def is_stale(self, version: int, oldest: int) -> bool:
        """Whether it was formed under an older policy version than this, and has a group from before ``oldest``.

        A batch that a rewind brought back is never too old: it is trained on again unchanged.
        """
        info = self.taken.info
        if info.rewound or info.policy_version >= version:
            return False
        return any(group.policy_version is not None and group.policy_version < oldest for group in info.groups)


class Requests:
    """Sends requests that take something, each under an id of its own."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._unanswered: list[str] = []

    @property
    def has_unanswered(self) -> bool:
        """Whether there is a request whose answer never came."""
        return bool(self._unanswered)

    async def send(self, call_of: Callable[[str], Call[T]], budget_s: float | None = None) -> T:
        """Send a request; repeat it for at most ``budget_s``."""
        # The id of a request whose answer never came is used again: what it may have got is not forgotten.
        request_id = self._unanswered.pop() if self._unanswered else str(uuid.uuid4())
        try:
            return await self._sender.send(call_of(request_id), budget_s)
        except BaseException:
            self._unanswered.append(request_id)
            raise


@dataclass(slots=True)
class Seat:
    """A rank that takes its shards one after the other; ``after`` is the step of the last, None before any."""

    rank: Rank
    after: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rank, Rank):
            raise TypeError(f"rank: should be a Rank, such as Rank.from_env(), not {self.rank!r}")


class Taker:
    """Takes batches for one trainer.

    Attributes:
        rewinds: Number of rewinds of the run when this trainer began, once known. After a rewind by another trainer the
            service refuses this one.
    """

    def __init__(self, calls: RunCalls, sender: Sender, name: str | None) -> None:
        self._calls = calls
        self._sender = sender
        self._name = name
        self._requests = Requests(sender)
        self.rewinds: int | None = None
        self._refused = False

    def begin(self) -> None:
        """Start again after `RunRewound`, which the caller has seen."""
        if self._refused:
            self.rewinds, self._refused = None, False

    async def fenced(self, sending: Awaitable[T]) -> T:
        """Send a request that says `rewinds`.

        Raises:
            RunRewound: Another trainer rewound the run after this one began.
        """
        try:
            return await sending
        except RunRewound:
            self._refused = True
            raise

    async def take(self, wait_s: float, lease_s: float | None, budget_s: float | None = None) -> Held | NothingYet:
        """Take a batch, or wait for one up to ``wait_s``; repeat the request for at most ``budget_s``."""

        def asking(request_id: str) -> Call[Taken | NothingYet]:
            return self._calls.take(self._asked(lease_s, request_id=request_id), wait_s)

        return await self._held(self._requests.send(asking, budget_s), lease_s)

    async def take_next(self, wait_s: float, lease_s: float | None) -> Held | NothingYet:
        """Take a batch for a loop. Read `rewinds` before the first, because that may wait for long."""
        await self._learn()
        return await self.take(wait_s, lease_s)

    async def take_shard(self, seat: Seat, wait_s: float, lease_s: float | None) -> Held | NothingYet:
        """Take a rank's shard of the next batch. It needs no id: asked for again, it is the same one."""
        await self._learn()
        call = self._calls.take_shard(self._asked(lease_s), wait_s, seat.rank, seat.after)
        taken = await self._held(self._sender.send(call), lease_s)
        if isinstance(taken, Held):
            seat.after = taken.taken.info.step
        return taken

    async def give_back_unanswered(self) -> None:
        """Ask for the batches of requests that were broken off, to give them back; else their leases must run out."""
        with contextlib.suppress(LachesisError):
            while self._requests.has_unanswered:
                taken = await self.take(0.0, None, budget_s=1.0)
                if isinstance(taken, Held):
                    await taken.lease.give_back("not trained on")

    async def _learn(self) -> None:
        if self.rewinds is None:
            self.rewinds = (await self._sender.send(self._calls.show())).rewinds

    def _asked(self, lease_s: float | None, **more: Any) -> TakeBatch:
        known = {} if self.rewinds is None else {"rewinds": self.rewinds}
        return checked(TakeBatch, lease_s=lease_s, trainer=self._name, **known, **more)

    async def _held(self, taking: Awaitable[Taken | NothingYet], lease_s: float | None) -> Held | NothingYet:
        taken = await self.fenced(taking)
        if isinstance(taken, NothingYet):
            return taken
        if self.rewinds is None:
            self.rewinds = taken.info.rewinds
        batch, lease = taken.info.batch, taken.info.lease
        rank = None if taken.info.shard is None else taken.info.shard.rank
        ends = Ends(
            lambda: self._calls.ack(batch, lease, rank),
            lambda reason: self._calls.nack(batch, lease, reason),
            lambda lease_s: self._calls.extend(batch, lease, lease_s),
        )
        return Held(taken, Lease(ends, taken.info.lease_s, self._sender, lease_s))
