"""The bridge from threads to asyncio: an event loop in a thread of its own, and what synchronous classes share.

anyio's `start_blocking_portal` does not serve here. A call takes twice as long, and closing waits for calls of other
threads without a limit. A portal that the garbage collector finds in its own thread cannot end it.
"""

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from typing_extensions import Self

from lachesis._public import CLOSED, ForThreads, MustClose, Shown

T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A", bound=Shown)
C = TypeVar("C", bound=MustClose)

_LONGEST_END_S = 30.0


class Portal:
    """Run coroutines for threads. Background tasks, such as heartbeats, run between calls."""

    def __init__(self) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # A daemon never keeps a process alive. Leases and environments that it leaves behind expire.
        self._thread = threading.Thread(target=asyncio.run, args=(_serve(started),), name="lachesis", daemon=True)
        self._thread.start()
        self._process = os.getpid()
        self._loop, stop = started.result()
        self._stop = weakref.finalize(self, self._loop.call_soon_threadsafe, stop.set)
        self._stop.atexit = False  # Python stops the thread when it exits; ending it earlier causes asyncio warnings

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. A signal that interrupts the caller cancels it and waits for its end.

        Raises:
            RuntimeError: The portal is closed, or closes during the call. Or the process was forked after it started:
                threads do not survive that. Or a callback that runs in the portal's own thread calls this method, which
                would wait for itself.
        """
        refused = self._gone()
        if threading.current_thread() is self._thread:
            refused = "called from a callback of the SDK, which would wait for itself: use nothing of the SDK in it"
        if refused is not None:
            coroutine.close()
            raise RuntimeError(refused)
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_noting_end(coroutine, ended), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("this object was closed in another thread while the call waited") from None
        except BaseException:
            if future.cancel():
                ended.wait(_LONGEST_END_S)
            raise

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter a context. It is left again if a signal interrupts the caller although the context was entered."""
        entered: list[T] = []

        async def enter() -> None:
            entered.append(await context.__aenter__())

        try:
            self.run(enter())
            return entered[0]
        except BaseException:
            if entered:
                self.run(context.__aexit__(None, None, None))
            raise

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a clean-up. The garbage collector may ask for it in any thread. Does nothing if the portal is closed."""
        if self._gone():
            coroutine.close()
        elif threading.current_thread() is self._thread:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        else:
            self.run(coroutine)

    def each(self, items: AsyncGenerator[T, None], wrap: Callable[[T], U]) -> Iterator[U]:
        """Yield each item, wrapped. The generator is closed as soon as the loop over it is left."""
        try:
            while True:
                # A variable would keep each item in memory until the next one.
                yield wrap(self.run(_next(items)))
        except StopAsyncIteration:
            return
        finally:
            self.finish(_closed(items))

    def close(self) -> None:
        """End the thread. A repetition changes nothing."""
        if self._process == os.getpid() and not sys.is_finalizing():
            self._stop()
            self._thread.join(_LONGEST_END_S)

    def _gone(self) -> str | None:
        """Return why the thread runs nothing more; None means that it still runs."""
        if not self._stop.alive:
            return CLOSED
        if self._process != os.getpid():
            return "created before a fork: create one in this process"
        return "the process is ending" if sys.is_finalizing() else None  # Python has stopped the thread


class Blocking(Shown, ForThreads, Generic[A]):
    """A synchronous class: each method runs the coroutine of an asyncio object in the thread of a portal."""

    def __init__(self, wrapped: A, portal: Portal) -> None:
        self._async = wrapped
        self._portal = portal

    def _facts(self) -> dict[str, object]:
        return self._async._facts()


class BlockingOwner(Blocking[C], MustClose):
    """A synchronous class with connections and, if the user made it, a portal of its own."""

    _closed_by = "`with` or close()"
    _owns_portal = True

    def __init__(self, wrapped: C, portal: Portal | None = None) -> None:
        wrapped._is_wrapped = True
        super().__init__(wrapped, portal or Portal())

    @classmethod
    def _sharing(cls, wrapped: C, portal: Portal) -> Self:
        """Wrap an object that belongs to another one, which also owns the portal."""
        made = cls.__new__(cls)
        BlockingOwner.__init__(made, wrapped, portal)
        made._owns_portal = False
        return made

    def _begin(self, entering: Coroutine[Any, Any, object]) -> None:
        try:
            self._portal.run(entering)
        except BaseException:
            self._end_portal()
            raise

    def _end(self, leaving: Coroutine[Any, Any, None]) -> None:
        try:
            self._portal.finish(leaving)
        finally:
            self._end_portal()

    def _end_portal(self) -> None:
        if self._owns_portal:
            self._portal.close()

    def _is_open(self) -> bool:
        return hasattr(self, "_async") and self._async._is_open()


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


async def _closed(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


async def _noting_end(coroutine: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await coroutine
    finally:
        ended.set()


async def _serve(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    stop = asyncio.Event()
    started.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()
