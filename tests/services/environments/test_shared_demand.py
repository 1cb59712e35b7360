"""Heartbeats share what is common to all environments, and start no more groups for it."""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from app.api.deps import Services
from app.core.environments.granting import GroupAllowance
from app.core.runs.settings import Policy
from app.main import build_services
from app.services.environments.allowances import HeartbeatResult
from app.settings import ServiceSettings
from app.store.groups.encoded_group import EncodedGroup
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Command
from lachesis.wire.errors import EnvironmentNotFound, RunNotFound
from tests.services.conftest import RUN, Process, config, join

KEYS = RunKeys(RUN)


def share(services: Services) -> None:
    """Let requests share a reading from now on, however old it is."""
    services.environments.demand.most_spent_s = 0.0
    services.environments.demand.shortest_age_s = math.inf


def read_again(services: Services) -> None:
    """Give each request a reading of its own."""
    services.environments.demand.most_spent_s = math.inf


async def beat(
    services: Services, environment: int, member: str = "one", running: int | None = None, start: int = 0
) -> HeartbeatResult:
    return await services.environments.allowances.heartbeat(RUN, environment, member, running, start)


async def credits_of(services: Services, environment: int) -> GroupAllowance:
    return await services.environments.allowances.credits(RUN, environment)


@pytest.fixture
async def two(process: Callable[..., Process]) -> tuple[Services, Services]:
    """Two processes, and a run with batches of 16 and two environments of groups of two."""
    (first, _), (second, _) = process(), process()
    await first.runs.administration.create(RUN, config(16), Policy(max_staleness=0))
    for name in ("math", "code"):
        for member in ("one", "two"):
            await join(first, name, member)
    return first, second


async def test_processes_that_share_old_readings_start_no_more_groups_than_one_reading_allows(
    two: tuple[Services, Services],
) -> None:
    allowed = (await credits_of(two[0], 0)).groups
    for services in two:
        await credits_of(services, 0)
        share(services)
    asked = [beat(services, 0, member, start=3) for services, member in zip(two, ("one", "two"), strict=True)]
    granted = sum(answer.started for answer in await asyncio.gather(*asked))
    assert granted == allowed == 4
    assert (await credits_of(two[0], 0)).groups == 0, "what has started since the reading counts"
    read_again(two[1])
    assert (await credits_of(two[1], 0)).groups == 0


async def test_groups_that_ended_since_the_reading_give_no_room_before_the_next_one(
    two: tuple[Services, Services],
) -> None:
    """They may wait in the queue now, which the reading does not show."""
    services = two[0]
    await beat(services, 0, start=4)
    assert (await credits_of(services, 0)).groups == 0
    share(services)
    await services.groups.native.submit(RUN, [given(n) for n in range(4)])
    assert (await beat(services, 0, running=0, start=4)).started == 0
    read_again(services)
    assert (await credits_of(services, 0)).groups == 0, "they wait"
    await services.groups.native.submit(RUN, [given(n, 1) for n in range(4, 8)])
    assert (await services.batches.dispatch.take(RUN)).batch is not None
    assert (await credits_of(services, 0)).groups == 0, "they are with the trainer"


def given(mark: int, environment: int = 0) -> EncodedGroup:
    return EncodedGroup(2, environment, f"{mark}|".encode(), f"g{mark}")


async def test_an_environment_that_has_just_joined_waits_for_a_reading_that_has_it(
    two: tuple[Services, Services],
) -> None:
    services = two[0]
    await credits_of(services, 0)
    share(services)
    joined = await join(two[1], "new")
    waiting = asyncio.create_task(credits_of(services, joined.environment))
    await asyncio.sleep(0)  # it asks first
    for _ in range(3):  # later requests, of an environment that the reading has
        await credits_of(services, 0)
    assert not waiting.done()
    services.environments.demand.shortest_age_s = 0.0
    assert (await waiting).credit.wanted > 0


async def test_an_environment_that_was_forgotten_is_not_there(two: tuple[Services, Services]) -> None:
    services = two[0]
    await credits_of(services, 0)
    share(services)
    await two[1].runs.administration.delete(RUN)
    with pytest.raises(RunNotFound):
        await credits_of(services, 0)
    await two[1].runs.administration.create(RUN, config(16), Policy())
    with pytest.raises(EnvironmentNotFound):
        await credits_of(services, 0)


class Counting(RedisClient):
    """Counts how often the lanes of the run are read."""

    reads = 0

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        self.reads += sum(command == ("HGETALL", KEYS.lanes) for command in commands)
        return await super().pipeline(commands)


async def test_a_hundred_requests_at_once_share_one_reading(two: tuple[Services, Services], redis_url: str) -> None:
    connection = Counting(redis_url, 5.0)
    services = build_services(ServiceSettings(), connection, "tested", "host9/1/tested")
    answers = await asyncio.gather(*(credits_of(services, n % 2) for n in range(100)))
    assert connection.reads == 1
    assert {answer.groups for answer in answers} == {4}
    await asyncio.gather(*(beat(services, n % 2, "one") for n in range(100)))
    assert connection.reads == 2
    await asyncio.gather(*(services.environments.allowances.pace(RUN, n % 3) for n in range(100)))
    assert connection.reads == 3
    await connection.aclose()


async def test_a_reading_that_nobody_asks_for_is_forgotten(two: tuple[Services, Services], redis_url: str) -> None:
    connection = Counting(redis_url, 5.0)
    services = build_services(ServiceSettings(), connection, "tested", "host9/1/tested")
    share(services)
    for _ in range(2):
        await credits_of(services, 0)
        services.environments.demand.forget_unused()
    assert connection.reads == 1
    services.environments.demand.forget_unused()
    await credits_of(services, 0)
    assert connection.reads == 2
    await connection.aclose()
