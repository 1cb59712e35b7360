"""Fetches for the tests: arrays that say which key they are of, and where everything that was started has ended."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import numpy as np
from aiohttp import web

from lachesis.loader import AsyncSource, Source, encode


def sample(key: int) -> dict[str, Any]:
    """A row of as many values as the key says, and the key."""
    return {"x": np.full(key % 4 + 1, key, np.float32), "key": np.array(key)}


def at_once(_: int) -> float:
    """Take no time."""
    return 0.0


def source_of(
    colour: str,
    samples: int,
    fetch: Callable[[int], Any] = sample,
    takes_s: Callable[[int], float] = at_once,
) -> Source[int] | AsyncSource[int]:
    """Make a source of so many samples. Its fetch is a function or a coroutine, and takes ``takes_s`` of the key."""

    def fetch_sync(key: int) -> Any:
        time.sleep(takes_s(key))
        return fetch(key)

    async def fetch_async(key: int) -> Any:
        await asyncio.sleep(takes_s(key))
        return fetch(key)

    return Source(range(samples), fetch_sync) if colour == "sync" else AsyncSource.of(range(samples), fetch_async)


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that no thread outlives the block."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


class Gauge:
    """A fetch that counts; the first ``together`` of its calls wait until all of them have begun."""

    def __init__(self, together: int) -> None:
        self.started = self.delivered = self.peak = 0
        self._together = threading.Barrier(together)
        self._parties = together
        self._lock = threading.Lock()

    def __call__(self, key: int) -> dict[str, Any]:
        with self._lock:
            self.started += 1
            mine = self.started
            self.peak = max(self.peak, self.started - self.delivered)
        if mine <= self._parties:
            self._together.wait(timeout=20)
        return sample(key)


@asynccontextmanager
async def fragments_served() -> AsyncIterator[tuple[str, list[str]]]:
    """A server of fragments by id; gives its URL and what was asked for."""
    asked: list[str] = []

    async def fragment(request: web.Request) -> web.Response:
        asked.append(request.match_info["id"])
        if asked[-1] == "gone":
            raise web.HTTPNotFound
        return web.Response(body=encode({"obs": {"image": np.full((2, 3), int(asked[-1]), np.uint8)}}))

    app = web.Application()
    app.router.add_get("/fragments/{id}", fragment)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()
