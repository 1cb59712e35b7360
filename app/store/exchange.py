"""Commands to Redis in one round trip, at a fraction of what redis-py's pipelines cost.

Those pack each argument in Python and look after each reply by itself: 100 us of a submission's 700. Here C packs them,
payloads are not copied, and a reply is what Redis said.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import hiredis
from redis.asyncio import BlockingConnectionPool
from redis.exceptions import ResponseError

Argument = str | bytes | memoryview | int | float
Command = tuple[Argument, ...]

_COPIED_BYTES = 8 * 1024  # a shorter argument is rather copied than sent by itself


async def exchange(pool: BlockingConnectionPool, commands: Sequence[Command]) -> list[Any]:
    """Send commands and read their replies, one each.

    Raises:
        redis.exceptions.RedisError: The first error among the replies, or the connection was lost.
    """
    connection = await pool.get_connection()  # type: ignore[no-untyped-call]
    try:
        await connection.send_packed_command(packed(commands), check_health=False)
        errors: list[ResponseError] = []
        replies = []
        for _ in commands:
            try:
                replies.append(await connection.read_response())
            except ResponseError as error:
                errors.append(error)
    except BaseException:
        await connection.disconnect(nowait=True)  # what it still has to say is for nobody
        raise
    finally:
        await pool.release(connection)
    if errors:
        raise errors[0]
    return replies


async def transact(pool: BlockingConnectionPool, commands: Sequence[Command]) -> list[Any]:
    """Send commands as one transaction and read their replies; nothing is done unless all of them have arrived.

    Redis waits for the disk once. For commands by themselves it does so each time it has read a part of them, 16 kB or
    a large value: four times for a submission, and once more for each further group.

    Raises:
        redis.exceptions.RedisError: The first error among the replies, or the connection was lost.
    """
    replies: list[Any] = (await exchange(pool, [("MULTI",), *commands, ("EXEC",)]))[-1]
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise reply
    return replies


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
