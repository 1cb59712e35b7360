"""Which limits a process knows while somebody else changes the data in Redis."""

from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from app.core.runs.settings import Policy
from app.services.access.rate_limits import RequestLimiter
from app.store.access.rate_limits import LimitStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import LIMITS
from tests.lossy_line import LossyLine
from tests.services.conftest import RUN, Process, config
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


async def test_a_run_is_made_changed_and_deleted_although_its_limits_cannot_be_read_again(
    process: Callable[..., Process], lossy: tuple[LossyLine, str]
) -> None:
    """All of it is stored by then. A repeated deletion would not find the run."""
    line, url = lossy
    services, _ = process(url, store_patience_s=1.0)
    administration, limits = services.runs.administration, services.access.rate_limits
    reading = rb"HGET\r\n\$\d+\r\n" + LIMITS.encode()
    line.hold(reading)
    _, is_new = await administration.create(RUN, config(2), Policy(max_connections=3))
    assert is_new
    await administration.change(RUN, {"max_connections": 4})
    line.heal()
    await limits.refresh()
    assert limits.max_connections(RUN) == 4
    line.hold(reading)
    await administration.delete(RUN)
    line.heal()
    await limits.refresh()
    assert limits.max_connections(RUN) is None
