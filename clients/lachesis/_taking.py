"""Asks for batches, whole or a rank's shard of each, so that none is lost with an answer that never came."""

import contextlib
import uuid
from dataclasses import dataclass

from lachesis._bodies import checked
from lachesis._http import Sender
from lachesis._lease import Lease
from lachesis._protocol import NothingYet, RunCalls, Taken
from lachesis._rank import Rank
from lachesis.errors import LachesisError
from lachesis.wire.batches import TakeBatch


@dataclass(frozen=True, slots=True)
class Held:
    """A batch that was taken, and what it is held under."""

    taken: Taken
    lease: Lease


@dataclass(slots=True)
class Seat:
    """A rank that takes its shards one after the other; ``after`` is the step of the last, None before any."""

    rank: Rank
    after: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rank, Rank):
            raise TypeError(f"rank: should be a Rank, such as Rank.from_env(), not {self.rank!r}")


class Taker:
    """Takes batches for one trainer."""

    def __init__(self, calls: RunCalls, sender: Sender, name: str | None) -> None:
        self._calls = calls
        self._sender = sender
        self._name = name
        self._unanswered: list[str] = []

    async def take(self, wait_s: float, lease_s: float | None, budget_s: float | None = None) -> Held | NothingYet:
        """Take a batch, or wait for one up to ``wait_s``; repeat the request for at most ``budget_s``."""
        # The id of a request whose answer never came is used again: the batch it may have got is not forgotten.
        request_id = self._unanswered.pop() if self._unanswered else str(uuid.uuid4())
        try:
            asked = checked(TakeBatch, request_id=request_id, lease_s=lease_s, trainer=self._name)
            taken = await self._sender.send(self._calls.take(asked, wait_s), budget_s)
        except BaseException:
            self._unanswered.append(request_id)
            raise
        return self._held(taken, lease_s)

    async def take_shard(self, seat: Seat, wait_s: float, lease_s: float | None) -> Held | NothingYet:
        """Take a rank's shard of the next batch. It needs no id: asked for again, it is the same one."""
        asked = checked(TakeBatch, lease_s=lease_s, trainer=self._name)
        taken = self._held(
            await self._sender.send(self._calls.take_shard(asked, wait_s, seat.rank, seat.after)), lease_s
        )
        if isinstance(taken, Held):
            seat.after = taken.taken.info.step
        return taken

    async def give_back_unanswered(self) -> None:
        """Ask for the batches of requests that were broken off, to give them back; else their leases must run out."""
        with contextlib.suppress(LachesisError):
            while self._unanswered:
                taken = await self.take(0.0, None, budget_s=1.0)
                if isinstance(taken, Held):
                    await taken.lease.give_back("not trained on")

    def _held(self, taken: Taken | NothingYet, lease_s: float | None) -> Held | NothingYet:
        if isinstance(taken, NothingYet):
            return taken
        return Held(taken, Lease(taken.info, self._calls, self._sender, lease_s))
