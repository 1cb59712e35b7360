"""Acquire batches and samples, so that a lost answer loses none."""

import contextlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from lachesis._prefetch.leased import HeldLease
from lachesis._transport.bodies import checked
from lachesis._transport.http import Sender
from lachesis._transport.protocol import Call, LeaseCalls, NothingYet
from lachesis._transport.replay_calls import ReplayCalls, TakenSample
from lachesis._transport.run_calls import RunCalls, Taken
from lachesis.errors import LachesisError, RunRewound
from lachesis.rank import Rank
from lachesis.wire.batches import TakeBatch
from lachesis.wire.samples import TakeSample

T = TypeVar("T")
V = TypeVar("V", bound=Taken | TakenSample)


@dataclass(frozen=True, slots=True)
class Held(Generic[V]):
    """A batch or a sample, and its lease."""

    taken: V
    lease: HeldLease


class Acquirer(ABC, Generic[V]):
    """Send requests that take something, each under a request id."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._unanswered: list[str] = []

    @abstractmethod
    async def take(
        self, wait_s: float, lease_s: float | None = None, budget_s: float | None = None
    ) -> Held[V] | NothingYet:
        """Take the next one, or wait up to ``wait_s`` for it. Repeat the request for at most ``budget_s``."""

    async def give_back_unanswered(self) -> None:
        """Ask again for what interrupted requests may have taken, and give it back. Else its lease must expire."""
        with contextlib.suppress(LachesisError):
            while self._unanswered and self._sender.is_open:
                taken = await self.take(0.0, budget_s=1.0)
                if isinstance(taken, Held):
                    await taken.lease.give_back("not trained on")

    async def _request(self, call_of: Callable[[str], Call[T]], budget_s: float | None) -> T:
        # The id of a request whose answer never came is used again: it returns what that request took.
        request_id = self._unanswered.pop() if self._unanswered else str(uuid.uuid4())
        try:
            return await self._sender.send(call_of(request_id), budget_s)
        except BaseException:
            self._unanswered.append(request_id)
            raise

    def _held(self, taken: V, calls: LeaseCalls, lease_s: float | None) -> Held[V]:
        return Held(taken, HeldLease(calls, taken.info.lease_s, self._sender, lease_s))


@dataclass(slots=True)
class ShardCursor:
    """A rank that takes its shards in order.

    Attributes:
        rank: The rank.
        after: The latest step of the shards that it has taken; None: it has taken none.
        request_id: The id of its requests until it gets the next shard.
    """

    rank: Rank
    after: int | None = None
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        if not isinstance(self.rank, Rank):
            raise TypeError(f"rank: should be a Rank, such as Rank.from_env(), not {self.rank!r}")


class BatchAcquirer(Acquirer[Taken]):
    """Take batches for one trainer.

    Attributes:
        rewinds: Number of rewinds of the run when this trainer started, once known. After a rewind by another trainer
            the service refuses this one.
    """

    def __init__(self, calls: RunCalls, sender: Sender, name: str | None) -> None:
        super().__init__(sender)
        self._calls = calls
        self._name = name
        self.rewinds: int | None = None
        self._refused = False
        self._leases: WeakValueDictionary[LeaseCalls, HeldLease] = WeakValueDictionary()

    def begin(self) -> None:
        """Start again, if the caller has seen `RunRewound`."""
        if self._refused:
            self.start(None)

    def start(self, rewinds: int | None) -> None:
        """Start with this number of ``rewinds``. None means that the next loop asks for it."""
        self.rewinds, self._refused = rewinds, False

    @contextlib.contextmanager
    def noting_refusal(self) -> Iterator[None]:
        """Record that the caller sees the `RunRewound` of this block. One of a background task may never reach it."""
        try:
            yield
        except RunRewound:
            self._refused = True
            raise

    async def take(
        self, wait_s: float, lease_s: float | None = None, budget_s: float | None = None
    ) -> Held[Taken] | NothingYet:
        """Take a batch, or wait up to ``wait_s`` for one. Repeat the request for at most ``budget_s``."""

        def call_of(request_id: str) -> Call[Taken | NothingYet]:
            return self._calls.take(self._body(lease_s, request_id=request_id), wait_s)

        return await self._leased(self._request(call_of, budget_s), lease_s)

    async def take_next(self, wait_s: float, lease_s: float | None) -> Held[Taken] | NothingYet:
        """Take a batch for a loop. Read `rewinds` first, because the first batch may take long to come."""
        await self._learn_rewinds()
        return await self.take(wait_s, lease_s)

    async def take_shard(self, cursor: ShardCursor, wait_s: float, lease_s: float | None) -> Held[Taken] | NothingYet:
        """Take a rank's shard of the next batch. A request whose answer was lost gets the same shard again."""
        await self._learn_rewinds()
        body = self._body(lease_s, request_id=cursor.request_id)
        call = self._calls.take_shard(body, wait_s, cursor.rank, cursor.after)
        held = await self._leased(self._sender.send(call), lease_s)
        if isinstance(held, Held):
            step, cursor.request_id = held.taken.info.step, str(uuid.uuid4())
            cursor.after = step if cursor.after is None else max(cursor.after, step)  # an earlier one may come again
        return held

    async def _learn_rewinds(self) -> None:
        if self.rewinds is None:
            self.rewinds = (await self._sender.send(self._calls.show())).rewinds

    def _body(self, lease_s: float | None, **more: Any) -> TakeBatch:
        known = {} if self.rewinds is None else {"rewinds": self.rewinds}
        return checked(TakeBatch, lease_s=lease_s, trainer=self._name, **known, **more)

    async def _leased(self, taking: Awaitable[Taken | NothingYet], lease_s: float | None) -> Held[Taken] | NothingYet:
        taken = await taking
        if isinstance(taken, NothingYet):
            return taken
        info = taken.info
        if self.rewinds is None:
            self.rewinds = info.rewinds
        rank = None if info.shard is None else info.shard.rank
        calls = self._calls.lease(info.batch, info.lease, rank)
        before = self._leases.get(calls)
        if before is not None and before.held:  # a rank gets its shard again: both are acknowledged at once
            before.ask_for(lease_s)
            return Held(taken, before)
        held = self._held(taken, calls, lease_s)
        self._leases[calls] = held.lease
        return held


class SampleAcquirer(Acquirer[TakenSample]):
    """Take samples of one kind, for one loop."""

    def __init__(self, calls: ReplayCalls, sender: Sender, asked: dict[str, Any]) -> None:
        """Check what is asked for.

        Args:
            calls: The requests of the buffer.
            sender: Sends them.
            asked: Fields of `TakeSample` that each request has.

        Raises:
            InvalidField: A value is wrong.
        """
        super().__init__(sender)
        checked(TakeSample, **asked)
        self._calls = calls
        self._asked = asked

    async def take(
        self, wait_s: float, lease_s: float | None = None, budget_s: float | None = None
    ) -> Held[TakenSample] | NothingYet:
        """Take a sample, or wait up to ``wait_s`` for one. Repeat the request for at most ``budget_s``."""
        asked = self._asked if lease_s is None else self._asked | {"lease_s": lease_s}

        def call_of(request_id: str) -> Call[TakenSample | NothingYet]:
            return self._calls.take(checked(TakeSample, request_id=request_id, **asked), wait_s)

        taken = await self._request(call_of, budget_s)
        if isinstance(taken, NothingYet):
            return taken
        return self._held(taken, self._calls.lease(taken.info.sample, taken.info.lease), asked.get("lease_s"))
