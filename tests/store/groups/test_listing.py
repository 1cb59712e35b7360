"""Groups that have left are read page by page, while others leave and old ones are forgotten."""

import asyncio
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from app.store.groups.entries import Placement
from app.store.groups.listing import MAX_ITEM_HEADER_BYTES, GroupListStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from lachesis.wire import blob
from tests.properties import examples
from tests.store.conftest import KEYS, RUN, Store, encoded

records = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5)), max_size=12)
"""Of each: by how much later it is than the previous one, and how many groups left."""
meanwhile = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=40)
"""Between pages: how many records come at the time of the last one, and how many of the oldest are forgotten."""


@examples(150)
@given(records, meanwhile, st.integers(1, 7))
def test_pages_have_each_group_that_stays_once_in_reverse_order(
    redis_url: str, left: list[tuple[int, int]], changes: list[tuple[int, int]], most: int
) -> None:
    asyncio.run(_walk(redis_url, left, changes, most))


async def _walk(redis_url: str, left: list[tuple[int, int]], changes: list[tuple[int, int]], most: int) -> None:
    redis, connection = Redis.from_url(redis_url), RedisClient(redis_url, 5.0)
    keys = RunKeys(f"r{uuid.uuid4().hex}")
    clock, kept = 1000, list[list[str]]()
    for later, groups in left:
        clock += later
        kept.append([f"{len(kept)}-{n}" for n in range(groups)])
        await redis.rpush(keys.left, f"{clock} {' '.join(kept[-1])}")
    before = [name for names in kept for name in names]
    listed, position, steps = list[str](), None, iter(changes)
    while True:
        page = await GroupListStore(connection).left(keys.name, position, most)
        assert len(page) <= most
        assert all(record.known is None and not record.held for record in page)
        listed += [record.position.name for record in page]
        if len(page) < most:
            break
        position = page[-1].position
        come, gone = next(steps, (0, 0))
        for n in range(come):
            await redis.rpush(keys.left, f"{clock} new{n}")
        for _ in range(min(gone, len(kept))):
            await redis.lpop(keys.left)
            kept.pop(0)
    await redis.delete(keys.left)
    await redis.aclose()
    await connection.aclose()
    first_new = [name for name in listed if name.startswith("new")]
    assert not first_new, "what leaves after the first page is not listed"
    assert len(listed) == len(set(listed))
    assert listed == [name for name in reversed(before) if name in set(listed)], "in reverse order"
    assert {name for names in kept for name in names} <= set(listed), "what stays is listed"


async def test_a_long_list_is_read_in_few_commands(store: Store) -> None:
    async with store.redis.pipeline() as pipeline:
        for n in range(2000):
            pipeline.rpush(KEYS.left, f"{n} name{n}")
        await pipeline.execute()
    listed = GroupListStore(store.connection)
    middle = (await listed.left(RUN, None, 1000))[-1].position
    await store.redis.config_resetstat()
    assert len(await listed.left(RUN, middle, 500)) == 500
    commands = await store.redis.info("commandstats")
    assert commands["cmdstat_lindex"]["calls"] <= 11, "the logarithm of the number of records"
    assert commands["cmdstat_lrange"]["calls"] <= 9
    assert commands["cmdstat_hmget"]["calls"] == 1


async def test_a_kept_group_is_held_and_known_until_its_batch_is_released(store: Store) -> None:
    await store.admit(encoded(given="given"), encoded(), ids=["one", "two"])
    await store.acknowledge(await store.take("one", "two"), keep=True)
    listed = GroupListStore(store.connection)
    assert [record.held for record in await listed.left(RUN, None, 10)] == [True, True]
    for _ in range(3):  # the run looks at them again and again while they are held
        await store.pass_time(10 * 3_600_000)
        await store.known_groups.forget_old(RUN)
    records = await listed.left(RUN, None, 10)
    assert sorted(record.known.group_id for record in records if record.known) == ["one", "two"]
    await store.batches.release_kept(RUN, ["batch1"])
    assert [record.held for record in await listed.left(RUN, None, 10)] == [False, False]
    await store.pass_time(10 * 3_600_000)
    await store.known_groups.forget_old(RUN)
    assert await listed.left(RUN, None, 10) == []


async def test_a_group_that_left_twice_is_listed_once_while_held(store: Store) -> None:
    await store.admit(encoded(), ids=["one"])
    lease = await store.take("one")
    await store.acknowledge(lease, keep=True)
    await store.pass_time(1000)
    assert await store.rewind(0, [lease])
    await store.acknowledge(lease, keep=True)
    for _ in range(3):
        await store.pass_time(10 * 3_600_000)
        await store.known_groups.forget_old(RUN)
    assert [record.position.name for record in await GroupListStore(store.connection).left(RUN, None, 10)] == ["one"]


@pytest.mark.parametrize("metadata_bytes", [0, 4000, 5000, MAX_ITEM_HEADER_BYTES])
async def test_items_are_read_from_headers_of_a_limited_size(store: Store, metadata_bytes: int) -> None:
    payload = blob.write({}, {"metadata": "x" * metadata_bytes, "item": "gsm8k/\u202e17\x00"})
    await store.redis.set(KEYS.payload("one"), payload)
    await store.redis.set(KEYS.payload("damaged"), b"\x05\x00\x00\x00\x00\x00\x00\x00[1,2]")
    await store.redis.set(KEYS.payload("short"), b"\x05")
    found = await GroupListStore(store.connection).items(RUN, ["gone", "one", "damaged", "short"])
    item = None if metadata_bytes == MAX_ITEM_HEADER_BYTES else "gsm8k/\u202e17\x00"
    assert found == [None, item, None, None]


async def test_a_group_dropped_on_arrival_has_left(store: Store) -> None:
    await store.admit(encoded(given="given"), place=Placement(0, dropped="stale"))
    (record,) = await GroupListStore(store.connection).left(RUN, None, 10)
    assert record.known is not None
    assert record.known.ended is not None
    assert record.known.ended.clock_ms == record.position.clock_ms
    assert record.known.ended.reason == "stale"
