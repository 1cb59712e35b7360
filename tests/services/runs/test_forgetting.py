"""Names of runs cost nothing to make up: a run that holds nothing is forgotten, and one that holds something never."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from redis.asyncio import Redis

from app.core.environments.registration import RegistrationRequest
from app.core.runs.settings import Policy, RunConfig
from app.services.environments.registry import EnvironmentRegistry
from app.store.environments.store import EnvironmentStore
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Outcome, PendingGroup, Placement, Preconditions, Stored
from app.store.groups.store import GroupStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import RUNS, RunKeys
from app.store.redis.pipeline import Command
from app.store.runs.store import RunStore
from app.store.runs.tick import PendingHeartbeats
from lachesis.wire.errors import StoreRefused
from tests.acl_user import restricted_url, unrestricted_url
from tests.core.views import TTL_MS
from tests.one_by_one import OneByOne
from tests.services.accounting import books_of, keys_of_runs
from tests.services.conftest import Process

RUN = "run"
KEYS = RunKeys(RUN)
CONFIG = RunConfig(batch_size=4, max_token_len=512, num_steps=100)
RECOGNISED_MS = 120_001


def encoded(size: int, environment: int | None = None) -> EncodedGroup:
    return EncodedGroup(size, environment, b"x" * 50 * size)


async def pass_time(redis_client: Redis, ms: int) -> None:
    await redis_client.hincrby(KEYS.run, "clock_ms", ms)  # type: ignore[misc]


async def keys_of(redis_client: Redis) -> list[str]:
    return sorted(key.decode() for key in await keys_of_runs(redis_client))


async def registered(registry: EnvironmentRegistry, name: str, group_size: int) -> int:
    outcome = await registry.register_environment(RUN, RegistrationRequest(name, group_size, 512, 1.0))
    assert outcome is not None
    return outcome[0].environment


async def test_a_run_that_was_reset_is_forgotten_once_repetitions_are_and_leaves_no_key(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, maintenance = process()
    await services.runs.atropos.register(RUN, CONFIG)
    await services.batches.dispatch.take(RUN)
    environment = await registered(services.environments.registry, "math", 4)
    for _ in range(3):
        await services.groups.atropos.submit(RUN, [encoded(2), encoded(3, environment)])
    await services.batches.dispatch.take(RUN)
    await services.runs.atropos.reset(RUN)
    await maintenance.maintain(RUN)
    assert await keys_of(redis_client), "a repeated submission is still recognised"
    await pass_time(redis_client, RECOGNISED_MS)
    await maintenance.maintain(RUN)
    assert await keys_of(redis_client) == []


async def _configured(services: object, redis_client: Redis) -> None:
    await services.runs.atropos.register(RUN, CONFIG)  # type: ignore[attr-defined]


async def _queued(services: object, redis_client: Redis) -> None:
    await services.groups.atropos.submit(RUN, [encoded(2)])  # type: ignore[attr-defined]


async def _reserved(services: object, redis_client: Redis) -> None:
    await redis_client.hset(KEYS.run, "clock_ms", 0)  # type: ignore[misc]
    await redis_client.zadd(KEYS.unreferenced, {"reserved": 10**9})


async def _trash(services: object, redis_client: Redis) -> None:
    await _queued(services, redis_client)
    await services.runs.atropos.reset(RUN)  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [_configured, _queued, _reserved, _trash], ids=lambda make: make.__name__)
async def test_a_run_that_holds_anything_is_not_forgotten_and_loses_nothing(
    process: Callable[..., Process], redis_client: Redis, make: Callable[[object, Redis], Awaitable[None]]
) -> None:
    services, _ = process()
    await make(services, redis_client)
    before = await keys_of(redis_client)
    assert not await RunStore(services.connection, TTL_MS).forget(RUN)
    assert await keys_of(redis_client) == before


async def test_a_missing_or_forgotten_run_stays_away_whatever_still_arrives(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Another process may look at a run while it is forgotten, and write what it found afterwards."""
    services, maintenance = process()
    runs = RunStore(services.connection, TTL_MS)
    late: list[Callable[[], Awaitable[object]]] = [
        lambda: runs.start(RUN),
        lambda: runs.note_conflict(RUN, 5),
        lambda: runs.note_conflict(RUN, None),
        lambda: services.runs.atropos.reset(RUN),
        lambda: runs.record_heartbeats({RUN: PendingHeartbeats({0: 0}, {(0, "one")})}),
        lambda: runs.tick(RUN),
        lambda: runs.forget(RUN),
        lambda: maintenance.maintain(RUN),
    ]
    for does in late:
        await does()
        assert await keys_of(redis_client) == []
    await runs.announce(RUN)
    await maintenance.maintain(RUN)
    assert await keys_of(redis_client) == [], "the process that announced it died before it held anything"


@pytest.fixture
async def one_by_one(redis_url: str, redis_client: Redis) -> AsyncIterator[OneByOne]:
    connection = OneByOne(redis_url, 5.0)
    yield connection
    await connection.aclose()


@pytest.mark.parametrize("before", range(4))
async def test_a_run_forgotten_anywhere_in_the_middle_of_a_submission_is_there_afterwards(
    process: Callable[..., Process], redis_client: Redis, one_by_one: OneByOne, before: int
) -> None:
    runs = RunStore(process()[0].connection, TTL_MS)
    await runs.announce(RUN)
    one_by_one.before, one_by_one.between = before, lambda: runs.forget(RUN)
    admitted = await GroupStore(one_by_one).admit(
        RUN, [[PendingGroup("one", encoded(2), Placement(None))]], Preconditions(0)
    )
    assert admitted == Stored([[Outcome()]])
    assert before < one_by_one.sent
    assert await runs.names() == [RUN]
    assert (await books_of(redis_client, RUN))["queued"] == {"one"}


@pytest.mark.parametrize("before", range(2))
async def test_a_run_forgotten_anywhere_in_the_middle_of_a_registration_is_there_afterwards(
    process: Callable[..., Process], one_by_one: OneByOne, before: int
) -> None:
    runs = RunStore(process()[0].connection, TTL_MS)
    await runs.announce(RUN)
    one_by_one.before, one_by_one.between = before, lambda: runs.forget(RUN)
    assert await RunStore(one_by_one, TTL_MS).register(RUN, CONFIG)
    assert before < one_by_one.sent
    assert await runs.names() == [RUN]
    assert (await runs.view(RUN)).config == CONFIG


async def test_knowledge_of_a_forgotten_run_is_outdated_in_a_new_one(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """The old environment 0 declared groups of 2, the new one of 4: a group of 2 must wait for another."""
    (knows, maintenance), (makes, _) = process(), process()
    for services, group_size in ((knows, 2), (makes, 4)):
        await services.runs.atropos.register(RUN, CONFIG)
        await services.batches.dispatch.take(RUN)
        assert await registered(services.environments.registry, "math", group_size) == 0
        (receipt,) = await knows.groups.atropos.submit(RUN, [encoded(2, 0)])
        assert receipt.buffered == (group_size == 4)
        if services is knows:
            await knows.runs.atropos.reset(RUN)
            await maintenance.maintain(RUN)
            await pass_time(redis_client, RECOGNISED_MS)
            await maintenance.maintain(RUN)
            assert await keys_of(redis_client) == []


async def test_an_environment_is_written_once_however_often_its_command_is_repeated(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """The connection repeats it after a lost reply; another environment that decided on the same epoch is refused."""
    services, _ = process()
    await services.runs.atropos.register(RUN, CONFIG)
    await services.batches.dispatch.take(RUN)
    await registered(services.environments.registry, "math", 4)
    view = await services.runs.atropos.view(RUN)
    twice = Twice(services.connection, redis_client)
    assert await EnvironmentStore(twice).put(RUN, view.environments[0], view.epoch)
    assert (await services.runs.atropos.view(RUN)).epoch == twice.first_epoch > view.epoch
    assert not await EnvironmentStore(twice).put(RUN, view.environments[0], view.epoch)


class Twice(RedisClient):
    """Runs each script twice, as when the reply to the first time got lost; remembers the epoch after the first."""

    def __init__(self, connection: RedisClient, redis: Redis) -> None:
        self._connection = connection
        self._redis = redis
        self.first_epoch = 0

    async def run(self, command: Command) -> object:
        await self._connection.run(command)
        self.first_epoch = int(await self._redis.hget(RunKeys(RUN).run, "epoch") or 0)  # type: ignore[misc]
        return await self._connection.run(command)


async def test_submissions_that_race_with_resets_and_forgetting_are_never_in_a_run_nobody_knows(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Payloads of 60 kB: Redis reads them in pieces, and does other things between the commands of one submission."""
    processes = [process() for _ in range(3)]
    names = [f"run{number}" for number in range(3)]
    generator = random.Random(3)
    producing = True
    seen: set[tuple[str, bool, bool]] = set()

    async def check(run: str) -> None:
        async with redis_client.pipeline(transaction=True) as pipe:
            pipe.exists(RunKeys(run).groups).zscore(RUNS, run)
            holds_groups, is_known = await pipe.execute()
        seen.add((run, bool(holds_groups), is_known is not None))

    async def produce(services_index: int) -> None:
        services, _ = processes[services_index]
        for _ in range(60):
            run = generator.choice(names)
            await services.groups.atropos.submit(run, [EncodedGroup(2, None, b"x" * 60_000)])
            await check(run)
            await asyncio.sleep(generator.uniform(0, 0.01))
            if generator.random() < 0.1:
                await services.runs.atropos.register(run, CONFIG)

    async def end(services_index: int) -> None:
        services, maintenance = processes[services_index]
        while producing:
            run = generator.choice(names)
            await services.runs.atropos.reset(run)
            await redis_client.hdel(RunKeys(run).run, "reset_ms")  # type: ignore[misc]  # as if it were long ago
            for _ in range(2):  # one to sweep, one to forget
                await maintenance.maintain(run)
            await check(run)

    ends = [asyncio.create_task(end(index)) for index in range(3)]
    for _ in range(10):  # until runs have come and gone, however busy the machine is
        await asyncio.gather(*(produce(index) for index in range(3) for _ in range(2)))
        if {(holds_groups, is_known) for _, holds_groups, is_known in seen} >= {(True, True), (False, False)}:
            break
    producing = False
    await asyncio.gather(*ends)
    assert {(holds_groups, is_known) for _, holds_groups, is_known in seen} >= {(True, True), (False, False)}, (
        "runs came and went"
    )
    assert not [run for run, holds_groups, is_known in seen if holds_groups and not is_known]


@pytest.mark.parametrize("before", [1, 2, 3])
async def test_a_run_that_is_removed_while_a_group_is_on_its_way_leaves_nothing(
    process: Callable[..., Process], redis_client: Redis, one_by_one: OneByOne, before: int
) -> None:
    services, maintenance = process()
    run, _ = await services.runs.administration.create(RUN, CONFIG, Policy())
    one_by_one.before, one_by_one.between = before, lambda: services.runs.administration.delete(RUN)
    submission = PendingGroup("one", encoded(2), Placement(None))
    assert await GroupStore(one_by_one).admit(RUN, [[submission]], Preconditions(run.epoch)) == Stored([None])
    assert before < one_by_one.sent
    await maintenance.maintain(RUN)
    await maintenance.maintain(RUN)
    assert await keys_of(redis_client) == []


@asynccontextmanager
async def without_scripts(redis_url: str, redis_client: Redis) -> AsyncIterator[RedisClient]:
    """Make Redis forget its scripts; gives a client whose user may load none."""
    server = unrestricted_url(redis_url)
    async with aclosing(RedisClient(restricted_url(server), 5.0)) as connection:
        await redis_client.execute_command("ACL", "SETUSER", "lachesis", "-script")
        await redis_client.script_flush()
        try:
            yield connection
        finally:
            restricted_url(server)


@pytest.mark.parametrize("transacts", [True, False])
async def test_what_a_run_that_nobody_made_could_not_index_is_deleted_and_the_run_forgotten(
    process: Callable[..., Process], redis_client: Redis, redis_url: str, *, transacts: bool
) -> None:
    """No script has given the run a clock."""
    group = PendingGroup("one", encoded(2), Placement(None))
    async with without_scripts(redis_url, redis_client) as connection:
        connection.transacts = transacts
        with pytest.raises(StoreRefused):
            await GroupStore(connection).admit(RUN, [[group]], Preconditions(0))
    assert await redis_client.exists(KEYS.payload("one"))
    _, maintenance = process()
    for _ in range(2):  # the first pass deletes the payload
        await maintenance.maintain(RUN)
    assert await keys_of(redis_client) == []
