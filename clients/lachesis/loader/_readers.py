"""Pools of readers: one of threads, one of tasks. Both load what a window asks for, and end all loads when closed."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeAlias, TypeVar

from lachesis.errors import FetchFailed
from lachesis.loader._window import Ticket, Window
from lachesis.loader.nested import Nested, decode
from lachesis.loader.sources import FetchAsync, Payload

K = TypeVar("K")

Loaded: TypeAlias = "Future[Nested] | asyncio.Future[Nested]"
"""A load that has ended: with a sample, or with an error."""

Ready = list[tuple[Ticket, Loaded]]

_THREAD_NAME = "lachesis-loader"


def in_threads(
    window: Window[Loaded], fetch: Callable[[K], Payload], key_of: Callable[[int], K], readers: int
) -> Generator[Ready]:
    """Load in threads, and yield the samples of each batch. To close it waits for the loads that run."""
    pool = ThreadPoolExecutor(readers, _THREAD_NAME)
    lock = threading.Condition()  # guards the window, except where no load can conflict (`Window.hand_out`)
    is_waiting = False

    def begin(ticket: Ticket) -> None:  # a function: a variable of the loop would keep the last sample in memory
        load = pool.submit(_load, fetch, key_of(ticket.sample))
        load.add_done_callback(partial(land, ticket))

    def land(ticket: Ticket, load: Loaded) -> None:
        with lock:
            window.land(ticket, load)
            # Once per batch: a loop that wakes for every sample takes the interpreter from the readers.
            if is_waiting and window.is_ready:
                lock.notify()

    try:
        while True:
            with lock:
                tickets = list(window.begin())
            for ticket in tickets:
                begin(ticket)
            with lock:
                if window.is_done:
                    return
                is_waiting = True
                lock.wait_for(lambda: window.is_ready)
                is_waiting = False
                ready = [window.take()]
            yield ready.pop()
    finally:
        pool.shutdown(cancel_futures=True)


async def in_tasks(
    window: Window[Loaded],
    opening: Callable[[], AbstractAsyncContextManager[FetchAsync[K]]],
    key_of: Callable[[int], K],
    readers: int,
) -> AsyncGenerator[Ready]:
    """Load in tasks, and yield the samples of each batch. To close it cancels the loads that run."""
    tasks: set[asyncio.Task[Nested]] = set()
    news = asyncio.Event()
    free = asyncio.Semaphore(readers)

    def begin(ticket: Ticket, fetch: FetchAsync[K]) -> None:
        task = asyncio.create_task(_load_async(fetch, key_of(ticket.sample), free))
        tasks.add(task)
        task.add_done_callback(partial(land, ticket))

    def land(ticket: Ticket, task: asyncio.Task[Nested]) -> None:
        tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen: asyncio logs exceptions that nobody retrieves
        window.land(ticket, task)
        news.set()

    async with opening() as fetch:
        try:
            while True:
                for ticket in window.begin():
                    begin(ticket, fetch)
                if window.is_done:
                    return
                while not window.is_ready:
                    news.clear()
                    await news.wait()
                yield window.take()
        finally:
            left = tuple(tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


@asynccontextmanager
async def threads_for_tasks(fetch: Callable[[K], Payload], readers: int) -> AsyncIterator[FetchAsync[K]]:
    """Yield a coroutine function that calls ``fetch`` in threads. At the end, wait for the calls that run."""
    pool = ThreadPoolExecutor(readers, _THREAD_NAME)
    calls: set[Future[Payload]] = set()

    async def load(key: K) -> Payload:
        call = pool.submit(_call, fetch, key)
        calls.add(call)
        call.add_done_callback(calls.discard)
        return await asyncio.wrap_future(call)

    try:
        yield load
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        # A thread cannot be interrupted. Wait for it without blocking the event loop.
        await asyncio.gather(*map(asyncio.wrap_future, tuple(calls)), return_exceptions=True)
        pool.shutdown()


def sample_of(loaded: Loaded, key: object) -> Nested:
    """Return the loaded sample.

    Raises:
        FetchFailed: The load failed or was cancelled.
    """
    if loaded.cancelled():
        raise FetchFailed(key, "it was cancelled")
    error = loaded.exception()
    if error is None:
        return loaded.result()
    if not isinstance(error, Exception):
        raise error
    raise FetchFailed(key, f"{type(error).__name__}: {error}") from error


def _load(fetch: Callable[[K], Payload], key: K) -> Nested:
    return _decoded(fetch(key))


async def _load_async(fetch: FetchAsync[K], key: K, free: asyncio.Semaphore) -> Nested:
    async with free:
        return _decoded(await fetch(key))


def _decoded(payload: Payload) -> Nested:
    return decode(payload) if isinstance(payload, (bytes, bytearray, memoryview)) else payload


def _call(fetch: Callable[[K], Payload], key: K) -> Payload:
    try:
        return fetch(key)
    except StopIteration as error:  # a future of asyncio cannot hold it: its caller would wait forever
        raise RuntimeError("StopIteration") from error
