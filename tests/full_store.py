"""Fill the memory of the test's own Redis."""

from collections.abc import Awaitable, Callable

import httpx
from redis.asyncio import Redis


async def limit_memory(redis: Redis, spare_megabytes: int) -> int:
    """Leave the server so much memory beside what it uses, or take it away; return its limit."""
    limit = (await redis.info("memory"))["used_memory"] + spare_megabytes * 1_000_000
    await redis.config_set("maxmemory", limit)
    return int(limit)


async def fill(send: Callable[[int], Awaitable[httpx.Response]]) -> int:
    """Send numbered bodies until the store is full; return how many it took."""
    taken = 0
    while (reply := await send(taken)).is_success:
        taken += 1
        assert taken < 1000
    assert (reply.status_code, reply.json()["code"]) == (507, "store_full")
    assert int(reply.headers["retry-after"]) >= 1
    return taken
