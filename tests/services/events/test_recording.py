"""A process writes its events together, once, and costs nothing while there are none."""

from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis

from app.events import BatchGivenBack, RunChanged
from app.services.events.recording import EventRecorder
from app.store.events.store import OLDEST, EventStore, StoredEvent
from app.store.redis import scripts
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.runs.store import RunStore
from tests.core.views import TTL_MS
from tests.lossy_line import LossyLine
from tests.services.conftest import Process
from tests.waiting import wait_until

ADD = scripts.load("add_events").digest.encode()


def event(number: int, run: str = "run", reason: str | None = None) -> BatchGivenBack:
    return BatchGivenBack(run=run, batch=f"b{number}", step=number, reason=reason)


async def stored(store: EventStore, run: str = "run") -> list[StoredEvent]:
    return list((await store.read({run: OLDEST}, 10_000))[run].events)


async def steps(store: EventStore, run: str = "run") -> list[Any]:
    return [one.facts["step"] for one in await stored(store, run)]


async def script_calls(redis: Redis) -> int:
    """Return how many scripts ran. Other commands may be late ones of an earlier test."""
    return int((await redis.info("commandstats"))["cmdstat_evalsha"]["calls"])


async def make_runs(connection: RedisClient, *runs: str) -> None:
    for run in runs:
        await RunStore(connection, TTL_MS).announce(run)
        await connection.call("HSET", RunKeys(run).run, "epoch", 1)


async def test_events_take_one_call_for_each_run_and_none_without_events(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    connection = process()[0].connection
    await make_runs(connection, "run", "other")
    store = EventStore(connection)
    recorder = EventRecorder(store)
    recorder.record(event(-1))
    await recorder.flush()  # the script is loaded
    await redis_client.config_resetstat()
    for number in range(300):
        recorder.record(event(number, "other" if number % 3 else "run"))
    await recorder.flush()
    assert await script_calls(redis_client) == 2
    await recorder.flush()
    assert await script_calls(redis_client) == 2
    assert await steps(store) == [-1, *range(0, 300, 3)]
    assert await steps(store, "other") == [number for number in range(300) if number % 3]


async def test_events_that_came_while_redis_was_away_are_written_once(
    process: Callable[..., Process], lossy: tuple[LossyLine, str]
) -> None:
    """Commands stay on the way, then replies are lost, then the old commands arrive."""
    line, url = lossy
    connection = process()[0].connection
    await make_runs(connection, "run")
    store = EventStore(connection)
    recorder = EventRecorder(EventStore(process(url, store_patience_s=0.5)[0].connection))

    async def written(*expected: int) -> None:
        async def all_are() -> bool:
            await recorder.flush()
            return await steps(store) == list(expected)

        await wait_until(all_are)

    async def is_held() -> bool:
        await recorder.flush()
        return line.holds

    recorder.record(event(0))
    await written(0)
    line.hold(ADD)
    recorder.record(event(1))
    await wait_until(is_held)
    recorder.record(event(2))
    await recorder.flush()
    assert await steps(store) == [0]
    line.heal()
    line.lose_replies_to(ADD)
    await written(0, 1)
    line.heal()
    await line.deliver_late()
    await written(0, 1, 2)
    await recorder.flush()
    assert await steps(store) == [0, 1, 2]


async def test_a_started_recorder_writes_by_itself_and_the_rest_when_it_stops(
    process: Callable[..., Process],
) -> None:
    services, _ = process()
    await make_runs(services.connection, "run")
    store = EventStore(services.connection)
    recorder = EventRecorder(store)
    recorder.start()
    recorder.record(event(1))

    async def written() -> bool:
        return await steps(store) == [1]

    await wait_until(written)
    recorder.record(event(2))
    await recorder.stop()
    assert await steps(store) == [1, 2]


async def test_of_a_flood_the_newest_events_are_written(process: Callable[..., Process]) -> None:
    services, _ = process()
    await make_runs(services.connection, "run")
    store = EventStore(services.connection, most=50)
    recorder = EventRecorder(store)
    for number in range(1000):
        recorder.record(event(number))
    await recorder.flush()
    assert await steps(store) == list(range(950, 1000))


async def test_a_large_event_keeps_its_short_fields(process: Callable[..., Process]) -> None:
    services, _ = process()
    await make_runs(services.connection, "run")
    store = EventStore(services.connection)
    recorder = EventRecorder(store)
    recorder.record(RunChanged(run="run", changes={"filters": ["x" * 100] * 100}))
    recorder.record(event(1, reason="\n\x1b[31m\u202e" + "x" * 5000))
    recorder.record(RunChanged(run="run", changes={"small": {1: None}}))
    await recorder.flush()
    large, text, small = [one.facts for one in await stored(store)]
    assert (large["kind"], large["shortened"], "changes" in large) == ("run changed", True, False)
    assert text["reason"] == "\n\x1b[31m\u202e" + "x" * 193 + "…"
    assert small["changes"] == {"small": {"1": None}}
    assert b"\n" not in (await stored(store))[1].text


async def test_a_run_that_cannot_be_written_to_does_not_stop_the_others(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await make_runs(services.connection, "run", "broken")
    await redis_client.set(RunKeys("broken").events, "no stream")
    store = EventStore(services.connection)
    recorder = EventRecorder(store)
    for number in range(2):
        recorder.record(event(number, "broken"))
        recorder.record(event(number))
        await recorder.flush()
    assert await steps(store) == [0, 1]
