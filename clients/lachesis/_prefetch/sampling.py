"""Takes samples of a replay buffer, so that none is lost with an answer that never came."""

import contextlib
from dataclasses import dataclass
from typing import Any

from lachesis._prefetch.acquire import Requests
from lachesis._prefetch.leased import Ends, Lease
from lachesis._transport.bodies import checked
from lachesis._transport.http import Sender
from lachesis._transport.protocol import Call, NothingYet
from lachesis._transport.replay_calls import ReplayCalls, TakenSample
from lachesis.errors import LachesisError
from lachesis.wire.samples import TakeSample


@dataclass(frozen=True, slots=True)
class HeldSample:
    """A sample that was taken, and what it is held under."""

    taken: TakenSample
    lease: Lease

    def is_stale(self, version: int, oldest: int) -> bool:  # noqa: ARG002 - that of batches
        """Whether it should be replaced: never, it was fresh when it was drawn."""
        return False


class SampleTaker:
    """Takes samples of one kind, for one loop."""

    def __init__(self, calls: ReplayCalls, sender: Sender, asked: dict[str, Any]) -> None:
        """Set up.

        Args:
            calls: The requests of the buffer.
            sender: What sends them.
            asked: What each sample is asked for with: fields of `TakeSample`.

        Raises:
            InvalidField: A value is wrong.
        """
        checked(TakeSample, **asked)
        self._calls = calls
        self._sender = sender
        self._asked = asked
        self._requests = Requests(sender)

    async def take(self, wait_s: float, budget_s: float | None = None) -> HeldSample | NothingYet:
        """Take a sample, or wait for one up to ``wait_s``; repeat the request for at most ``budget_s``."""

        def asking(request_id: str) -> Call[TakenSample | NothingYet]:
            return self._calls.take(checked(TakeSample, request_id=request_id, **self._asked), wait_s)

        taken = await self._requests.send(asking, budget_s)
        if isinstance(taken, NothingYet):
            return taken
        sample, lease = taken.info.sample, taken.info.lease
        ends = Ends(
            lambda: self._calls.ack(sample, lease),
            lambda reason: self._calls.nack(sample, lease, reason),
            lambda lease_s: self._calls.extend(sample, lease, lease_s),
        )
        return HeldSample(taken, Lease(ends, taken.info.lease_s, self._sender, self._asked.get("lease_s")))

    async def give_back_unanswered(self) -> None:
        """Ask for the samples of requests that were broken off, to give them back; else their leases must run out."""
        with contextlib.suppress(LachesisError):
            while self._requests.has_unanswered:
                taken = await self.take(0.0, budget_s=1.0)
                if isinstance(taken, HeldSample):
                    await taken.lease.give_back("not trained on")
