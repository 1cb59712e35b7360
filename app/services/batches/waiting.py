"""Trainers that wait for a batch: woken by what arrives, served in the order they came, at the cost of one."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from app.core.errors import InvalidField, LachesisError, RanksDisagree, RunRewound, StepMismatch
from app.events import Caller, caller
from app.services.batches.dispatch import Dispatch
from app.services.batches.request import Answer, Holder

_REST_FACTOR = 3  # rest so many times as long as an attempt took: a flood of arrivals costs a quarter of a core
_SHORTEST_REST_S = 0.005
_THEIR_OWN = (InvalidField, RanksDisagree, RunRewound, StepMismatch)  # errors of one waiter, not of all

Changes = Callable[[str], AsyncGenerator[None, None]]


@dataclass(slots=True, eq=False)
class _Waiter:
    holder: Holder
    answer: "asyncio.Future[Answer]"
    caller: Caller = field(default_factory=caller.get)


@dataclass(slots=True)
class _Room:
    """Who waits for a run's batches, in the order they came, and why there was none when somebody last asked."""

    last: Answer
    waiters: dict[_Waiter, None] = field(default_factory=dict)


class WaitingRoom:
    """Long polls. However many trainers wait for a run, one task of this process asks for them.

    Args:
        dispatch: What they wait for.
        changes: Yields whenever there may be a batch of a run that was not there before.
    """

    def __init__(self, dispatch: Dispatch, changes: Changes) -> None:
        self._dispatch = dispatch
        self._changes = changes
        self._rooms: dict[str, _Room] = {}
        self._attendants: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Return how many wait now, for batches of any run."""
        return sum(len(room.waiters) for room in self._rooms.values())

    async def take(self, run: str, holder: Holder, wait_s: float, stop: asyncio.Event) -> Answer:
        """Take the next batch, waiting for it up to ``wait_s`` seconds, and no longer once ``stop`` is set.

        Not to be cancelled: a batch that was taken for nobody stays held until its deadline. Set ``stop`` instead.

        Returns:
            An answer with a batch, or with why there is none.
        """
        if self._others_wait(run):  # they were here first, but for what this request has already
            early = await self._early(run, holder)
            if early is not None:
                return early
        if not self._others_wait(run):
            answer = await self._dispatch.take(run, holder)
            if answer.batch is not None or wait_s <= 0:
                return answer
            if run not in self._rooms:
                self._open(run, _Room(answer))
        room = self._rooms[run]
        if wait_s <= 0:
            return room.last
        waiter = _Waiter(holder, asyncio.get_running_loop().create_future())
        room.waiters[waiter] = None
        stopped = asyncio.create_task(stop.wait())
        try:
            either: set[asyncio.Future[Any]] = {waiter.answer, stopped}
            await asyncio.wait(either, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            room.waiters.pop(waiter, None)
            gave_up = waiter.answer.cancel()
        return room.last if gave_up else waiter.answer.result()

    async def _early(self, run: str, holder: Holder) -> Answer | None:
        """Find what a request need not queue for: what it took before, or its ranks have or should have again."""
        if holder.seat is None:
            return await self._dispatch.again(run, holder)
        if not await self._dispatch.due(run, [holder]):
            return None
        answer = await self._dispatch.take(run, holder)
        return None if answer.batch is None else answer

    def _others_wait(self, run: str) -> bool:
        return run in self._rooms and bool(self._rooms[run].waiters)

    def _open(self, run: str, room: _Room) -> None:
        self._rooms[run] = room
        attendant = asyncio.create_task(self._attend(run, room))
        self._attendants.add(attendant)

        def closed(attendant: asyncio.Task[None]) -> None:
            self._attendants.discard(attendant)
            error = None if attendant.cancelled() else attendant.exception()
            if error is not None:  # a bug; those who wait must not wait for nobody
                del self._rooms[run]
                self._disappoint(room, error)

        attendant.add_done_callback(closed)

    async def _attend(self, run: str, room: _Room) -> None:
        """Ask for those who wait, whenever something has changed; close the room when it is empty."""
        async with aclosing(self._changes(run)) as changes:
            async for _ in changes:
                try:
                    await self._serve(run, room)
                except LachesisError as error:
                    self._disappoint(room, error)
                if not room.waiters:
                    del self._rooms[run]
                    return

    async def _serve_the_others(self, run: str, room: _Room) -> None:
        """Give those behind the first what was taken before and is not for the first: it may be a rank that has it."""
        waiters = list(room.waiters)
        for position in await self._dispatch.due(run, [waiter.holder for waiter in waiters]):
            if waiters[position] in room.waiters:
                await self._give(run, room, waiters[position])

    @staticmethod
    def _refuse(room: _Room, waiter: _Waiter, error: LachesisError) -> None:
        """Tell one who waits what only that one did wrong."""
        room.waiters.pop(waiter, None)
        if not waiter.answer.done():
            waiter.answer.set_exception(error)

    @staticmethod
    def _disappoint(room: _Room, error: BaseException) -> None:
        for waiter in room.waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(error)
        room.waiters.clear()

    async def _serve(self, run: str, room: _Room) -> None:
        """Take batches for those who wait, first come first served, until there is none.

        Raises:
            RunNotFound: The run was removed meanwhile.
        """
        clock = asyncio.get_running_loop().time
        while room.waiters:
            started = clock()
            answer = await self._give(run, room, next(iter(room.waiters)))
            if answer is not None and answer.batch is None:
                room.last = answer
                await self._serve_the_others(run, room)
                await asyncio.sleep(max(_SHORTEST_REST_S, _REST_FACTOR * (clock() - started)))
                return

    async def _give(self, run: str, room: _Room, waiter: _Waiter) -> Answer | None:
        """Take the next batch for one who waits; None if it did something wrong, and was told so."""
        caller.set(waiter.caller)  # the sender of this request; another request started the task
        try:
            answer = await self._dispatch.take(run, waiter.holder)
        except _THEIR_OWN as error:
            self._refuse(room, waiter, error)
            return None
        if answer.batch is not None:
            room.waiters.pop(waiter, None)
            if waiter.answer.done():
                await self._dispatch.hand_on(run, answer.batch)
            else:
                waiter.answer.set_result(answer)
        return answer
