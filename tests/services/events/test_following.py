"""Followers of a run share what one task reads."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from redis.asyncio import Redis

from app.services.events.following import EventFeeds, FellBehind, Follower
from app.store.events.scripts import NewEvent
from app.store.events.store import OLDEST, EventStore, Flush, StoredEvent
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from tests.services.conftest import Process
from tests.services.events.test_recording import make_runs
from tests.waiting import wait_until


async def add(connection: RedisClient, *kinds: object, run: str = "run") -> str:
    new = [NewEvent(0, f'{{"kind":"{kind}"}}') for kind in kinds]
    return (await EventStore(connection).add({run: Flush(f"flush {kinds[0]}", OLDEST, new)}))[run]


async def next_kinds(follower: Follower, count: int) -> list[str]:
    """Follow until there are this many events."""
    found: list[str] = []
    while len(found) < count:
        events: Sequence[StoredEvent] = await follower.next()
        assert events, found
        found += [event.kind for event in events]
    return found


async def test_a_follower_gets_what_is_stored_then_what_comes_each_once(process: Callable[..., Process]) -> None:
    connection = process()[0].connection
    await make_runs(connection, "run")
    store = EventStore(connection)
    feeds = EventFeeds(store)
    first = await add(connection, "seen")
    expected = [f"e{n}" for n in range(700)]
    await add(connection, *expected[:450])
    async with feeds.following("run", first) as late, feeds.following("run", None) as new:
        await add(connection, *expected[450:])
        assert await next_kinds(new, 250) == expected[450:]
        assert await next_kinds(late, 700) == expected
        await add(connection, "last")
        assert await next_kinds(late, 1) == await next_kinds(new, 1) == ["last"]
    assert feeds._feeds == {}, "nobody follows"
    await feeds.stop()


async def test_many_followers_share_one_task_and_one_feed(process: Callable[..., Process]) -> None:
    connection = process()[0].connection
    await make_runs(connection, "run")
    feeds = EventFeeds(EventStore(connection))
    async with feeds.following("run", None) as first:
        await add(connection, "a")
        assert await next_kinds(first, 1) == ["a"]
        others = [feeds.following("run", None) for _ in range(20)]
        followers = [await other.__aenter__() for other in others]
        tasks = [task for task in asyncio.all_tasks() if task.get_name() == "followed events"]
        assert len(tasks) == 1
        assert len(feeds._feeds) == 1
        await add(connection, "b")
        assert [await next_kinds(follower, 1) for follower in [first, *followers]] == [["b"]] * 21
        for other in others:
            await other.__aexit__(None, None, None)
    await feeds.stop()


async def test_a_follower_that_does_not_read_is_dropped_and_another_goes_on(process: Callable[..., Process]) -> None:
    connection = process()[0].connection
    await make_runs(connection, "run")
    feeds = EventFeeds(EventStore(connection))
    async with feeds.following("run", None) as slow, feeds.following("run", None) as fast:
        await add(connection, "first")
        assert await next_kinds(slow, 1) == await next_kinds(fast, 1) == ["first"]
        for page in range(6):
            await add(connection, *(f"{page} {n}" for n in range(200)))
            assert len(await next_kinds(fast, 200)) == 200
        with pytest.raises(FellBehind):
            await slow.next()
    await feeds.stop()


async def test_a_gap_is_shown_at_the_place_where_events_are_missing(process: Callable[..., Process]) -> None:
    connection = process()[0].connection
    await make_runs(connection, "run")
    store = EventStore(connection, most=10)
    old = await add(connection, "seen")
    rows = [NewEvent(0, f'{{"kind":"e{n}"}}') for n in range(500)]
    await store.add({"run": Flush("many", OLDEST, rows)})
    feeds = EventFeeds(store)
    async with feeds.following("run", old) as follower:
        gap, first, *_ = await follower.next()
        assert (gap.kind, gap.event_id, first.kind[0]) == ("gap", old, "e")
    page = await feeds.page("run", old, 5)
    assert [event.kind for event in page][:1] == ["gap"]
    assert len(page) == 6
    assert "gap" not in [event.kind for event in await feeds.page("run", None, 1000)]
    await feeds.stop()


async def test_a_follower_hears_of_the_end_of_its_run_and_then_nothing(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    connection = process()[0].connection
    await make_runs(connection, "run")
    feeds = EventFeeds(EventStore(connection))
    async with feeds.following("run", None) as follower:
        await add(connection, "a")
        assert await next_kinds(follower, 1) == ["a"]
        await redis_client.delete(RunKeys("run").run, RunKeys("run").events)
        assert await next_kinds(follower, 1) == ["run deleted"]
        assert list(await follower.next()) == []
        assert feeds._feeds == {}
    await feeds.stop()


async def test_followers_end_when_the_process_does(process: Callable[..., Process]) -> None:
    connection = process()[0].connection
    await make_runs(connection, "run")
    feeds = EventFeeds(EventStore(connection))
    async with feeds.following("run", None) as follower:
        waiting = asyncio.create_task(follower.next())
        await wait_until(lambda: not follower._reads_stored)
        await feeds.stop()
        assert list(await waiting) == []
