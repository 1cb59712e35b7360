"""Commands to Redis in one round trip, at a fraction of what redis-py's pipelines cost.

Those pack each argument in Python and look after each reply by itself: 100 us of a submission's 700. Here C packs them,
payloads are not copied, and a reply is what Redis said. Connections are kept; to take them from a pool, which looks
them over each time, cost another 20 us.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

Argument = str | bytes | memoryview | int | float
Command = tuple[Argument, ...]

_COPIED_BYTES = 8 * 1024  # a shorter argument is rather copied than sent by itself


class Exchange:
    """Round trips over connections of its own.

    Args:
        factory: Makes them; none of them counts as one of this pool's.
        max_connections: Most round trips at a time; further ones wait.
    """

    def __init__(self, factory: ConnectionPool, max_connections: int) -> None:
        self._factory = factory
        self._room = asyncio.Semaphore(max_connections)
        self._idle: list[AbstractConnection] = []

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and read their replies, one each.

        Raises:
            redis.exceptions.RedisError: The first error among the replies, or the connection was lost.
        """
        async with self._room:
            connection = self._idle.pop() if self._idle else self._factory.make_connection()  # type: ignore[no-untyped-call]
            errors: list[ResponseError] = []
            replies = []
            try:
                if not connection.is_connected:
                    await connection.connect()
                await connection.send_packed_command(packed(commands), check_health=False)  # type: ignore[arg-type]
                for _ in commands:
                    try:
                        replies.append(await connection.read_response())
                    except ResponseError as error:
                        errors.append(error)
            except BaseException:
                await connection.disconnect(nowait=True)  # what it still has to say is for nobody
                await self.aclose()  # whatever became of it may have become of those that were not watched
                raise
            self._idle.append(connection)
        if errors:
            raise errors[0]
        return replies

    async def transact(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands as one transaction and read their replies; nothing is done unless all of them have arrived.

        Redis waits for the disk once. For commands by themselves it does so each time it has read a part of them, 16 kB
        or a large value: three times for a submission of one group, and once or twice more for each further one.

        Raises:
            redis.exceptions.RedisError: The first error among the replies, or the connection was lost.
        """
        replies: list[Any] = (await self.send([("MULTI",), *commands, ("EXEC",)]))[-1]
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        return replies

    async def aclose(self) -> None:
        """Close the connections that are idle; others are made when they are needed."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)


def packed(commands: Iterable[Command]) -> list[bytes | memoryview]:
    """Lay commands out as Redis reads them, in pieces that need not be joined; a large last argument is a piece."""
    pieces: list[bytes | memoryview] = []
    small: list[bytes] = []
    for command in commands:
        *words, last = command
        if isinstance(last, (bytes, memoryview)) and len(last) > _COPIED_BYTES:
            before = _packed(tuple(words)).partition(b"\r\n")[2]
            small.append(b"*%d\r\n%b$%d\r\n" % (len(command), before, len(last)))
            pieces += (b"".join(small), last)
            small = [b"\r\n"]
        else:
            small.append(_packed(command))
    pieces.append(b"".join(small))
    return pieces


def _packed(command: Command) -> bytes:
    text: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub means a tuple of one
    return text
