"""Notify that a run changed, so that requests that wait for a batch need not poll."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from redis.exceptions import RedisError

from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys

_LONGEST_SILENCE_S = 1.0


async def changes(connection: RedisClient, run: str) -> AsyncGenerator[None, None]:
    """Yield whenever something changed that may let a batch form, and at least once a second.

    Scripts publish on a channel named like the run's hash. Word may be lost with a connection, and time alone changes
    things too (leases run out), hence the second. One connection serves all who wait for a run in this process.
    """
    channel = RunKeys(run).run
    while True:
        with contextlib.suppress(RedisError, OSError):
            async with connection.listeners.pubsub(ignore_subscribe_messages=True) as listener:
                await listener.subscribe(channel)
                yield None  # what happened before we listened
                while True:
                    word = await listener.get_message(timeout=_LONGEST_SILENCE_S)
                    while word is not None:  # one look is enough for all changes so far
                        word = await listener.get_message(timeout=0.0)
                    yield None
        await asyncio.sleep(_LONGEST_SILENCE_S / 4)
        yield None
