"""A worker that fills a replay buffer, for asyncio."""

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Sequence
from random import uniform
from types import TracebackType
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Self

from lachesis._compat import add_note
from lachesis._public import ForAsyncio, Shown
from lachesis._transport.http import Sender
from lachesis._transport.logs import LOG_WAIT_AFTER_S, RateLimitedLog
from lachesis._transport.protocol import REQUEST_BYTES
from lachesis._transport.replay_calls import ReplayCalls
from lachesis._transport.retry import passes
from lachesis.errors import FragmentExists, InvalidInput, LachesisError, ReplayBlocked
from lachesis.loader.nested import Nested
from lachesis.replay.cutting import Cutter, EachStep, Steps, encode, read_steps
from lachesis.replay.drop_log import DropLog, Outgoing
from lachesis.wire.states import FragmentOutcome

_FIRST_POLL_S, _LONGEST_POLL_S = 5.0, 20.0  # the first ends when it is time to log what the worker waits for
_LOG_PERIOD_S = 300.0
_MOST_SENT = 32

log = logging.getLogger(__name__)


class AsyncWorker(Shown, ForAsyncio):
    """A worker that streams steps of episodes into a replay buffer. `AsyncReplay.worker` returns it.

    It cuts the steps into numbered fragments and sends them in order. If sending fails, the next call sends the same
    fragments again, and the buffer stores each fragment once. A fragment that the service refuses for good is dropped,
    and the error names it. At the end of its block the worker sends the rest as a shorter fragment.

    Use it in one task.
    """

    name: str
    """Name of the worker, unique in the run."""

    outcomes: Counter[FragmentOutcome]
    """Number of fragments by outcome: stored, repeated, or the reason why the buffer dropped them."""

    def __init__(
        self,
        calls: ReplayCalls,
        sender: Sender,
        name: str,
        steps: int,
        session: int | None,
        patience_s: float | None,
        wait_for_run_s: float,
    ) -> None:
        self.name = name
        self._calls = calls
        self._sender = sender
        self._session = session
        self._patience_s = patience_s
        self._wait_for_run_s = wait_for_run_s
        self._wait_log = RateLimitedLog(_LOG_PERIOD_S)
        self._drop_log = DropLog(name)
        self._cutter = Cutter(steps)
        self._number: int | None = None
        self._unsent: deque[Outgoing] = deque()
        self._alone = 0  # unsent fragments of a refused request: each is sent alone, because one may be to blame
        self._refusal: LachesisError | None = None
        self.outcomes = Counter()

    @property
    def session(self) -> int:
        """The worker's session. Raises `RuntimeError` before the worker has started."""
        if self._session is None:
            raise RuntimeError("the worker has not started: use it with `with`, or `async with`")
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
        """Add steps of an episode, and send the complete fragments.

        Waits while the rate limiter blocks inserts.

        Args:
            steps: Arrays [steps, …], nested in dicts and lists. All steps of a fragment have the same arrays. CPU
                tensors of PyTorch are accepted, including bf16 and f8.
            policy_version: The policy version that sampled the steps: one for all, or one per step. Trainers read it
                as `policy_versions`.
            episode: Id of the episode. A fragment names every episode that it has steps of.
            reward: One reward per step, or one for all steps. A fragment has the sum of its steps.
            cost: Cost of training, in any unit, ``>= 0``: one per step, or one for all steps. A fragment has the sum
                of its steps.
            priority: Sampling priority of the steps. A fragment has the highest priority of its steps.

        Raises:
            InvalidField: An array, a number or the episode is wrong.
            InvalidInput, FragmentExists: The service refused fragments for good. Notes of the error name these
                fragments, which are dropped. All others were sent.
            ReplayBlocked: The limiter blocked inserts for ``patience_s``. The next call sends the fragments.
            ServiceError, Unreachable: Sending failed. The next call sends the fragments. A worker that had not started
                took no steps: give them again.
        """
        read = read_steps(steps, policy_version, episode, reward, cost, priority)
        await self._begin()  # before it takes the steps, which would be lost if this fails
        for parts in self._cutter.add(read):
            await self._put(parts)
        await self._send()

    async def flush(self) -> None:
        """Send all steps that were added. The last steps may be a shorter fragment.

        Raises:
            InvalidInput, FragmentExists, ReplayBlocked, ServiceError, Unreachable: As `insert`.
        """
        rest = self._cutter.rest()
        if rest:
            await self._put(rest)
        await self._send()

    async def __aenter__(self) -> Self:
        """Find the next fragment number of this worker."""
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            self._drop_log.flush()

    def _facts(self) -> dict[str, object]:
        return {"name": self.name, "session": self._session, "next": self._number, "unsent": len(self._unsent)}

    async def _begin(self) -> int:
        if self._number is None:
            state = await self._sender.send_once_created(self._calls.state(), self._wait_for_run_s)
            self._session = state.session if self._session is None else self._session
            known = {worker.worker: worker for worker in state.workers if worker.session == self._session}
            own = known.get(self.name)
            # An older service does not say where to resume.
            self._number = 0 if own is None else max(own.next_number, own.resume_number)
        return self._number

    async def _put(self, parts: Sequence[Steps]) -> None:
        number = await self._begin()
        versions = [version for part in parts for version in (int(part.versions.min()), int(part.versions.max()))]
        blob = encode(parts, self.name, self.session, number)
        self._unsent.append(Outgoing(number, blob, min(versions), max(versions)))
        self._number = number + 1

    async def _send(self) -> None:
        began_s = held_since_s = time.monotonic()
        poll_s = _FIRST_POLL_S
        while self._unsent:
            fragments = self._next()
            left_s = self._left_s(began_s)
            call = self._calls.insert([fragment.blob for fragment in fragments], min(poll_s, left_s))
            try:
                receipts = await self._sender.send(call)
            except ReplayBlocked as error:
                left_s = self._left_s(began_s)
                if left_s == 0:
                    raise
                self._log_wait(error, time.monotonic() - held_since_s)
                # Not at once: a service that shuts down does not let anybody wait.
                await asyncio.sleep(min(left_s, (error.retry_after_s or 1.0) * uniform(1.0, 1.5)))
                poll_s = _LONGEST_POLL_S
                continue
            except (InvalidInput, FragmentExists) as error:
                if passes(error):
                    raise
                self._refused(fragments, error)
            else:
                self._take_out(len(fragments))
                self.outcomes.update(receipt.status for receipt in receipts)
                self._drop_log.note(fragments, receipts)
            held_since_s, poll_s = time.monotonic(), _FIRST_POLL_S
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def _refused(self, fragments: Sequence[Outgoing], error: LachesisError) -> None:
        if len(fragments) > 1:
            self._alone = len(fragments)
            return
        self._take_out(1)
        dropped = f"fragment {fragments[0].number} of worker {self.name} was dropped"
        if self._refusal is None:
            self._refusal = error
            add_note(error, dropped)
        else:
            add_note(self._refusal, f"{dropped}: {error}")

    def _take_out(self, count: int) -> None:
        for _ in range(count):
            self._unsent.popleft()
        self._alone = max(0, self._alone - count)

    def _left_s(self, began_s: float) -> float:
        return math.inf if self._patience_s is None else max(0.0, began_s + self._patience_s - time.monotonic())

    def _log_wait(self, error: ReplayBlocked, waited_s: float) -> None:
        if waited_s >= LOG_WAIT_AFTER_S and self._wait_log.due(time.monotonic()):
            at_most = "" if self._patience_s is None else f", {self._patience_s:g} s at most"
            message = "worker %s is held back for %.0f s now: %s. It waits until trainers sample%s"
            log.warning(message, self.name, waited_s, error.detail, at_most)

    def _next(self) -> list[Outgoing]:
        chosen: list[Outgoing] = []
        size = 0
        for fragment in self._unsent:
            size += len(fragment.blob)
            if chosen and (self._alone or len(chosen) == _MOST_SENT or size > REQUEST_BYTES):
                break
            chosen.append(fragment)
        return chosen
