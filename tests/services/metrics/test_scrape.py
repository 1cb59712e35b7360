"""A scrape does not read runs that sleep, and shows what happened in them all the same."""

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.environments.registration import RegistrationRequest
from app.core.runs.settings import Policy
from app.services.metrics.scrape import Metrics
from app.services.stores import Stores
from app.store.curriculum.entries import ItemWrite
from app.store.redis.keys import SERVICE, RunKeys
from tests.services.conftest import RUN, Process, config, encoded, join

Start = Callable[..., Process]
Change = Callable[[Services], Awaitable[object]]
TTL_MS = 300_000


def scraper(services: Services, read_anyway: int = 0) -> Metrics:
    """Metrics that know of no run yet."""
    stores = Stores.on(services.connection, TTL_MS)
    parts = (services.batches, services.replay, services.requests, services.runs.failures)
    return Metrics(stores, *parts, read_anyway=read_anyway)


async def sleeping(process: Process, *runs: str, **policy: object) -> Services:
    """Make runs that sleep, and have an environment that is silent."""
    services, maintenance = process
    for run in runs:
        await services.runs.administration.create(run, config(4), Policy(**policy))  # type: ignore[arg-type]
        await join(services, run=run)
        await services.environments.registry.leave(run, 0, None)
        await maintenance.maintain(run)
        assert await services.connection.call("HEXISTS", RunKeys(run).run, "asleep_ms")
    return services


async def register(services: Services) -> None:
    await Stores.on(services.connection, TTL_MS).runs.start(RUN)
    asked = RegistrationRequest("atropos", 2, 512, 1.0)
    assert await services.environments.registry.register_environment(RUN, asked) is not None


async def forget(services: Services) -> None:
    stores = Stores.on(services.connection, TTL_MS)
    view = await stores.runs.view(RUN)
    assert await stores.environments.forget(RUN, list(view.environments.values()), view)


async def make_again(services: Services) -> None:
    await services.runs.administration.delete(RUN)
    await services.runs.administration.create(RUN, config(4), Policy())
    await services.maintenance.maintain(RUN)


async def add_item(services: Services) -> None:
    await services.curriculum.administration.configure(RUN, "math", {}, make=True)
    await services.curriculum.items.register(RUN, "math", [ItemWrite("q1", prior=0.5)])


async def submit(services: Services) -> None:
    await services.groups.native.submit(RUN, [encoded(2, 0)._replace(given_id="g")])


CHANGES: dict[str, Change] = {
    "a member": join,
    "an environment of Atropos": register,
    "an environment that is forgotten": forget,
    "a policy version": lambda services: services.runs.administration.set_policy_version(RUN, 3),
    "a group": submit,
    "an item of a curriculum": add_item,
    "a replay buffer": lambda services: services.replay.buffers.configure(RUN, {}),
    "a run that is gone": lambda services: services.runs.administration.delete(RUN),
    "another run of the same name": make_again,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_happens_in_a_run_that_sleeps_is_shown(process: Start, change: Change) -> None:
    services = await sleeping(process(), RUN)
    metrics = scraper(services)
    before = await metrics.page()
    assert await metrics.page() == before
    await change(services)
    for _ in range(2):
        after = await metrics.page()
        assert after == await scraper(services).page() != before
        await services.maintenance.maintain(RUN)


async def hashes_read(redis: Redis, metrics: Metrics) -> int:
    """How many hashes a scrape reads as a whole."""
    await redis.config_resetstat()
    await metrics.page()
    return int((await redis.info("commandstats")).get("cmdstat_hgetall", {"calls": 0})["calls"])


async def test_a_scrape_does_not_read_runs_that_sleep(process: Start, redis_client: Redis) -> None:
    runs = [f"run{number}" for number in range(12)]
    services = await sleeping(process(), *runs)
    reads_all, first = scraper(services, len(runs)), scraper(services)
    everything = [await hashes_read(redis_client, metrics) for metrics in (reads_all, reads_all, first)]
    assert len(set(everything)) == 1, "the first scrape of a process reads all, as does one that always reads all"
    assert await hashes_read(redis_client, first) == len(runs), "only the names of their curricula"


async def test_damage_to_a_run_that_sleeps_shows_after_a_round_of_scrapes(process: Start, redis_client: Redis) -> None:
    runs = [f"run{number}" for number in range(5)]
    services = await sleeping(process(), *runs)
    metrics = scraper(services, 2)
    await metrics.page()
    await redis_client.set(RunKeys("run4").served, "not a hash")
    pages = [b'lachesis_run_readable{run="run4"} 0' in await metrics.page() for _ in range(4)]
    assert pages == [False, False, True, True], "and it is not taken for one that was read well"


async def test_an_environment_falls_silent_while_its_run_sleeps(process: Start, redis_client: Redis) -> None:
    services = await sleeping(process(), RUN)
    await register(services)
    await services.maintenance.maintain(RUN)
    assert await redis_client.hexists(RunKeys(RUN).run, "asleep_ms")  # type: ignore[misc]
    metrics = scraper(services)
    silent = b'lachesis_environments{run="run",state="silent"} 1'
    assert silent not in await metrics.page()
    await redis_client.hincrby(SERVICE, "clock_ms", 2 * TTL_MS)  # type: ignore[misc]
    assert silent in await metrics.page()
