"""Let trainers wait for a batch. Arrivals wake them, and all that wait for a run cost as much as one."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from app.core.errors import InvalidField, LachesisError, RanksDisagree, RunRewound, StepMismatch
from app.events import Caller, caller
from app.services.batches.dispatch import Dispatch
from app.services.batches.request import BatchRequest, BatchResult

_REST_FACTOR = 3  # rest 3 times as long as an attempt took: many arrivals cost at most a quarter of a core
_SHORTEST_REST_S = 0.005
_THEIR_OWN = (InvalidField, RanksDisagree, RunRewound, StepMismatch)  # errors that concern one waiter only

Changes = Callable[[str], AsyncGenerator[None, None]]


@dataclass(slots=True, eq=False)
class _Waiter:
    request: BatchRequest
    answer: "asyncio.Future[BatchResult]"
    caller: Caller = field(default_factory=caller.get)


@dataclass(slots=True)
class _RunQueue:
    """The waiters for a run's batches, in the order they came, and why the last attempt found no batch."""

    last: BatchResult
    waiters: dict[_Waiter, None] = field(default_factory=dict)


class LongPollQueue:
    """Long polls. One task of this process asks for all trainers that wait for a run.

    Args:
        dispatch: Hands out the batches.
        changes: Yields whenever a run may have a new batch.
    """

    def __init__(self, dispatch: Dispatch, changes: Changes) -> None:
        self._dispatch = dispatch
        self._changes = changes
        self._queues: dict[str, _RunQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Return the number of trainers that wait now, over all runs."""
        return sum(len(queue.waiters) for queue in self._queues.values())

    async def take(self, run: str, request: BatchRequest, wait_s: float, stop: asyncio.Event) -> BatchResult:
        """Take the next batch. Wait for it up to ``wait_s`` seconds, or until ``stop`` is set.

        Do not cancel this call, set ``stop`` instead: a batch taken for a cancelled request is held until its deadline.

        Returns:
            A result with a batch, or with why there is none.
        """
        if self._has_waiters(run):  # they came first, except for a batch that this request already holds
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
        """Return a batch that a request gets without waiting: it or its ranks took it before."""
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
            if error is not None:  # a bug: without this the waiters would wait forever
                del self._queues[run]
                self._fail_all(queue, error)

        task.add_done_callback(closed)

    async def _serve_run(self, run: str, queue: _RunQueue) -> None:
        """Take batches for the waiters whenever something has changed; end when none are left."""
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
        """Serve waiters behind the first with batches taken before, for example by their ranks."""
        waiters = list(queue.waiters)
        for position in await self._dispatch.due(run, [waiter.request for waiter in waiters]):
            if waiters[position] in queue.waiters:
                await self._take_for(run, queue, waiters[position])

    @staticmethod
    def _fail(queue: _RunQueue, waiter: _Waiter, error: LachesisError) -> None:
        """Fail one waiter with an error that concerns it only."""
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
        """Take batches for the waiters, first come first served, until there is none.

        Raises:
            RunNotFound: The run was removed in the meantime.
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
        """Take the next batch for a waiter; None if the request was invalid, and the waiter got the error."""
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
