"""Round trips to Redis without redis-py's pipelines: the same bytes, and each reply to its own command."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import Connection as RedisConnection

from app.store.exchange import exchange, packed

WORDS = st.one_of(st.text(max_size=9), st.binary(max_size=9), st.integers(-(2**63), 2**63))
LAST = st.one_of(
    WORDS, st.binary(min_size=8193, max_size=8300), st.binary(min_size=9000, max_size=9000).map(memoryview)
)


@given(st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=4), LAST), min_size=1, max_size=6))
def test_commands_are_packed_as_by_redis_py(parts: list[tuple[list[Any], Any]]) -> None:
    commands = [("SET", *words, last) for words, last in parts]
    assert b"".join(packed(commands)) == b"".join(RedisConnection().pack_commands(commands))


async def test_after_an_error_the_next_replies_are_still_those_of_their_commands(redis_url: str) -> None:
    pool = BlockingConnectionPool.from_url(redis_url, max_connections=1)
    with pytest.raises(Exception, match="unknown command"):
        await exchange(pool, [("ECHO", "a"), ("NOSUCHCOMMAND",), ("ECHO", "b")])
    assert await exchange(pool, [("ECHO", "c"), ("ECHO", b"d" * 9000)]) == [b"c", b"d" * 9000]
    await pool.aclose()


async def test_replies_nobody_waited_for_are_not_taken_for_later_ones(redis_url: str) -> None:
    pool = BlockingConnectionPool.from_url(redis_url, max_connections=1)
    given_up = asyncio.create_task(exchange(pool, [("BLPOP", "nothing-ever-comes-here", "0.3"), ("ECHO", "late")]))
    await asyncio.sleep(0.1)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert await exchange(pool, [("ECHO", "mine")]) == [b"mine"]
    await pool.aclose()
