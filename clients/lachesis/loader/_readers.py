"""Pools of readers: one of threads, one of tasks. Both load what a window asks for, and leave nothing behind."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from lachesis.errors import FetchFailed
from lachesis.loader._window import Ticket, Window
from lachesis.loader.nested import Nested, decode
from lachesis.loader.sources import FetchAsync, Payload

K = TypeVar("K")

Loaded: TypeAlias = "Future[Nested] | asyncio.Future[Nested]"
"""A load that has ended: a sample, or why there is none."""

Landed = tuple[Ticket, Loaded]
Ready = list[Landed]

_THREAD_NAME = "lachesis-loader"


def in_threads(
    window: Window[Loaded], fetch: Callable[[K], Payload], key_of: Callable[[int], K], readers: int
) -> Generator[Ready]:
    """Load in threads; give the samples of each batch. Closing this waits for the loads that are under way."""
    landed: SimpleQueue[Landed] = SimpleQueue()
    pool = ThreadPoolExecutor(readers, _THREAD_NAME)

    def begin(ticket: Ticket) -> None:  # by itself: a variable of the loop would hold on to the last sample
        load = pool.submit(_load, fetch, key_of(ticket.sample))
        load.add_done_callback(partial(_land, landed.put, ticket))

    try:
        while True:
            for ticket in window.begin():
                begin(ticket)
            if window.is_done:
                return
            while not window.is_ready:
                window.land(*landed.get())
            yield window.take()
    finally:
        pool.shutdown(cancel_futures=True)


async def in_tasks(
    window: Window[Loaded],
    opening: Callable[[], AbstractAsyncContextManager[FetchAsync[K]]],
    key_of: Callable[[int], K],
    readers: int,
) -> AsyncGenerator[Ready]:
    """Load in tasks; give the samples of each batch. Closing this cancels the loads that are under way."""
    landed: asyncio.Queue[Landed] = asyncio.Queue()
    tasks: set[asyncio.Task[Nested]] = set()
    free = asyncio.Semaphore(readers)

    def begin(ticket: Ticket, fetch: FetchAsync[K]) -> None:
        task = asyncio.create_task(_load_async(fetch, key_of(ticket.sample), free))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(partial(_land, landed.put_nowait, ticket))

    async with opening() as fetch:
        try:
            while True:
                for ticket in window.begin():
                    begin(ticket, fetch)
                if window.is_done:
                    return
                while not window.is_ready:
                    window.land(*await landed.get())
                yield window.take()
        finally:
            left = tuple(tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


@asynccontextmanager
async def threads_for_tasks(fetch: Callable[[K], Payload], readers: int) -> AsyncIterator[FetchAsync[K]]:
    """Give a coroutine function that calls ``fetch`` in threads; wait for those under way at the end."""
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
        # A thread cannot be interrupted; but it is not the event loop that has to stand still for it.
        await asyncio.gather(*map(asyncio.wrap_future, tuple(calls)), return_exceptions=True)
        pool.shutdown()


def sample_of(loaded: Loaded, key: object) -> Nested:
    """Return what was loaded.

    Raises:
        FetchFailed: Nothing was.
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


def _land(put: Callable[[Any], None], ticket: Ticket, loaded: Any) -> None:
    if not loaded.cancelled():
        loaded.exception()  # seen: asyncio would complain of those that no batch comes to
    put((ticket, loaded))


def _call(fetch: Callable[[K], Payload], key: K) -> Payload:
    try:
        return fetch(key)
    except StopIteration as error:  # no future of asyncio can hold it: whoever awaits it would wait for ever
        raise RuntimeError("StopIteration") from error
