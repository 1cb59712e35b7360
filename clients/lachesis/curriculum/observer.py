"""Send observations to a curriculum in the background, many in a request."""

import asyncio
import contextlib
import math
import uuid
from collections import deque
from collections.abc import Callable
from itertools import islice

from lachesis._compat import add_note, timeout
from lachesis._transport.bodies import checked
from lachesis._transport.curriculum_calls import CurriculumCalls
from lachesis._transport.http import Sender
from lachesis.errors import LachesisError, Unreachable
from lachesis.wire.curriculum_items import Observation, Observations

_DELAY_S = 0.1
_MOST_WAITING = 10_000
_MOST_SENT = 1000  # the service counts so many in one step
_MOST_REWARDS_SENT = 200_000


class Observer:
    """A queue of observations, sent in order. Each request has an id, so that a repeated one counts once.

    Args:
        calls: The requests of the curriculum.
        sender: Sends them.
        counted: Called when observations have arrived.
    """

    def __init__(self, calls: CurriculumCalls, sender: Sender, counted: Callable[[], None]) -> None:
        self._counted = counted
        self._calls = calls
        self._sender = sender
        self._waiting: deque[Observation] = deque()
        self._removed = 0
        self._some, self._hurry, self._changed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._ended = False
        self._lost: tuple[int, LachesisError] | None = None
        self._trouble: LachesisError | None = None

    async def put(self, observation: Observation) -> None:
        """Add an observation. Waits for room.

        Raises:
            ServiceError: Earlier observations were refused. This one was not taken.
            Unreachable: The curriculum is closed. This one was not taken.
        """
        sending = self._start()
        await self._until(lambda: self._lost is not None or len(self._waiting) < _MOST_WAITING, sending)
        self._raise_lost()
        self._waiting.append(observation)
        self._some.set()
        if len(self._waiting) >= _MOST_SENT:
            self._hurry.set()

    async def flush(self) -> None:
        """Wait until all that were put before have arrived.

        Raises:
            ServiceError: Some were refused.
            Unreachable: The curriculum is closed.
        """
        self._hurry.set()
        last = self._removed + len(self._waiting)
        await self._until(lambda: self._lost is not None or self._removed >= last, self._start())
        self._raise_lost()

    def end(self) -> None:
        """Take no more."""
        self._ended = True

    async def close(self, within_s: float) -> list[LachesisError]:
        """Send what waits, for at most ``within_s``. Return the error if some did not arrive."""
        sending = self._sending
        if sending is None:
            return []
        self._hurry.set()
        try:
            with contextlib.suppress(TimeoutError):
                async with timeout(within_s):
                    await self._until(lambda: not self._waiting, sending)
        finally:
            self._sending = None
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        if self._waiting:
            self._give_up(len(self._waiting), self._trouble or Unreachable(f"there was no answer in {within_s:g} s"))
        failure = self._failure()
        return [] if failure is None else [failure]

    def _start(self) -> asyncio.Task[None]:
        if self._ended or self._sender.is_closed:
            raise Unreachable(f"curriculum {self._calls.name} is closed: report rewards before the end of its block")
        if self._sending is None:
            self._sending = asyncio.create_task(self._keep_sending())
            self._sending.add_done_callback(lambda _: self._changed.set())
        return self._sending

    async def _until(self, condition: Callable[[], bool], sending: asyncio.Task[None]) -> None:
        while not condition():
            if sending.cancelled():
                raise Unreachable(f"curriculum {self._calls.name} was closed before all observations had arrived")
            if sending.done():
                sending.result()
            self._changed.clear()
            await self._changed.wait()

    async def _keep_sending(self) -> None:
        while True:
            await self._some.wait()
            with contextlib.suppress(TimeoutError):
                async with timeout(_DELAY_S):
                    await self._hurry.wait()
            self._hurry.clear()
            while self._waiting:
                await self._send(self._next())
            self._some.clear()

    async def _send(self, chosen: list[Observation]) -> None:
        body = checked(Observations, observations=chosen, request_id=str(uuid.uuid4()))
        try:
            await self._sender.send(self._calls.observe(body), math.inf, self._note)
        except LachesisError as error:
            self._give_up(len(chosen), error)
        else:
            self._remove(len(chosen))
        self._trouble = None
        self._changed.set()
        self._counted()

    def _next(self) -> list[Observation]:
        rewards, chosen = 0, list[Observation]()
        for observation in islice(self._waiting, _MOST_SENT):
            rewards += len(observation.rewards)
            if chosen and rewards > _MOST_REWARDS_SENT:
                break
            chosen.append(observation)
        return chosen

    def _note(self, trouble: LachesisError) -> None:
        self._trouble = trouble

    def _remove(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()
        self._removed += count

    def _give_up(self, count: int, error: LachesisError) -> None:
        self._remove(count)
        self._lost = (count + (self._lost[0] if self._lost else 0), error)

    def _failure(self) -> LachesisError | None:
        if self._lost is None:
            return None
        (count, error), self._lost = self._lost, None
        add_note(error, f"{count} observations of curriculum {self._calls.name} did not arrive")
        return error

    def _raise_lost(self) -> None:
        if (failure := self._failure()) is not None:
            raise failure
