"""The load generator: prepared bytes over plain sockets, so that it costs little and the same for everyone.

It shares the machine's cores with what it measures.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, cast

import httptools
import numpy as np

from lachesis.wire.blob import Buffer

_DONE = (200, 201)

Request = bytes | list[bytes]
"""A prepared request, whole or in pieces."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: status, body as received, and whether that is gzip."""

    status: int
    received: Buffer
    gzipped: bool

    @property
    def body(self) -> bytes:
        """A copy of the body, for those who read text."""
        return bytes(self.received)


class Caller(Protocol):
    """A connection that sends one request at a time."""

    async def call(self, request: Request) -> Reply:
        """Send a prepared request and wait for the whole reply."""

    def close(self) -> None:
        """Hang up."""


Dial = Callable[[], Awaitable[Caller]]


class HttpCaller(asyncio.Protocol):
    """One HTTP/1.1 connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._waiting: asyncio.Future[Reply] | None = None

    @classmethod
    async def dial(cls, port: int) -> "HttpCaller":
        """Connect to a server on this machine."""
        _, caller = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return caller

    async def call(self, request: Request) -> Reply:
        """Send a prepared request and wait for the whole reply, chunked or not."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._whole: memoryview | None = None
        self._end = 0
        self._pieces: list[bytes] = []
        self._gzipped = False
        self._transport.writelines(_pieces(request))
        return await self._waiting

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("the server hung up before its reply was complete"))

    # Called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._gzipped |= name.lower() == b"content-encoding" and value == b"gzip"
        if name.lower() == b"content-length":
            # Megabytes in pieces, joined in the end, are twice as much memory; to map that took 7 ms of a batch's 20.
            self._whole = np.empty(int(value), np.uint8).data

    def on_body(self, body: bytes) -> None:
        if self._whole is None:
            self._pieces.append(body)
        else:
            self._whole[self._end : self._end + len(body)] = body
            self._end += len(body)

    def on_message_complete(self) -> None:
        assert self._waiting
        if self._waiting.done():  # the caller has given up
            return
        received = b"".join(self._pieces) if self._whole is None else self._whole
        self._waiting.set_result(Reply(self._parser.get_status_code(), received, self._gzipped))


class RedisCaller(asyncio.Protocol):
    """One connection to a Redis, for commands that are answered ``+OK``; any other answer counts as status 500."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._waiting: asyncio.Future[Reply] | None = None
        self._received = b""

    @classmethod
    async def dial(cls, path: str) -> "RedisCaller":
        """Connect to a Redis on this machine by its unix socket."""
        _, caller = await asyncio.get_running_loop().create_unix_connection(cls, path)
        return caller

    async def call(self, request: Request) -> Reply:
        """Send a prepared command and wait for its answer."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.writelines(_pieces(request))
        return await self._waiting

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(b"\r\n") and self._waiting:
            self._waiting.set_result(Reply(200 if self._received == b"+OK\r\n" else 500, self._received, False))
            self._received = b""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("Redis hung up"))


def _pieces(request: Request) -> list[bytes]:
    return [request] if isinstance(request, bytes) else request


class RequestFailed(RuntimeError):
    """A reply was neither 200 nor 201, so what was measured means nothing."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a closed loop did: calls answered, in how many seconds, with how much processor time of its own."""

    calls: int
    elapsed_s: float
    own_cpu_s: float

    @property
    def per_s(self) -> float:
        """Calls answered in a second."""
        return self.calls / self.elapsed_s


async def closed_loop(
    dial: Dial, request: Callable[[int], Request], connections: int, seconds: float, reconnect: bool = False
) -> Load:
    """Keep ``connections`` requests underway for about ``seconds``; those begun by then are finished and counted.

    Args:
        dial: Opens a connection.
        request: Gives the n-th request, counted from 0 over all connections.
        connections: Requests underway at any time.
        seconds: How long new ones are begun.
        reconnect: Whether each request has a connection of its own, as with Atropos's clients.

    Raises:
        RequestFailed: A reply was neither 200 nor 201.
    """
    serial = itertools.count()
    callers = [] if reconnect else [await dial() for _ in range(connections)]
    began, own_cpu_before_s = time.perf_counter(), time.process_time()

    async def keep_calling(caller: Caller | None) -> None:
        is_over = False  # each sends one request at least: this process may stand still for as long as ``seconds``
        while not is_over:
            now = caller or await dial()
            reply = await now.call(request(next(serial)))
            if reply.status not in _DONE:
                raise RequestFailed(f"{reply.status}: {reply.body[:300]!r}")
            if caller is None:
                now.close()
            is_over = time.perf_counter() - began >= seconds

    await asyncio.gather(*(keep_calling(None if reconnect else callers[i]) for i in range(connections)))
    elapsed_s, own_cpu_s = time.perf_counter() - began, time.process_time() - own_cpu_before_s
    for caller in callers:
        caller.close()
    return Load(next(serial), elapsed_s, own_cpu_s)
