"""What is damaged in a run costs its history no more than that."""

import secrets
import tracemalloc
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.core.history.resolution import KEPT
from app.core.history.series import Facts, HistorySpan
from app.services.stores import Stores
from app.store.history.codec import encode_span
from app.store.history.store import HistoryStore, parse_span
from app.store.redis.keys import RunKeys
from lachesis.wire.errors import UnreadableRecord
from tests.core.views import TTL_MS
from tests.services.conftest import RUN, Process
from tests.services.history.history_runs import group, make_run

KEYS = RunKeys(RUN)
GOOD = encode_span(HistorySpan(environments={"math": Facts({"groups_in": 1})}))
FINE, MINUTE, *_ = KEPT
MIB = 1024 * 1024


async def add(redis: Redis, time_s: int, *texts: bytes) -> None:
    """Add entries to the finest stream."""
    for text in texts:
        await redis.xadd(KEYS.series(FINE.step_s), {"facts": text}, f"{time_s * 1000}-*")


async def minutes(histories: HistoryStore) -> list[float]:
    """Return the counts of groups that came in, by minutes."""
    found = [parse_span(RUN, one) for one in await histories.spans(RUN, MINUTE, 0, 1e12)]
    return [span.environments["math"].counts["groups_in"] for span in found]


async def test_a_look_that_fails_stops_neither_writing_nor_adding_up(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    histories = Stores.on(services.connection, TTL_MS).histories
    math = await make_run(services)
    now_s, _ = await redis_client.time()
    await add(redis_client, now_s - 100, GOOD)
    await redis_client.set(KEYS.series_totals, "no totals")
    await services.groups.native.submit(RUN, [group("a", math, 0.0, 1.0)])
    with pytest.raises(UnreadableRecord):
        await services.history.writer.write(RUN, maintained=True)
    assert await minutes(histories) == [1]
    (written,) = await histories.spans(RUN, FINE, now_s, 1e12)
    assert parse_span(RUN, written).environments["math"].counts["groups_in"] == 1


async def test_coarser_spans_are_sums_of_what_can_be_read(process: Callable[..., Process], redis_client: Redis) -> None:
    services, _ = process()
    await make_run(services)
    begin_s = (await redis_client.time())[0] // 60 * 60 - 180
    await add(redis_client, begin_s, GOOD, b"no span", GOOD)
    await add(redis_client, begin_s + 60, GOOD)
    await services.history.writer.write(RUN, maintained=True)
    assert await minutes(Stores.on(services.connection, TTL_MS).histories) == [2, 1]


async def test_a_long_stream_is_added_up_span_by_span(process: Callable[..., Process], redis_client: Redis) -> None:
    """All of it may be more than the memory holds."""
    services, _ = process()
    await make_run(services)
    await services.history.writer.write(RUN, maintained=True)
    begin_s = (await redis_client.time())[0] // 60 * 60 - 7200
    await redis_client.delete(KEYS.series(FINE.step_s))
    for minute in range(100):
        large = Facts({"groups_in": 1}, texts={"reason": secrets.token_hex(100_000)})
        await add(redis_client, begin_s + 60 * minute, encode_span(HistorySpan(environments={"math": large})))
    services.history.writer.keep_only([])
    tracemalloc.start()
    try:
        await services.history.writer.write(RUN, maintained=True)
        assert tracemalloc.get_traced_memory()[1] < 5 * MIB
    finally:
        tracemalloc.stop()
    assert await minutes(Stores.on(services.connection, TTL_MS).histories) == [1] * 100
