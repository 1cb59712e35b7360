"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")

_LONGEST_END_S = 30.0


class Portal:
    """Runs coroutines for threads, one at a time for each; background tasks go on between calls."""

    def __init__(self) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # A daemon: it never keeps a process alive. Leases and environments that it leaves behind run out.
        self._thread = threading.Thread(target=asyncio.run, args=(_serve(started),), name="lachesis", daemon=True)
        self._thread.start()
        self._process = os.getpid()
        self._loop, stop = started.result()
        self._stop = weakref.finalize(self, self._loop.call_soon_threadsafe, stop.set)
        self._stop.atexit = False  # Python stops the thread when it exits; ending it earlier causes asyncio warnings

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. A signal that interrupts the caller cancels it, and waits for its end.

        Raises:
            RuntimeError: The portal is closed, or the process was forked since: threads do not come along.
        """
        if gone := self._gone():
            coroutine.close()
            raise RuntimeError(gone)
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_told(coroutine, ended), self._loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                ended.wait(_LONGEST_END_S)
            raise

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Like `run`, for clean-up that the garbage collector may ask for, in whichever thread; nothing if closed."""
        if self._gone():
            coroutine.close()
        elif threading.current_thread() is self._thread:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        else:
            self.run(coroutine)

    def each(self, items: AsyncGenerator[T, None], made: Callable[[T], U]) -> Iterator[U]:
        """Yield what is made of each item; the items are closed as soon as the loop over them is left."""
        try:
            while True:
                yield made(self.run(_next(items)))
        except StopAsyncIteration:
            return
        finally:
            self.finish(_closed(items))

    def close(self) -> None:
        """End the thread. Safe to repeat."""
        if self._process == os.getpid() and not sys.is_finalizing():
            self._stop()
            self._thread.join(_LONGEST_END_S)

    def _gone(self) -> str | None:
        """Return why the thread runs nothing more; None if it still runs."""
        if not self._stop.alive:
            return "closed"
        if self._process != os.getpid():
            return "created before a fork: create one in this process"
        return "the process is ending" if sys.is_finalizing() else None  # Python has stopped the thread


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


async def _closed(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


async def _told(coroutine: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await coroutine
    finally:
        ended.set()


async def _serve(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    stop = asyncio.Event()
    started.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()
