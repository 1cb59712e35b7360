"""Records of batches that are read while batches move."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.store.batches.records import BatchRecordStore
from app.store.redis.client import RedisClient
from tests.lossy_line import LossyLine, lossy_line
from tests.store.conftest import KEYS, RUN, Store, encoded
from tests.waiting import wait_until


@pytest.fixture
async def line(redis_url: str, tmp_path: Path) -> AsyncIterator[tuple[LossyLine, BatchRecordStore]]:
    """A line to Redis that can hold commands, and the records at its end."""
    async with lossy_line(redis_url, tmp_path / "line") as (line, url):
        connection = RedisClient(url, patience_s=600, timeout_s=600)
        yield line, BatchRecordStore(connection)
        await connection.aclose()


@pytest.mark.parametrize(("removed", "page"), [(0, (["d", "c"], True)), (1, (["d"], True)), (2, None), (5, None)])
async def test_a_page_repeats_nothing_when_records_are_removed_in_between(
    store: Store, line: tuple[LossyLine, BatchRecordStore], removed: int, page: tuple[list[str], bool] | None
) -> None:
    held, records = line
    await store.redis.rpush(KEYS.batch_order, *"abcdef")  # type: ignore[misc]
    held.hold(b"LRANGE")
    reading = asyncio.create_task(records.latest(RUN, "e", 2))
    await wait_until(lambda: held.holds)
    if removed:
        await store.redis.lpop(KEYS.batch_order, removed)  # type: ignore[misc]
        await store.redis.rpush(KEYS.batch_order, *"ghijk")  # type: ignore[misc]
    await held.deliver_late()
    assert await reading == page


async def test_pages_follow_each_other(store: Store) -> None:
    records = BatchRecordStore(store.connection)
    assert await records.latest(RUN, None, 2) == ([], False)
    await store.redis.rpush(KEYS.batch_order, *"abcde")  # type: ignore[misc]
    assert await records.latest(RUN, None, 2) == (["e", "d"], True)
    assert await records.latest(RUN, "d", 2) == (["c", "b"], True)
    assert await records.latest(RUN, "b", 2) == (["a"], False)
    assert await records.latest(RUN, "a", 2) == ([], False)
    assert await records.latest(RUN, None, 5) == (["e", "d", "c", "b", "a"], False)
    assert await records.latest(RUN, "x", 2) is None


async def test_where_a_batch_is_comes_from_one_moment(store: Store) -> None:
    """A rewind moves a kept batch back to the leased ones."""

    async def transactions() -> int:
        statistics = await store.redis.info("commandstats")
        return int(statistics.get("cmdstat_exec", {"calls": 0})["calls"])

    await store.admit(encoded(), ids=["one"])
    lease = await store.take("one")
    await store.acknowledge(lease, keep=True)
    before = await transactions()
    (found,) = await BatchRecordStore(store.connection).recorded(RUN, [lease.batch_id])
    assert found is not None
    assert await transactions() == before + 1
