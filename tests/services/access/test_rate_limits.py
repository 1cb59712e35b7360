"""Which limits a process knows while somebody else changes the data in Redis."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from app.services.access.rate_limits import RequestLimiter
from app.store.access.rate_limits import LimitStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import LIMITS
from tests.waiting import wait_until


@pytest.fixture
async def limiter(redis_url: str, redis_client: Redis) -> AsyncIterator[RequestLimiter]:
    connection = RedisClient(redis_url, 5.0)
    started = RequestLimiter(LimitStore(connection))
    await started.start()
    yield started
    await started.stop()
    await connection.aclose()


@pytest.mark.parametrize(
    "damage", [{b"run:\xff": "{}", "generation": "7"}, {b"\xff": "{", "generation": "7"}, {"generation": b"\xff"}]
)
async def test_damage_hides_no_limits_of_other_runs(
    limiter: RequestLimiter, redis_client: Redis, damage: dict[str | bytes, str | bytes]
) -> None:
    async def set_limit(limit: int, others: dict[str | bytes, str | bytes]) -> None:
        written = others | {"run:a": f'{{"max_connections": {limit}}}'}
        await redis_client.hset(LIMITS, mapping=written)  # type: ignore[misc]
        await wait_until(lambda: limiter.max_connections("a") == limit)

    await set_limit(3, damage)
    await set_limit(4, {"generation": "8"})
