"""Trainers that wait for a batch: woken by what arrives, served in the order they came, at the cost of one."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from app.core.errors import InvalidField, LachesisError, RanksDisagree, RunRewound, StepMismatch
from app.events import Caller, caller
from app.services.batches.dispatch import Dispatch
from app.services.batches.request import BatchRequest, BatchResult

_REST_FACTOR = 3  # rest so many times as long as an attempt took: a flood of arrivals costs a quarter of a core
_SHORTEST_REST_S = 0.005
_THEIR_OWN = (InvalidField, RanksDisagree, RunRewound, StepMismatch)  # errors of one waiter, not of all

Changes = Callable[[str], AsyncGenerator[None, None]]


@dataclass(slots=True, eq=False)
class _Waiter:
    request: BatchRequest
    answer: "asyncio.Future[BatchResult]"
    caller: Caller = field(default_factory=caller.get)


@dataclass(slots=True)
class _RunQueue:
    """Who waits for a run's batches, in the order they came, and why there was none when somebody last asked."""

    last: BatchResult
    waiters: dict[_Waiter, None] = field(default_factory=dict)


class LongPollQueue:
    """Long polls. However many trainers wait for a run, one task of this process asks for them.

    Args:
        dispatch: What they wait for.
        changes: Yields whenever there may be a batch of a run that was not there before.
    """

    def __init__(self, dispatch: Dispatch, changes: Changes) -> None:
        self._dispatch = dispatch
        self._changes = changes
        self._queues: dict[str, _RunQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Return how many wait now, for batches of any run."""
        return sum(len(queue.waiters) for queue in self._queues.values())

    async def take(self, run: str, request: BatchRequest, wait_s: float, stop: asyncio.Event) -> BatchResult:
        """Take the next batch, waiting for it up to ``wait_s`` seconds, and no longer once ``stop`` is set.

        Not to be cancelled: a batch that was taken for nobody stays held until its deadline. Set ``stop`` instead.

        Returns:
            An answer with a batch, or with why there is none.
        """
        if self._has_waiters(run):  # they were here first, but for what this request has already
            early = await self._early(run, request)
            if early is not None:
                return early
        if not self._has_waiters(run):
            answer = await self._dispatch.take(run, request)
            if answer.batch is not None or wait_s <= 0:
                return answer
            if run not in self._queues:
                self._start(run, _RunQueue(answer))
        queue = self._queues[run]
        if wait_s <= 0:
            return queue.last
        waiter = _Waiter(request, asyncio.get_running_loop().create_future())
        queue.waiters[waiter] = None
        stopped = asyncio.create_task(stop.wait())
        try:
            either: set[asyncio.Future[Any]] = {waiter.answer, stopped}
            await asyncio.wait(either, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            queue.waiters.pop(waiter, None)
            timed_out = waiter.answer.cancel()
        return queue.last if timed_out else waiter.answer.result()

    async def _early(self, run: str, request: BatchRequest) -> BatchResult | None:
        """Find what a request need not queue for: what it took before, or its ranks have or should have again."""
        if request.seat is None:
            return await self._dispatch.again(run, request)
        if not await self._dispatch.due(run, [request]):
            return None
        answer = await self._dispatch.take(run, request)
        return None if answer.batch is None else answer

    def _has_waiters(self, run: str) -> bool:
        return run in self._queues and bool(self._queues[run].waiters)

    def _start(self, run: str, queue: _RunQueue) -> None:
        self._queues[run] = queue
        task = asyncio.create_task(self._serve_run(run, queue))
        self._tasks.add(task)

        def closed(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:  # a bug; those who wait must not wait for nobody
                del self._queues[run]
                self._fail_all(queue, error)

        task.add_done_callback(closed)

    async def _serve_run(self, run: str, queue: _RunQueue) -> None:
        """Ask for those who wait, whenever something has changed; close the room when it is empty."""
        async with aclosing(self._changes(run)) as changes:
            async for _ in changes:
                try:
                    await self._serve(run, queue)
                except LachesisError as error:
                    self._fail_all(queue, error)
                if not queue.waiters:
                    del self._queues[run]
                    return

    async def _serve_redelivered(self, run: str, queue: _RunQueue) -> None:
        """Give those behind the first what was taken before and is not for the first: it may be a rank that has it."""
        waiters = list(queue.waiters)
        for position in await self._dispatch.due(run, [waiter.request for waiter in waiters]):
            if waiters[position] in queue.waiters:
                await self._take_for(run, queue, waiters[position])

    @staticmethod
    def _fail(queue: _RunQueue, waiter: _Waiter, error: LachesisError) -> None:
        """Tell one who waits what only that one did wrong."""
        queue.waiters.pop(waiter, None)
        if not waiter.answer.done():
            waiter.answer.set_exception(error)

    @staticmethod
    def _fail_all(queue: _RunQueue, error: BaseException) -> None:
        for waiter in queue.waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(error)
        queue.waiters.clear()

    async def _serve(self, run: str, queue: _RunQueue) -> None:
        """Take batches for those who wait, first come first served, until there is none.

        Raises:
            RunNotFound: The run was removed meanwhile.
        """
        clock = asyncio.get_running_loop().time
        while queue.waiters:
            started = clock()
            answer = await self._take_for(run, queue, next(iter(queue.waiters)))
            if answer is not None and answer.batch is None:
                queue.last = answer
                await self._serve_redelivered(run, queue)
                await asyncio.sleep(max(_SHORTEST_REST_S, _REST_FACTOR * (clock() - started)))
                return

    async def _take_for(self, run: str, queue: _RunQueue, waiter: _Waiter) -> BatchResult | None:
        """Take the next batch for one who waits; None if it did something wrong, and was told so."""
        caller.set(waiter.caller)  # the sender of this request; another request started the task
        try:
            answer = await self._dispatch.take(run, waiter.request)
        except _THEIR_OWN as error:
            self._fail(queue, waiter, error)
            return None
        if answer.batch is not None:
            queue.waiters.pop(waiter, None)
            if waiter.answer.done():
                await self._dispatch.hand_on(run, answer.batch)
            else:
                waiter.answer.set_result(answer)
        return answer
