"""What is said of a Redis that changes while the service runs."""

import pytest
from redis.asyncio import Redis

from app.store.redis.keys import SERVICE
from app.store.server.embedded import EmbeddedRedis
from app.store.server.probe import probe
from app.store.server.watch import StoreWatch
from lachesis.wire.states import EVERY_WRITE
from tests.acl_user import restricted_url


async def watched(server: EmbeddedRedis, client: Redis) -> StoreWatch:
    return StoreWatch(server.url, (await probe(client)).summary)


async def test_a_lost_append_only_file_changes_the_promise_and_is_logged_once(
    own_server: EmbeddedRedis, own_redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    watch = await watched(own_server, own_redis)
    await watch.look()
    assert (watch.durability.endswith(EVERY_WRITE), caplog.messages) == (True, [])
    await own_redis.config_set("appendonly", "no")
    for _ in range(2):
        await watch.look()
    assert "NOT durable" in watch.durability
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    change, remedy = caplog.messages
    assert change.startswith("Redis has changed. Now: ")
    assert change.endswith(EVERY_WRITE)
    assert "set appendonly yes" in remedy


async def test_a_redis_that_evicts_is_said_at_once_with_the_remedy_and_then_seldom(
    own_server: EmbeddedRedis, own_redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    watch = await watched(own_server, own_redis)
    before = watch.durability
    for _ in range(2):
        await own_redis.config_set("maxmemory-policy", "allkeys-lru")
        for _ in range(3):
            await watch.look()
        assert "maxmemory-policy allkeys-lru" in watch.durability
        (line,) = caplog.messages
        assert "Set maxmemory-policy to noeviction" in line
        await own_redis.config_set("maxmemory-policy", "noeviction")
        caplog.clear()
        await watch.look()
        assert watch.durability == before
        assert len(caplog.messages) == 1
        caplog.clear()


async def test_lost_data_is_an_error_in_the_log(
    own_server: EmbeddedRedis, own_redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The service clock is a part of the data, and does not go back."""
    watch = await watched(own_server, own_redis)
    for clock_ms in (1000, 90_000):
        await own_redis.hset(SERVICE, "clock_ms", str(clock_ms))
        await watch.look()
    assert caplog.messages == []
    await own_redis.flushall()
    for clock_ms in (2000, 3000):
        await own_redis.hset(SERVICE, "clock_ms", str(clock_ms))
        await watch.look()
    ((level, message),) = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert level == "ERROR"
    assert message.startswith("Redis has lost data: the service clock in it went back by 88 s.")


async def test_a_redis_that_is_down_changes_nothing(
    own_server: EmbeddedRedis, own_redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    watch = await watched(own_server, own_redis)
    own_server.stop()
    caplog.clear()
    await watch.look()
    assert (watch.durability.endswith(EVERY_WRITE), caplog.messages) == (True, [])


async def test_the_documented_user_sees_a_change_and_asks_for_the_configuration_once(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    watch = StoreWatch(restricted_url(own_server.url), "as before")
    for _ in range(3):
        await watch.look()
    assert "once a second" in watch.durability
    assert (await own_redis.info("stats"))["acl_access_denied_cmd"] == 1
    await own_redis.config_set("appendonly", "no")
    await watch.look()
    assert "NOT durable" in watch.durability
