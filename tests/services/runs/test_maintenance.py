"""One process maintains runs, and each process does what only it can do."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from app.api.deps import Services
from app.main import build_services
from app.services import maintenance as maintenance_module
from app.settings import ServiceSettings
from app.store.redis import scripts
from app.store.redis.client import RedisClient
from app.store.redis.keys import PROCESSES, RunKeys
from app.store.redis.pipeline import Command
from app.store.server.embedded import EmbeddedRedis
from lachesis.wire.errors import StoreUnavailable
from tests.lossy_line import LossyLine
from tests.script_names import name_of
from tests.services.conftest import RUN, Process, config, encoded, join
from tests.waiting import wait_until

KEYS = RunKeys(RUN)
PATIENCE_S = 3  # a command that must succeed has as long, also on a busy machine


class Counted(RedisClient):
    """Counts the commands that it sends, by script or name."""

    def __init__(self, url: str) -> None:
        super().__init__(url, 5.0)
        self.sent: Counter[str] = Counter()

    async def run(self, command: Command) -> object:
        self.sent[name_of(command) or str(command[0])] += 1
        return await super().run(command)

    async def call(self, *words: str | int | float | bytes) -> object:  # type: ignore[override]
        self.sent[str(words[0])] += 1
        return await super().call(*words)  # type: ignore[arg-type]

    async def pipeline(self, commands: Sequence[Command]) -> list[object]:
        self.sent.update(name_of(command) or str(command[0]) for command in commands)
        return await super().pipeline(commands)


@pytest.fixture
async def counted(redis_url: str, redis_client: Redis) -> AsyncIterator[tuple[Services, Counted]]:
    connection = Counted(redis_url)
    yield (
        build_services(ServiceSettings(redis_url=SecretStr(redis_url)), connection, "tested", "host/1/counted"),
        connection,
    )
    await connection.aclose()


async def test_idle_runs_cost_nothing(
    counted: tuple[Services, Counted], process: Callable[..., Process], redis_client: Redis
) -> None:
    services, connection = counted
    (_, other) = process()
    for number in range(20):
        await services.runs.atropos.register(f"run{number}", config(4))
    loops = [asyncio.create_task(one.run_forever()) for one in (services.maintenance, other)]
    try:

        async def all_asleep() -> bool:
            fields = [redis_client.hexists(RunKeys(f"run{n}").run, "asleep_ms") for n in range(20)]
            return all(await asyncio.gather(*fields))  # type: ignore[arg-type]

        await wait_until(all_asleep)
        await wait_until(lambda: connection.sent["beat_process"] > 0)
        # The last look at the alerts of each run comes after it has fallen asleep.
        await wait_until(lambda: not services.maintenance._unlooked and not other._unlooked)
        before = connection.sent.copy()
        await wait_until(lambda: connection.sent["beat_process"] >= before["beat_process"] + 3)
        assert connection.sent.keys() - before.keys() <= {"beat_process"}
        assert {name for name, count in connection.sent.items() if count > before[name]} == {"beat_process"}
    finally:
        for loop in loops:
            loop.cancel()


async def test_a_heartbeat_counts_whichever_process_hears_it(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    (first, maintains), (hears, other) = process(), process()
    await first.runs.atropos.register(RUN, config(4))
    joined = await join(first)
    loops = [asyncio.create_task(maintains.run_forever())]
    try:

        async def maintained() -> bool:
            return bool(await redis_client.zcard(PROCESSES))

        await wait_until(maintained)
        loops.append(asyncio.create_task(other.run_forever()))
        long_ago = {f"{joined.environment}:{joined.member}": 1}
        await redis_client.zadd(KEYS.members_heard, long_ago)
        await hears.environments.allowances.heartbeat(RUN, joined.environment, joined.member, 0)

        async def heard() -> bool:
            score = await redis_client.zscore(KEYS.members_heard, next(iter(long_ago)))
            return score is not None and score > 1

        await wait_until(heard)
    finally:
        for loop in loops:
            loop.cancel()


async def test_a_process_that_maintains_no_runs_returns_the_batches_it_lost(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str]
) -> None:
    """Redis commits a batch and its answer is lost: nobody else may hand it out while this process lives."""
    line, url = lossy
    (first, maintains), (loses, other) = process(), process(url, store_patience_s=PATIENCE_S)
    await first.runs.atropos.register(RUN, config(2))
    await first.groups.atropos.submit(RUN, [encoded(2, 1)])
    line.lose_replies_to(scripts.load("commit_batch").digest.encode())
    with pytest.raises(StoreUnavailable):
        await loses.batches.dispatch.take(RUN)
    line.heal()
    view = await first.runs.atropos.view(RUN)
    assert [lease.state for lease in view.leases] == ["sending"]
    assert (await first.batches.dispatch.take(RUN)).batch is None, "its sender lives"
    loops = [asyncio.create_task(maintains.run_forever())]
    try:

        async def two_processes() -> bool:
            return int(await redis_client.zcard(PROCESSES)) == 2

        loops.append(asyncio.create_task(other.run_forever()))
        await wait_until(two_processes)

        async def returned() -> bool:
            leases = (await first.runs.atropos.view(RUN)).leases
            return [lease.state for lease in leases] == ["returned"]

        await wait_until(returned)
    finally:
        for loop in loops:
            loop.cancel()
    assert (await first.batches.dispatch.take(RUN)).batch is not None


def test_the_end_of_a_process_is_no_alarm(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """As when a second signal ends it at once: all tasks are cancelled together."""

    async def start() -> None:
        settings = ServiceSettings(redis_url=SecretStr(redis_url))
        build_services(settings, RedisClient(redis_url, 5.0), "tested").maintenance.start()

    asyncio.run(start())
    assert [record.message for record in caplog.records if record.name == "lachesis.maintenance"] == []


async def test_each_process_asks_redis_again_what_it_promises(
    process: Callable[..., Process], own_server: EmbeddedRedis, own_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance_module, "_WATCH_EVERY", 2)
    loops = []
    for services, maintenance in (process(own_server.url), process(own_server.url)):
        await services.runs.atropos.register(RUN, config(4))
        loops.append((services, asyncio.create_task(maintenance.run_forever())))
    await own_redis.config_set("appendonly", "no")

    async def said() -> bool:
        found = [await services.runs.status.of(RUN) for services, _ in loops]
        return all("NOT durable" in one.durability for one in found)

    try:
        await wait_until(said)
    finally:
        for _, loop in loops:
            loop.cancel()


async def test_heartbeats_that_redis_did_not_take_are_written_later(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str]
) -> None:
    line, url = lossy
    services, maintenance = process(url, store_patience_s=PATIENCE_S)
    await services.runs.atropos.register(RUN, config(4))
    joined = await join(services)
    await services.environments.allowances.heartbeat(RUN, joined.environment, joined.member, 0)
    member = f"{joined.environment}:{joined.member}"
    await redis_client.zadd(KEYS.members_heard, {member: 1})
    line.hold(scripts.load("record_heartbeats").digest.encode())
    with pytest.raises(StoreUnavailable):
        await maintenance.maintain(RUN)
    line.heal()
    await maintenance.maintain(RUN)
    heard_ms = await redis_client.zscore(KEYS.members_heard, member)
    assert heard_ms is not None
    assert heard_ms > 1
