"""Contexts of traces are kept for the newest groups and batches of a run."""

from redis.asyncio import Redis

from app.store.groups.entries import group_name
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.traces.store import TraceStore, name_of_batch

KEYS = RunKeys("run")


def context(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


async def kept(redis_client: Redis) -> tuple[list[bytes], set[bytes]]:
    """The names in order, and those with a context."""
    names = await redis_client.lrange(KEYS.traced, 0, -1)  # type: ignore[misc]
    return names, set(await redis_client.hkeys(KEYS.traces))  # type: ignore[misc]


async def test_the_newest_are_kept_each_once(redis_url: str, redis_client: Redis) -> None:
    connection = RedisClient(redis_url, 5.0)
    traces = TraceStore(connection, most=3)
    await traces.keep("run", ["early"], context(1))
    assert await kept(redis_client) == ([], set()), "there is no such run"
    await redis_client.hset(KEYS.run, "config", "{}")  # type: ignore[misc]
    await traces.keep("run", ["a", "b"], context(1))
    await traces.keep("run", ["c"], context(2))
    assert await traces.of("run", ["c", "unknown", "b", "a"]) == [context(2), context(1)]
    await traces.keep("run", ["a"], context(3))
    assert await kept(redis_client) == ([b"a", b"b", b"c"], {b"a", b"b", b"c"}), "a repeated group has one place"
    assert await traces.of("run", ["a"]) == [context(3)]
    await traces.keep("run", ["d", "e"], context(4))
    assert await kept(redis_client) == ([b"c", b"d", b"e"], {b"c", b"d", b"e"})
    await traces.keep("run", ["f", "g", "h", "i"], context(5))
    assert await kept(redis_client) == ([b"g", b"h", b"i"], {b"g", b"h", b"i"})
    assert await traces.of("run", ["a", "f"]) == []
    assert await traces.of("run", []) == []
    assert 0 < await redis_client.pttl(KEYS.traces) <= 24 * 3600 * 1000
    assert 0 < await redis_client.pttl(KEYS.traced) <= 24 * 3600 * 1000
    await connection.aclose()


def test_no_group_is_named_like_a_batch() -> None:
    assert group_name("batch:1") != name_of_batch("1")
    assert ":" not in group_name("batch:1")
