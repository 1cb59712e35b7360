"""Commands to Redis in one round trip, at a fraction of what redis-py's pipelines cost.

redis-py packs each argument in Python and handles each reply separately: 100 us of a submission's 700, four times the
cost of this module (``python -m benchmarks.pipeline``). Here C packs the arguments, payloads are not copied, replies
are not converted, and a caller is woken once, when all replies have come. Connections are kept. A pool that checks
them each time cost another 20 us. One timer watches all round trips. A timer for each of them cost 12 us of a round
trip's 67.

redis-py reads the URL, asyncio connects, and hiredis packs and parses. All three are used by their public names.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import Connection as TcpConnection
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

Argument = str | bytes | memoryview | int | float
Command = tuple[Argument, ...]

_COPIED_BYTES = 8 * 1024  # shorter arguments are copied together instead of sent by themselves
_SEND_BUFFER_BYTES = 1024 * 1024  # of a Unix socket, so that a commit leaves at once. Linux may give less (wmem_max)
_INCOMPLETE = object()
_TOO_MANY_CLIENTS = "ERR max number of clients reached"
_ERRORS: Mapping[str, type[RedisError]] = {
    "LOADING": BusyLoadingError,
    "NOAUTH": AuthenticationError,
    "NOPERM": NoPermissionError,
    "NOSCRIPT": NoScriptError,
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
    "WRONGPASS": AuthenticationError,
}
"""The errors of Redis that have a class of their own, by the first word of the reply."""


@dataclass(slots=True)
class _Wait:
    """Since when a round trip has made no progress, on the event loop's clock, and its progress then."""

    since: float
    moved: int


class Pipeline:
    """Round trips over connections of its own.

    Args:
        factory: Knows where to connect. None of the connections counts as one of this pool's.
        max_connections: Most round trips at a time; further ones wait.
        timeout_s: How long to wait for room, a connection and the first byte together, and then without a byte sent or
            received; up to two fifths longer. A large reply on a slow connection may take longer.
    """

    def __init__(self, factory: ConnectionPool, max_connections: int, timeout_s: float) -> None:
        self._factory = factory
        self._room = asyncio.Semaphore(max_connections)
        self._timeout_s = timeout_s
        self._idle: list[RedisConnection] = []
        self._closings = 0
        self._waiting: dict[RedisConnection, _Wait] = {}
        self._watch: asyncio.TimerHandle | None = None

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and read their replies, one each. Without commands, nothing is sent.

        Raises:
            redis.exceptions.RedisError: The first error among the replies, or the connection was lost.
            TimeoutError, redis.exceptions.TimeoutError: It took too long.
        """
        if not commands:
            return []
        began = asyncio.get_running_loop().time()
        await self._enter(began)
        try:
            replies = await self._ask(packed(commands), len(commands), began)
        finally:
            self._room.release()
        return _checked(replies)

    async def _enter(self, began: float) -> None:
        if self._room.locked():
            async with asyncio.timeout_at(began + self._timeout_s):
                await self._room.acquire()
        else:
            await self._room.acquire()  # there is room, so this does not wait

    async def _ask(self, pieces: Sequence[bytes | memoryview], replies: int, began: float) -> list[Any]:
        closings = self._closings
        make = self._factory.make_connection
        connection = self._idle.pop() if self._idle else RedisConnection(make())  # type: ignore[no-untyped-call]
        try:
            if not connection.connected:
                async with asyncio.timeout_at(began + self._timeout_s):
                    await connection.connect()
            answer = connection.ask(pieces, replies)
            self._waiting[connection] = _Wait(began, connection.moved)
            if self._watch is None:
                loop = asyncio.get_running_loop()
                self._watch = loop.call_later(self._timeout_s / 5, self._look, loop)
            answered = await answer
        except BaseException:
            connection.close()  # its remaining replies have no caller
            await self.aclose()  # idle connections are not watched and may be lost, too
            raise
        finally:
            self._waiting.pop(connection, None)
        if self._closings == closings:
            self._idle.append(connection)
        else:
            connection.close()
        return answered

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fail round trips that have made no progress for too long."""
        now = loop.time()
        for connection, wait in self._waiting.items():
            if connection.moved != wait.moved:
                wait.since, wait.moved = now, connection.moved
            elif wait.since < now - self._timeout_s:
                connection.fail(RedisTimeoutError(f"no progress in {self._timeout_s:g} s"))
        self._watch = loop.call_later(self._timeout_s / 5, self._look, loop) if self._waiting else None

    async def transact(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands as one transaction and read their replies; nothing is done unless all of them have arrived.

        Redis waits for the disk once. For commands by themselves it does so each time it has read a part of them, 16 kB
        or a large value. That is three times for a submission of one group, and once or twice more for each further
        one.

        Raises:
            Whatever `send` does.
        """
        return _checked((await self.send([("MULTI",), *commands, ("EXEC",)]))[-1])

    async def aclose(self) -> None:
        """Close the connections that are idle now, and the others when they are; new ones are made when needed."""
        self._closings += 1
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class RedisConnection(asyncio.Protocol):
    """One connection. It has one round trip at a time.

    Args:
        address: Where to connect, and with which user, password and database. redis-py read it from a URL.
    """

    def __init__(self, address: AbstractConnection) -> None:
        self._address = address
        self._transport: asyncio.WriteTransport | None = None
        self._unix_socket: socket.socket | None = None
        self._reader = hiredis.Reader(protocolError=InvalidResponse, replyError=parse_error, notEnoughData=_INCOMPLETE)
        self._replies: list[Any] = []
        self._wanted = 0
        self._received_bytes = 0
        self._answered: asyncio.Future[list[Any]] | None = None

    @property
    def connected(self) -> bool:
        """Whether it ever was; it may have been lost since."""
        return self._transport is not None

    @property
    def moved(self) -> int:
        """A number that changes as long as bytes are sent or received."""
        if self._transport is None or self._transport.is_closing():
            return self._received_bytes
        return self._received_bytes - self._transport.get_write_buffer_size() - self._unread_bytes()

    def _unread_bytes(self) -> int:
        """Return about how much the server has not read of what the kernel has, if that can be told.

        The send buffer is large, and its socket takes more only after the server has read three quarters of it.
        """
        if self._unix_socket is None or sys.platform != "linux":
            return 0
        return int.from_bytes(fcntl.ioctl(self._unix_socket.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    async def connect(self) -> None:
        """Connect, log in and choose the database. Replies come in RESP3: hashes as dicts, scores as numbers.

        Raises:
            redis.exceptions.RedisError, OSError: There is no server, or it cannot serve anybody now.
        """
        address, loop = self._address, asyncio.get_running_loop()
        if isinstance(address, UnixDomainSocketConnection):
            self._transport, _ = await loop.create_unix_connection(lambda: self, address.path)
            self._unix_socket = cast("socket.socket", self._transport.get_extra_info("socket"))
            self._unix_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        else:
            assert isinstance(address, TcpConnection)  # noqa: S101 - redis-py has no third kind
            tls = address.ssl_context.get() if isinstance(address, SSLConnection) else None
            self._transport, _ = await loop.create_connection(lambda: self, address.host, address.port, ssl=tls)
        login = ("AUTH", address.username or "default", address.password) if address.password else ()
        greeting: list[Command] = [("HELLO", 3, *login)]
        if address.db:
            greeting.append(("SELECT", address.db))
        _checked(await self.ask(packed(greeting), len(greeting)))

    def ask(self, pieces: Sequence[bytes | memoryview], replies: int) -> "asyncio.Future[list[Any]]":
        """Send commands; the future has one reply for each, which may be an error.

        Raises:
            redis.exceptions.RedisError: The connection was lost, or (from the future) the server cannot serve anybody.
        """
        assert self._transport is not None, "connect before you ask"  # noqa: S101
        if self._transport.is_closing():
            raise RedisConnectionError("the connection was lost while it was idle")
        self._replies, self._wanted = [], replies
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.writelines(pieces)  # this is all that is under way, so no caller must wait for room
        return self._answered

    def close(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take in what came, and hand over the replies once all are there."""
        self._received_bytes += len(data)
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                if isinstance(reply, RedisConnectionError):  # such as LOADING
                    raise reply
                if not isinstance(reply, hiredis.PushNotification):  # no caller here wants it
                    self._replies.append(reply)
        except RedisError as error:
            self.fail(error)
        else:
            if len(self._replies) >= self._wanted and self._answered is not None and not self._answered.done():
                self._answered.set_result(self._replies)
                self._answered, self._replies = None, []  # they may be megabytes

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the waiting caller: no replies will come."""
        self.fail(RedisConnectionError(f"the connection was lost: {error or 'closed by the server'}"))

    def fail(self, error: RedisError) -> None:
        """Fail the waiting caller with an error."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


def parse_error(reply: str) -> RedisError:
    """Return the error that a reply means, of the class that redis-py has for it."""
    if reply == _TOO_MANY_CLIENTS:
        return RedisConnectionError(reply)
    code, _, text = reply.partition(" ")
    return _ERRORS[code](text) if code in _ERRORS else ResponseError(reply)


def _checked(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, RedisError):
            raise reply
    return replies


def packed(commands: Iterable[Command]) -> list[bytes | memoryview]:
    """Lay commands out as Redis reads them, in pieces that need not be joined.

    A large argument is a piece, if the last argument of its command is large, too.
    """
    pieces: list[bytes | memoryview] = []
    small: list[bytes] = []
    for command in commands:
        if not _is_large(command[-1]):  # a look at all arguments of all commands would cost more than it saves
            small.append(_packed(command))
            continue
        large = [n for n, argument in enumerate(command) if _is_large(argument)]
        small.append(b"*%d\r\n" % len(command))
        for start, end in pairwise((-1, *large, len(command))):
            if end - start > 1:
                small.append(_packed(command[start + 1 : end]).partition(b"\r\n")[2])
            if end < len(command):
                value: Any = command[end]  # bytes or a view of bytes
                pieces += (b"%b$%d\r\n" % (b"".join(small), len(value)), value)
                small = [b"\r\n"]
    pieces.append(b"".join(small))
    return pieces


def _is_large(argument: Argument) -> bool:
    return isinstance(argument, (bytes, memoryview)) and len(argument) > _COPIED_BYTES


def _packed(command: Command) -> bytes:
    text: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub means a tuple of one
    return text
