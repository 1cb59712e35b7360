"""Rate limits in Redis: the script against the rule, and the limits of runs."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from app.core.access.identity import owner_of_token
from app.core.access.rate_limits import BURST_US, LimitCost
from app.core.runs.capacity import WaitingGroups
from app.core.runs.settings import Policy
from app.store.access import scripts
from app.store.access.rate_limits import LimitStore, of_run
from app.store.redis.client import RedisClient
from app.store.redis.keys import LIMITS, RUNS, ServiceKeys
from lachesis.wire.limits import RateLimitSettings, RunLimitSettings
from tests.acl_user import unrestricted_url
from tests.core.access.rate_limits import count_use
from tests.properties import examples
from tests.store.conftest import CONFIG, RUN, Store
from tests.store.conftest import KEYS as KEYS_OF_RUN

KEYS = ServiceKeys()
OFFSETS_US = st.integers(-3_000_000, 4_000_000)


@given(
    limits=st.lists(
        st.tuples(
            st.none() | OFFSETS_US | st.integers(-(10**12), 10**15),
            st.none() | OFFSETS_US | st.integers(-(10**12), 10**15),
            st.integers(0, 5_000_000) | st.integers(0, 10**15),
        ),
        min_size=1,
        max_size=6,
    ),
    happened=st.booleans(),
)
@examples(200)
def test_the_script_decides_as_the_rule(
    redis_url: str, limits: list[tuple[int | None, int | None, int]], happened: bool
) -> None:
    """Each limit: its arrival, or none yet; when that was written, or unknown; and the cost. The script says when it
    decided. What was written after that does not count.
    """

    async def compare() -> None:
        connection, admin = RedisClient(redis_url, 5.0), RedisClient(unrestricted_url(redis_url), 5.0)
        try:
            seconds, microseconds = map(int, await connection.call("TIME"))
            began_us = 1_000_000 * seconds + microseconds
            arrivals = [0 if offset is None else began_us + offset for offset, *_ in limits]
            written = [0 if offset is None else began_us + offset for _, offset, _ in limits]
            texts = [f"{at} {when}" if when else str(at) for at, when in zip(arrivals, written, strict=True)]
            costs = [cost for *_, cost in limits]
            keys = [f"lachesis:limit:{place}" for place in range(len(limits))]
            there = [("SET", key, text) for key, at, text in zip(keys, arrivals, texts, strict=True) if at]
            await connection.pipeline([("DEL", *keys), *there])
            now_us, *waits = await connection.run(
                scripts.count_use(KEYS, arrivals=keys, burst_us=BURST_US, happened=happened, costs_us=costs)
            )
            assert now_us >= began_us
            counted = [0 if when > now_us else at for at, when in zip(arrivals, written, strict=True)]
            expected_waits, expected = count_use(counted, costs, now_us, happened=happened)
            assert waits == expected_waits
            for key, at, text, after in zip(keys, arrivals, texts, expected, strict=True):
                stored, left_ms = await admin.pipeline([("GET", key), ("PTTL", key)])
                if any(waits) or after <= now_us:
                    assert stored == (text.encode() if at else None)
                else:
                    assert stored == f"{after} {now_us}".encode() if stored else left_ms == -2
                    assert left_ms <= (after - now_us) / 1000 + 1
            await connection.call("DEL", *keys)
        finally:
            await connection.aclose()
            await admin.aclose()

    asyncio.run(compare())


async def test_what_is_used_expires_and_another_value_begins_unused(
    connection: RedisClient, redis_client: Redis
) -> None:
    store, owner = LimitStore(connection), owner_of_token("0" * 12)
    assert await store.count([(owner, LimitCost("max_groups_per_s", 1.0, 60_000_000))]) == [0]
    (wait,) = await store.count([(owner, LimitCost("max_groups_per_s", 1.0, 1_000_000))])
    assert 0 < wait <= 59_000_000
    assert await store.count([(owner, LimitCost("max_groups_per_s", 2.0, 500_000))]) == [0]
    for key in await redis_client.keys("lachesis:*:used:*"):
        assert 0 < await redis_client.pttl(key) <= 60_000
    ((slow,), (fast,), none) = await store.used(
        [(owner, RateLimitSettings(max_groups_per_s=limit)) for limit in (1.0, 2.0)]
        + [(of_run("x"), RateLimitSettings())]
    )
    assert 1 < slow.used <= 30
    assert fast.used < 0.5
    assert none == []


@pytest.mark.parametrize(("written_us", "counts"), [(None, True), (-1, True), (10**12, False)])
async def test_a_use_that_was_written_in_the_future_does_not_count(
    connection: RedisClient, redis_client: Redis, written_us: int | None, counts: bool
) -> None:
    """The clock of Redis has gone back. Earlier builds did not write the time."""
    seconds, _ = await redis_client.time()
    words = [1_000_000 * seconds + 10**13, *(() if written_us is None else (1_000_000 * seconds + written_us,))]
    await redis_client.set(KEYS.limit_use(of_run(RUN), "max_groups_per_s", 1.0), " ".join(map(str, words)))
    store = LimitStore(connection)
    ((limit,),) = await store.used([(of_run(RUN), RateLimitSettings(max_groups_per_s=1.0))])
    (wait_us,) = await store.count([(of_run(RUN), LimitCost("max_groups_per_s", 1.0, 1))])
    assert [limit.used > 0, wait_us > 0] == [counts, counts]


async def test_limits_of_runs_are_known_by_generation(store: Store) -> None:
    limits = LimitStore(store.connection)

    async def put(policy: Policy) -> None:
        assert await store.runs.put(RUN, CONFIG, policy, (await store.view()).epoch)

    async def change(seen: bytes) -> tuple[bytes, dict[str, RunLimitSettings]]:
        found = await limits.of_runs(seen)
        assert found is not None
        assert int(found[0]) > int(seen)
        assert await limits.of_runs(found[0]) is None
        return found

    assert await limits.of_runs(None) == (b"0", {})
    await put(Policy(max_age_s=5))
    assert await limits.of_runs(b"0") is None, "nothing about rates has changed"
    await put(Policy(max_bytes_per_s=100))
    assert await store.redis.hget(LIMITS, f"run:{RUN}") == b'{"max_bytes_per_s":100.0}'  # type: ignore[misc]
    generation, found = await change(b"0")
    assert found == {RUN: RunLimitSettings(max_bytes_per_s=100)}
    await put(Policy(max_bytes_per_s=50, max_age_s=5))
    generation, found = await change(generation)
    assert found == {RUN: RunLimitSettings(max_bytes_per_s=50)}
    await put(Policy(max_age_s=5))
    generation, found = await change(generation)
    assert found == {}
    await put(Policy(max_requests_per_s=1))
    await store.runs.reset(RUN, "token")
    assert (await change(generation))[1] == {}


async def test_an_invalid_name_of_a_run_hides_no_queue(store: Store) -> None:
    await store.redis.zadd(RUNS, {"a/b": 0, b"\xff": 0})
    await store.redis.hset(KEYS_OF_RUN.token_queues, "0f3a5c7e9b1d", "2 300")  # type: ignore[misc]
    assert await LimitStore(store.connection).queued() == {"0f3a5c7e9b1d": {RUN: WaitingGroups(2, 300)}}


async def test_limits_that_cannot_be_read_stop_no_other_run(
    connection: RedisClient, redis_client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"run:a": "{", "run:b": '{"max_bytes_per_s": 3}', "run:c": '{"max_samples_per_s": 3}'}
    await redis_client.hset(LIMITS, mapping=texts | {"generation": 7})  # type: ignore[misc]
    with caplog.at_level(logging.ERROR, "lachesis.access"):
        assert await LimitStore(connection).of_runs(b"3") == (b"7", {"b": RunLimitSettings(max_bytes_per_s=3)})
    assert "run a " in caplog.text
    assert "run c " in caplog.text
