"""What a round trip to Redis costs this process, beside redis-py's pipeline: ``python -m benchmarks.pipeline``."""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from redis.asyncio import ConnectionPool, Redis

from app.store.redis.pipeline import Pipeline
from app.store.server.embedded import EmbeddedRedis

ROUNDS, TRIPS, CONNECTIONS = 5, 4000, 32
PAYLOAD = os.urandom(16 * 1024)  # about 8 sequences of 512 tokens


async def cpu_us(send: Callable[[str], Awaitable[object]]) -> float:
    """Return the CPU time of a round trip, over all connections."""
    names = iter([f"key{number % 99}" for number in range(TRIPS)])

    async def work() -> None:
        for name in names:
            await send(name)

    began_s = time.process_time()
    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    return (time.process_time() - began_s) / TRIPS * 1e6


async def compare(url: str) -> None:
    """Print the costs of transactions of two commands, both ways in each round."""
    pipeline, client = Pipeline(ConnectionPool.from_url(url), CONNECTIONS, 5.0), Redis.from_url(url)

    async def ours(name: str) -> object:
        return await pipeline.transact([("HSET", "hash", name, "entry"), ("SET", name, PAYLOAD)])

    async def theirs(name: str) -> object:
        async with client.pipeline(transaction=True) as transaction:
            transaction.hset("hash", name, "entry")
            transaction.set(name, PAYLOAD)
            return await transaction.execute()

    for _ in range(ROUNDS):
        own, other = await cpu_us(ours), await cpu_us(theirs)
        print(f"CPU of a round trip: {own:.1f} us, redis-py {other:.1f} us, {other / own:.1f} times as much")
    await pipeline.aclose()
    await client.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis.start(Path(folder) / "redis") as server:
        asyncio.run(compare(server.url))
