"""Listen for news of a run, so that requests that wait for a batch need not poll."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Protocol

from redis.exceptions import RedisError

from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys

LEASE_NEWS = frozenset({b"changed", b"divided", b"registered", b"returned", b"rewound"})
"""News after which a request for a batch may get one although earlier requests still wait.

``changed``: settings. ``divided``: a rank got its shard of a new batch. ``registered``: a trainer. ``returned``: a
batch waits to be handed out again. ``rewound``: the run.
"""

_LONGEST_SILENCE_S = 1.0


class Listen(Protocol):
    """Yields the news of a run when something may have changed, and at least once a second: `listen`, connected."""

    def __call__(self, run: str, listener: str | None = None) -> AsyncGenerator[frozenset[bytes], None]: ...


async def listen(
    connection: RedisClient, run: str, listener: str | None = None
) -> AsyncGenerator[frozenset[bytes], None]:
    """Yield whenever something changed that may let a batch form, and at least once a second.

    Scripts publish on a channel named like the run's hash. The second is needed because a message may be lost with a
    connection, and because leases run out without a message. One connection serves all requests of this process that
    wait for a run.

    Args:
        connection: The connection to Redis.
        run: The run's name.
        listener: The API process that listens, to hear about its turns too (`app.store.runs.turns`).

    Yields:
        What scripts published since the last time. Empty: anything may have changed.
    """
    keys = RunKeys(run)
    channels = [keys.run] if listener is None else [keys.run, f"{keys.turn}:{listener}"]
    while True:
        with contextlib.suppress(RedisError, OSError):
            async with connection.listeners.pubsub(ignore_subscribe_messages=True) as pubsub:
                await pubsub.subscribe(*channels)
                yield frozenset()  # for changes before the subscription
                while True:
                    words = set()
                    word = await pubsub.get_message(timeout=_LONGEST_SILENCE_S)
                    while word is not None:  # one look serves all changes so far
                        words.add(word["data"])
                        word = await pubsub.get_message(timeout=0.0)
                    yield frozenset(words)
        await asyncio.sleep(_LONGEST_SILENCE_S / 4)
        yield frozenset()
