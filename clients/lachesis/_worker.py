"""A worker that fills a replay buffer, for asyncio."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from lachesis._cutting import Cutter, EachStep, Steps, encode, read_steps
from lachesis._http import Sender
from lachesis._replay_calls import ReplayCalls
from lachesis.errors import ReplayBlocked
from lachesis.loader.nested import Nested
from lachesis.wire.fragments import FragmentOutcome

_LONGEST_POLL_S = 20.0
_MOST_SENT = 32
_MOST_BYTES_SENT = 8 * 1024 * 1024


class Worker:
    """Streams what happens in its episodes into a buffer, cut into fragments and numbered; made by `Replay.worker`.

    Fragments are sent in order, and again with the next call where that failed: none is lost, and none stored twice.
    At the end of its block it sends the rest, as a shorter fragment. Use it in one task.
    """

    def __init__(
        self,
        calls: ReplayCalls,
        sender: Sender,
        name: str,
        steps: int,
        session: int | None,
        patience_s: float | None,
    ) -> None:
        """Set up, without a word to the service; see `Replay.worker`."""
        self.name = name
        self._calls = calls
        self._sender = sender
        self._session = session
        self._patience_s = patience_s
        self._cutter = Cutter(steps)
        self._number: int | None = None
        self._unsent: deque[bytes] = deque()
        self.outcomes: Counter[FragmentOutcome] = Counter()
        """What became of fragments that were sent."""

    @property
    def session(self) -> int:
        """The session it is in. `RuntimeError`: it has not begun."""
        if self._session is None:
            raise RuntimeError("the worker has not begun; use it with `async with`")
        return self._session

    async def insert(
        self,
        steps: Nested,
        policy_version: int | Sequence[int] | NDArray[Any],
        *,
        episode: str | None = None,
        reward: EachStep | None = None,
        cost: EachStep | None = None,
        priority: float | None = None,
    ) -> None:
        """Add steps of an episode, and send the fragments that are full with them.

        Waits while the rate limiter holds inserts back.

        Args:
            steps: Arrays [steps, …], nested in dicts and lists; the same ones for all steps of a fragment.
            policy_version: What sampled them: one for all, or one for each. A trainer reads it as `policy_versions`.
            episode: The episode's id; a fragment names all that it has steps of.
            reward: One for each step, or the same for all; a fragment has their sum.
            cost: What they cost to train on, in any unit, ``>= 0``; likewise.
            priority: What they are worth to be sampled; a fragment has the largest of its steps.

        Raises:
            InvalidField: Arrays, or numbers, are not as they should be.
            ReplayBlocked: The limiter held back for longer than ``patience_s``; the fragments go with the next call.
            ServiceError, Unreachable: They could not be sent; they go with the next call.
        """
        for parts in self._cutter.add(read_steps(steps, policy_version, episode, reward, cost, priority)):
            await self._put(parts)
        await self._send()

    async def flush(self) -> None:
        """Send what has been added, the last of it as a shorter fragment; see `insert` for what it raises."""
        rest = self._cutter.rest()
        if rest:
            await self._put(rest)
        await self._send()

    async def __aenter__(self) -> Self:
        """Find out where the worker was, should it have been here before."""
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.flush()

    async def _begin(self) -> int:
        if self._number is None:
            state = await self._sender.send(self._calls.state())
            self._session = state.session if self._session is None else self._session
            known = {worker.worker: worker for worker in state.workers if worker.session == self._session}
            self._number = known[self.name].next_number if self.name in known else 0
        return self._number

    async def _put(self, parts: Sequence[Steps]) -> None:
        number = await self._begin()
        self._unsent.append(encode(parts, self.name, self.session, number))
        self._number = number + 1

    async def _send(self) -> None:
        until_s = None if self._patience_s is None else time.monotonic() + self._patience_s
        while self._unsent:
            blobs = self._next()
            left_s = _LONGEST_POLL_S if until_s is None else max(0.0, until_s - time.monotonic())
            try:
                call = self._calls.insert(blobs, min(_LONGEST_POLL_S, left_s))
                receipts = await self._sender.send(call, budget_s=None if until_s is None else left_s)
            except ReplayBlocked:
                if left_s == 0:
                    raise
                continue
            for _ in blobs:
                self._unsent.popleft()
            self.outcomes.update(receipt.status for receipt in receipts)

    def _next(self) -> list[bytes]:
        chosen: list[bytes] = []
        for blob in self._unsent:
            if chosen and (len(chosen) == _MOST_SENT or sum(map(len, chosen)) + len(blob) > _MOST_BYTES_SENT):
                break
            chosen.append(blob)
        return chosen
