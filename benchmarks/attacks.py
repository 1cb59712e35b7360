"""What a hostile worker does to the service, at a fixed pace: ``python -m benchmarks.attacks ATTACK PORT``.

It runs in a process of its own, from an address of its own. It says when it has begun, and runs until it is
terminated. Then it prints how many requests it sent at a pace, and how many answers of each status it got.
"""

import asyncio
import gzip
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from typing import cast

import httptools
import uvloop

from benchmarks.native import JSON, RUN, http_post, post_json

ADDRESS = "127.0.0.2"
SLOW_SENDERS, SLOW_ANNOUNCED, SLOW_FIRST, SLOW_PART, SLOW_EVERY_S = 200, 100_000_000, 2_000_000, 1024, 1.0
IDLE_CONNECTIONS = 2_000
WRONG_A_SECOND = 100
BOMBS_A_SECOND = 2
LARGE_BYTES, LARGE_PART, LARGE_BYTES_A_SECOND = 256 * 1024 * 1024, 1024 * 1024, 50 * 1024 * 1024
NAMES_A_SECOND = 50
CONNECTIONS = 400
"""Connections that share the requests of an attack: enough for its pace, though the service holds answers back."""
BURST_S = 22.0
"""How long an attack goes on before it is measured: until the service holds answers back as long as it ever does."""

_WRONG = post_json(f"{RUN}/groups", {"id": "x", "tokens": [[1, 2, "three"]] * 100, "scores": [1.0] * 100})
_BOMB = gzip.compress(b" " * (32 * 1024 * 1024))
_BOMB_HEAD = http_post(f"{RUN}/groups", len(_BOMB), JSON).replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")

answers: Counter[str] = Counter()


class Connection(asyncio.Protocol):
    """One connection. It counts answers, and knows when it was closed."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.closed = asyncio.Event()
        self.answered = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connect from the address of the hostile worker."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, "127.0.0.1", port, local_addr=(ADDRESS, 0))
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of asyncio
        self.closed.set()
        self.answered.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def on_message_complete(self) -> None:
        answers[str(self._parser.get_status_code())] += 1
        self.answered.set()

    async def send(self, data: bytes) -> bool:
        """Send when the service reads. Return whether it is still there."""
        await self._writable.wait()
        if not self.closed.is_set():
            self.transport.write(data)
        return not self.closed.is_set()

    async def call(self, request: bytes) -> None:
        """Send a request and wait for its answer."""
        self.answered.clear()
        await self.send(request)
        await self.answered.wait()


async def slow_senders(port: int, begun: Callable[[], None]) -> None:
    """Announce large bodies, send a part, and then a little now and then."""

    async def one() -> None:
        while True:
            connection = await Connection.open(port)
            await connection.send(http_post(f"{RUN}/groups", SLOW_ANNOUNCED, JSON) + b" " * SLOW_FIRST)
            started.append(connection)
            while await connection.send(b" " * SLOW_PART):  # noqa: ASYNC110 - it sends
                await asyncio.sleep(SLOW_EVERY_S)

    started: list[Connection] = []
    await all_of([one() for _ in range(SLOW_SENDERS)], lambda: len(started) >= SLOW_SENDERS, begun)


async def idle_connections(port: int, begun: Callable[[], None]) -> None:
    """Connect, and send half of the first line. Connect again when the service closes the connection."""
    opened = count(1)
    so_far = 0

    async def one() -> None:
        nonlocal so_far
        while True:
            connection = await Connection.open(port)
            await connection.send(b"GET /")
            so_far = next(opened)
            await connection.closed.wait()

    await all_of([one() for _ in range(IDLE_CONNECTIONS)], lambda: so_far >= IDLE_CONNECTIONS, begun)


async def wrong_groups(port: int, begun: Callable[[], None]) -> None:
    """Send groups with a hundred wrong values each, over many connections."""
    await paced(port, lambda _: _WRONG, WRONG_A_SECOND, begun)


async def gzip_bombs(port: int, begun: Callable[[], None]) -> None:
    """Send 32 KiB of gzip that inflate to 32 MiB of white space."""
    await paced(port, lambda _: _BOMB_HEAD + _BOMB, BOMBS_A_SECOND, begun)


async def large_bodies(port: int, begun: Callable[[], None]) -> None:
    """Send bodies of 256 MiB, one after the other."""
    begun()
    part = b" " * LARGE_PART
    while True:
        connection = await Connection.open(port)
        await connection.send(http_post(f"{RUN}/groups", LARGE_BYTES, JSON))
        for _ in range(LARGE_BYTES // LARGE_PART):
            if not await connection.send(part):
                break
            await asyncio.sleep(LARGE_PART / LARGE_BYTES_A_SECOND)
        await asyncio.wait_for(connection.answered.wait(), 60)
        connection.transport.close()


async def environment_names(port: int, begun: Callable[[], None]) -> None:
    """Register environments of ever new names."""

    def join(number: int) -> bytes:
        return post_json(f"{RUN}/environments", {"name": f"hostile{os.getpid()}-{number}", "group_size": 4})

    await paced(port, join, NAMES_A_SECOND, begun)


async def paced(port: int, request: Callable[[int], bytes], a_second: float, begun: Callable[[], None]) -> None:
    """Send requests at a pace. Each takes a connection that waits for no answer; closed ones are opened again.

    The attack has begun once its burst is over.
    """
    loop = asyncio.get_running_loop()
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for connection in await asyncio.gather(*(Connection.open(port) for _ in range(CONNECTIONS))):
        free.put_nowait(connection)

    async def one(number: int, connection: Connection) -> None:
        if connection.closed.is_set():
            connection = await Connection.open(port)
        answers["sent"] += 1
        await connection.call(request(number))
        free.put_nowait(connection)

    loop.call_later(BURST_S, begun)
    started_s = loop.time()
    async with asyncio.TaskGroup() as under_way:
        for number in count():
            await asyncio.sleep(max(0, started_s + number / a_second - loop.time()))
            under_way.create_task(one(number, await free.get()))


async def all_of(parts: list[Awaitable[None]], ready: Callable[[], bool], begun: Callable[[], None]) -> None:
    """Do all parts, and say when they are under way; or after some seconds, if the service refuses some."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    for _ in range(100):
        if ready():
            break
        await asyncio.sleep(0.1)
    begun()
    await asyncio.gather(*tasks)


ATTACKS: dict[str, Callable[[int, Callable[[], None]], Awaitable[None]]] = {
    f"{SLOW_SENDERS} slow senders": slow_senders,
    f"{IDLE_CONNECTIONS:,} idle connections": idle_connections,
    f"{WRONG_A_SECOND} wrong groups a second": wrong_groups,
    f"{BOMBS_A_SECOND} gzip bombs a second": gzip_bombs,
    f"256 MiB bodies, {LARGE_BYTES_A_SECOND // 1024**2} MiB/s": large_bodies,
    f"environment names, {NAMES_A_SECOND} a second": environment_names,
}


async def main() -> None:
    """Attack until terminated."""
    attack = asyncio.ensure_future(ATTACKS[sys.argv[1]](int(sys.argv[2]), lambda: print("begun", flush=True)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, attack.cancel)
    try:
        await attack
    except asyncio.CancelledError:
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
