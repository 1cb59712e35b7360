"""Let requests wait for what they ask for: batches, room for inserts, samples.

The requests of a run wait in one queue. One task serves them, first come, first served. After each change, the task
tries the first request. While the first request is blocked, the task tries only the requests that the policy names. So
n waiting requests cost at most n attempts per change, and one attempt if all wait for the same object.

If several API processes serve a run, they may take turns (`app.services.turns`). The process whose turn it is tries its
first request, and serves all requests that wait in it. Then the turn goes to the next process.

`LongPoll.take` goes through these steps:

1. The first attempt (`_newcomer`; `_first_attempt` without a wait). Most requests end here, without a task. While
   processes take turns, this step needs the turn.
2. The wait (`_served_while_waiting`), if the request may wait. The first request that waits in a run starts the task
   (`_serve_run`). It ends after a second without news in which no request waits.
3. The reason (`_reason`), if the request got nothing.

The task hears the news of the run. After any news it tries the requests in order (`_serve_in_order`), and then those
that may overtake (`_serve_overtaking`). If the turn may have come in the meantime, a second task serves them at once
(`_serve_soon`). The lock of the queue lets one task serve at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from app.events import Caller, caller
from app.services.turns import QueueTurn, Turns
from app.store.redis.notifications import Listen
from lachesis.wire.errors import LachesisError, StoreUnavailable, TooManyConflicts

Q = TypeVar("Q")
R = TypeVar("R")
_Q_contra = TypeVar("_Q_contra", contravariant=True)
_R_co = TypeVar("_R_co", covariant=True)

_REST_FACTOR = 3  # rest 3 times as long as a failed attempt took: even many changes cost only a quarter of a core
_SHORTEST_REST_S = 0.005
_LONGEST_REST_S = 1.0  # an attempt that took longer than a third of this mostly waited for Redis
_waited_s: ContextVar[float] = ContextVar("waited_s", default=0.0)  # for locks of attempts, in a round of attempts


def rest_s(worked_s: float) -> float:
    """Return how long to rest after an attempt that took so long, seconds."""
    return min(_LONGEST_REST_S, max(_SHORTEST_REST_S, _REST_FACTOR * worked_s))


class AttemptLock:
    """A lock for attempts: one is made at a time.

    If Redis does not answer an attempt, those behind it fail, too. Otherwise each of them would wait as long again.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._outage: StoreUnavailable | None = None

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Make an attempt when those before it have ended. The task that serves does not rest for the wait until then.

        Raises:
            StoreUnavailable: Redis did not answer an attempt before this one, or refused it. This is the same error.
        """
        clock = asyncio.get_running_loop().time
        began, outage = clock(), self._outage
        async with self._lock:
            _waited_s.set(_waited_s.get() + clock() - began)  # `LongPoll._serve_in_order` subtracts it
            if self._outage is not None and self._outage is not outage:
                raise copy(self._outage)
            try:
                yield
            except StoreUnavailable as error:
                self._outage = error
                raise


class TryToServe(Protocol[_Q_contra, _R_co]):
    """Tries to serve a request once."""

    def __call__(
        self, run: str, request: _Q_contra, ahead: Sequence[_Q_contra], /, *, compete: bool
    ) -> Awaitable[_R_co | None]:
        """Return what was asked for, or what is missing. None means that other requests or another process come first.

        Args:
            run: The run's name.
            request: The request.
            ahead: Earlier requests that wait. The attempt must not take their results.
            compete: Whether to compete with other processes.
        """


@dataclass(frozen=True, kw_only=True)
class WaitPolicy(Generic[Q, R]):
    """How requests ``Q`` of a run are served, with results ``R``.

    Attributes:
        attempt: Tries to serve a request once.
        overtaking: Returns the positions of requests that can be served while the first request is blocked.
        found: Returns whether a result has what was asked for.
        own_errors: Errors of an attempt that concern its request alone. Other errors concern all waiting requests.
        release: Hands on a result whose request has gone away. None means that the result stays.
        overtaking_news: The news that may let a request overtake. None means any news.
        turns: The turns of this process. By default, processes take no turns.
        shares: Returns whether a request can be served from the result of another request. Such a request is also tried
            in the turn of another process.
    """

    attempt: TryToServe[Q, R]
    overtaking: Callable[[str, Sequence[Q]], Awaitable[Iterable[int]]]
    found: Callable[[R], bool]
    own_errors: tuple[type[LachesisError], ...]
    release: Callable[[str, R], Awaitable[None]] | None = None
    overtaking_news: frozenset[bytes] | None = None
    turns: Turns = field(default_factory=Turns.alone)
    shares: Callable[[Q], bool] | None = None


@dataclass(slots=True, eq=False)
class _Waiter(Generic[Q, R]):
    """A request that waits.

    Attributes:
        last: The reason of its last attempt without success. None means that there was no attempt.
        attempted: The event that marks the end of the attempt in progress. None means that no attempt is in progress.
        is_gone: Whether the request went away before its answer came.
    """

    request: Q
    last: R | None
    answer: "asyncio.Future[R]"
    attempted: asyncio.Event | None = None
    is_gone: bool = False
    caller: Caller = field(default_factory=caller.get)


class _Queue(Generic[Q, R]):
    """The requests that wait in a run, in the order they came.

    Args:
        run: The run's name.
        turns: The turns of this process.

    Attributes:
        turn: The turn of this process, as far as the queue uses it.
        last: The reason of the last attempt without success. None means that there was no such attempt since the queue
            was empty.
        serving: The lock of the task that serves the waiters.
    """

    def __init__(self, run: str, turns: Turns) -> None:
        self.run = run
        self.waiters: dict[_Waiter[Q, R], None] = {}
        self.turn = QueueTurn(turns, run, self.waiters)
        self.last: R | None = None
        self.serving = asyncio.Lock()


class LongPoll(Generic[Q, R]):
    """Long polls of one kind of request.

    Args:
        policy: How requests are served.
        listen: Yields the news of a run when the run may have changed. Yields at least once a second, with an empty set
            if there is no news.

    Attributes:
        blocked: Number of requests so far that could not be served at once.
    """

    def __init__(self, policy: WaitPolicy[Q, R], listen: Listen) -> None:
        self._policy = policy
        self._listen = listen
        self._queues: dict[str, _Queue[Q, R]] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self.blocked = 0

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait now, over all runs."""
        return sum(len(queue.waiters) for queue in self._queues.values())

    async def take(self, run: str, request: Q, wait_s: float = 0.0, stop: "asyncio.Future[None] | None" = None) -> R:
        """Serve a request. Wait up to ``wait_s`` seconds, or until ``stop`` is done.

        To end the call, set ``stop``; do not cancel it. An attempt in progress finishes, and its result is returned. A
        cancelled call loses its result, unless the policy releases results.

        Returns:
            A result with what was asked for, or a result that says what is missing.

        Raises:
            LachesisError: The error of an attempt, which concerns this request or all requests.
            TooManyConflicts: It was stopped before it had an attempt.
        """
        answer = await (self._newcomer(run, request) if wait_s > 0 else self._first_attempt(run, request, compete=True))
        if answer is not None and self._policy.found(answer):
            return answer
        self.blocked += 1
        queue = self._queues.get(run) or (self._start(run) if wait_s > 0 else _Queue(run, self._policy.turns))
        if answer is not None:
            queue.last = answer
        waiter = _Waiter[Q, R](request, answer, asyncio.get_running_loop().create_future())
        result = await self._served_while_waiting(queue, waiter, wait_s, stop) if wait_s > 0 else None
        return await self._reason(queue, waiter) if result is None else result

    async def stop(self) -> None:
        """End all tasks, and pass on the turns of this process. Requests that still wait get no answer."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _newcomer(self, run: str, request: Q) -> R | None:
        """Try once to serve a new request that can wait. None means that it must wait for other requests."""
        turns, queue = self._policy.turns, self._queues.get(run)
        if not turns.is_crowded(run):
            return await self._first_attempt(run, request, compete=False)
        queue_waits = queue is not None and bool(queue.waiters) and not queue.turn.is_used
        if queue_waits or not await turns.enter(run):
            return await self._shared(run, request)
        try:
            return await self._first_attempt(run, request, compete=False)
        finally:
            queue = self._queues.get(run)
            await turns.leave(run, listens=queue is not None, again=queue is not None and bool(queue.waiters))
            if queue is not None:
                self._serve_soon(queue)

    async def _first_attempt(self, run: str, request: Q, *, compete: bool) -> R | None:
        """Try once to serve a new request. None means that it must wait for other requests."""
        while True:
            ahead = self._ahead(run)
            answer = await self._policy.attempt(run, request, ahead, compete=compete)
            if answer is not None:
                return answer
            if not ahead or self._ahead(run):  # another process was faster, or earlier requests still wait
                return None

    async def _shared(self, run: str, request: Q) -> R | None:
        """Serve a new request in the turn of another process, from the result of another request. None: it waits."""
        shares = self._policy.shares is not None and self._policy.shares(request)
        if shares and list(await self._policy.overtaking(run, [request])):
            return await self._policy.attempt(run, request, (), compete=True)
        return None

    def _ahead(self, run: str) -> list[Q]:
        """Return the requests that wait in a run. They come before a new one."""
        return [waiter.request for waiter in self._queues[run].waiters] if run in self._queues else []

    async def _served_while_waiting(
        self, queue: _Queue[Q, R], waiter: _Waiter[Q, R], wait_s: float, stop: "asyncio.Future[None] | None"
    ) -> R | None:
        """Wait for a result. None: no result came, or the request has gone away and its result was released."""
        await self._wait(queue, waiter, wait_s, stop)
        if not waiter.answer.done():
            return None
        result = waiter.answer.result()
        if not waiter.is_gone or self._policy.release is None:
            return result
        await self._policy.release(queue.run, result)
        return None

    async def _wait(
        self, queue: _Queue[Q, R], waiter: _Waiter[Q, R], wait_s: float, stop: "asyncio.Future[None] | None"
    ) -> None:
        """Wait until the request is answered, time is up, or ``stop`` is done; also for the end of an attempt."""
        queue.waiters[waiter] = None
        if waiter.last is None:
            self._serve_soon(queue)
        try:
            either: set[asyncio.Future[Any]] = {waiter.answer} if stop is None else {waiter.answer, stop}
            await asyncio.wait(either, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            waiter.is_gone = stop is not None and stop.done() and not waiter.answer.done()
            queue.waiters.pop(waiter, None)
            if waiter.attempted is not None:
                await waiter.attempted.wait()
        except asyncio.CancelledError:
            waiter.answer.cancel()
            raise
        finally:
            queue.waiters.pop(waiter, None)

    async def _reason(self, queue: _Queue[Q, R], waiter: _Waiter[Q, R]) -> R:
        """Return why a request got nothing."""
        reason = queue.last if waiter.last is None else waiter.last
        if reason is not None:
            return reason
        if waiter.is_gone:
            raise TooManyConflicts(f"run {queue.run} served other requests until this one ended")
        # It was always another process's turn.
        reason = await self._policy.attempt(queue.run, waiter.request, (), compete=True)
        assert reason is not None, "nothing is ahead of this request"  # noqa: S101
        return reason

    def _start(self, run: str) -> _Queue[Q, R]:
        queue = self._queues[run] = _Queue(run, self._policy.turns)
        self._spawn(queue, self._serve_run(queue))
        return queue

    def _serve_soon(self, queue: _Queue[Q, R]) -> None:
        """Serve the waiters without waiting for a change, if it may have become the turn of this process."""
        if queue.waiters and not queue.serving.locked() and queue.turn.may_have_come:
            self._spawn(queue, self._serve(queue, may_overtake=False))

    def _spawn(self, queue: _Queue[Q, R], work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def closed(task: asyncio.Task[object]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:  # a bug: without this the waiters would wait forever
                self._forget(queue)
                self._fail_all(queue, error)

        task.add_done_callback(closed)

    async def _serve_run(self, queue: _Queue[Q, R]) -> None:
        """Serve the waiters after each change. End when the queue is empty and nothing changed for a second."""
        try:
            async with aclosing(self._listen(queue.run)) as listening:
                async for news in listening:
                    await queue.turn.handle_news(news)
                    if not queue.waiters and not news:
                        self._forget(queue)
                        return
                    await asyncio.sleep(await self._serve(queue, not news or self._lets_overtake(news)))
        finally:
            await queue.turn.end()

    def _forget(self, queue: _Queue[Q, R]) -> None:
        if self._queues.get(queue.run) is queue:
            del self._queues[queue.run]

    def _lets_overtake(self, news: frozenset[bytes]) -> bool:
        telling = self._policy.overtaking_news
        return bool(news) and (telling is None or not telling.isdisjoint(news))

    async def _serve(self, queue: _Queue[Q, R], may_overtake: bool) -> float:
        """Serve the waiters that can be served now. Return how long to rest, seconds."""
        async with queue.serving:
            try:
                return await self._serve_in_order(queue, may_overtake)
            except LachesisError as error:
                self._fail_all(queue, error)
                return 0.0

    async def _serve_in_order(self, queue: _Queue[Q, R], may_overtake: bool) -> float:
        clock = asyncio.get_running_loop().time
        started, failed = clock(), False
        _waited_s.set(0.0)
        while not failed and queue.waiters and await queue.turn.may_serve():
            started = clock()
            _waited_s.set(0.0)
            failed = bool(queue.waiters) and not await self._attempt(queue, next(iter(queue.waiters)))
        if not queue.waiters:
            queue.last = None
            await queue.turn.leave()
            return 0.0
        if may_overtake:
            await self._serve_overtaking(queue)
        worked_s = clock() - started - _waited_s.get()
        return rest_s(worked_s) if failed or may_overtake else 0.0

    async def _serve_overtaking(self, queue: _Queue[Q, R]) -> None:
        waiters = list(queue.waiters)
        for position in await self._policy.overtaking(queue.run, [waiter.request for waiter in waiters]):
            if waiters[position] in queue.waiters:
                await self._attempt(queue, waiters[position])

    async def _attempt(self, queue: _Queue[Q, R], waiter: _Waiter[Q, R]) -> bool:
        """Try once to serve a waiter. Return False if it still waits.

        Raises:
            LachesisError: The error concerns all waiting requests.
        """
        caller.set(waiter.caller)  # the sender of this request; another request started the task
        waiter.attempted = asyncio.Event()
        try:
            answer = await self._policy.attempt(queue.run, waiter.request, (), compete=False)
        except Exception as error:
            self._fail(waiter, error)  # also a waiter that has left the queue and waits for this attempt alone
            queue.waiters.pop(waiter, None)
            if not isinstance(error, (*self._policy.own_errors, TooManyConflicts)):
                raise
            return True
        else:
            if answer is None:
                return True  # other processes were faster: try again in the turn of this process
            if not self._policy.found(answer):
                queue.last = waiter.last = answer
                return waiter not in queue.waiters
            queue.waiters.pop(waiter, None)
            if not waiter.answer.done():
                waiter.answer.set_result(answer)
            elif self._policy.release is not None:  # it was cancelled
                await self._policy.release(queue.run, answer)
            return True
        finally:
            waiter.attempted.set()
            waiter.attempted = None

    @staticmethod
    def _fail(waiter: _Waiter[Q, R], error: BaseException) -> None:
        if not waiter.answer.done():
            waiter.answer.set_exception(error)

    def _fail_all(self, queue: _Queue[Q, R], error: BaseException) -> None:
        for waiter in queue.waiters:
            self._fail(waiter, error)
        queue.waiters.clear()
