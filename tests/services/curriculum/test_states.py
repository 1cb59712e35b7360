"""A curriculum's state: saved, restored, all or nothing; restored, it continues the same sequence of samples."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.curriculum.atropos_state import load_atropos
from app.core.curriculum.state import CurriculumHeader
from app.main import build_services
from app.services.curriculum.sampling import CurriculumSampleRequest
from app.services.curriculum.states import CurriculumDocument
from app.settings import ServiceSettings
from app.store.curriculum.state import CurriculumStateStore, SavedItem
from app.store.curriculum.store import CurriculumStore
from app.store.redis.client import RedisClient
from app.store.redis.pipeline import Command
from lachesis.wire.curricula import Arms, CurriculumStrategy
from lachesis.wire.errors import CurriculumNotFound, RunNotFound
from tests.script_names import name_of
from tests.services.accounting import keys_of_runs
from tests.services.conftest import RUN, Process
from tests.services.curriculum.runs import KEYS, NAME, contents, dump, keys_of, make, observe, register, sample

Start = Callable[..., Process]
ITEMS = [f"item{n:03d}" for n in range(150)]
REQUEST = CurriculumSampleRequest(20)
ROOT = Path(__file__).parents[3]
_HALF_A_LOAD = """
import asyncio, sys
from pydantic import SecretStr
from app.main import build_services
from app.services.curriculum.states import CurriculumDocument
from app.settings import ServiceSettings
from app.store.redis.client import RedisClient

async def main():
    connection = RedisClient(sys.argv[1], 5.0)
    services = build_services(ServiceSettings(redis_url=SecretStr(sys.argv[1])), connection, "tested")
    saved = await services.curriculum.states.save("run", "gsm8k")

    async def items():
        async for part in saved.items:
            yield part[:50]
        print("half", flush=True)
        await asyncio.Event().wait()

    await services.curriculum.states.load("run", "gsm8k", CurriculumDocument(saved.header, saved.categories, items()))

asyncio.run(main())
"""


async def lived_in(services: Services, **settings: object) -> None:
    """Make a curriculum with items of every kind, some of them in flight."""
    await make(services, total_steps=100, **settings)
    await register(services, *ITEMS[:50], category="algebra")
    await register(services, *ITEMS[50:70], prior=0.4, metadata='{"a":"é"}')
    await register(services, *ITEMS[70:])
    for step in range(4):
        found = await sample(services, 30, step=10 * step)
        await observe(services, {key: [step / 4, 1.0, 0.3] for key in keys_of(found)[:25]})


async def copied(services: Services, name: str) -> None:
    await services.curriculum.states.load(RUN, name, await services.curriculum.states.save(RUN, NAME))


@pytest.mark.parametrize(
    ("strategy", "arms"),
    [*((one, "bins") for one in get_args(CurriculumStrategy)), ("bandit", "categories")],
)
async def test_restored_it_continues_the_same_sequence_of_samples(
    process: Start, redis_client: Redis, strategy: CurriculumStrategy, arms: Arms
) -> None:
    services, _ = process()
    await lived_in(services, strategy=strategy, arms=arms)
    await copied(services, "copy")
    ids = {
        name: (await CurriculumStore(services.connection).existing(RUN, name)).curriculum_id for name in (NAME, "copy")
    }
    assert await contents(redis_client, ids["copy"]) == await contents(redis_client, ids[NAME])
    for step in range(5):
        samples = [
            await services.curriculum.samples.sample(RUN, name, replace(REQUEST, step=50 + step))
            for name in (NAME, "copy")
        ]
        assert keys_of(samples[0]) == keys_of(samples[1])
        assert [each.probability for each in samples[0].items] == [each.probability for each in samples[1].items]
        observations = [(key, [0.5, step / 5]) for key in keys_of(samples[0])]
        for name in (NAME, "copy"):
            await services.curriculum.observations.observe(RUN, name, observations, None)
    assert await contents(redis_client, ids["copy"]) == await contents(redis_client, ids[NAME])
    own = [await redis_client.hgetall(KEYS.curriculum(one)) for one in ids.values()]  # type: ignore[misc]
    assert {**own[0], b"revision": b""} == {**own[1], b"revision": b""}


async def test_a_state_names_each_item_once_while_most_of_them_are_deleted(process: Start) -> None:
    """Redis shows fields of a hash again when it makes the hash smaller."""
    services, _ = process()
    await make(services)
    keys = [f"item{n}" for n in range(5_000)]
    await register(services, *keys)
    saved = await services.curriculum.states.save(RUN, NAME)
    named: list[str] = []
    async for part in saved.items:
        if len(named) > 3_000 and len(keys) == 5_000:
            while len(keys) > 200:
                gone, keys = keys[-100:], keys[:-100]
                await asyncio.gather(*(services.curriculum.items.delete(RUN, NAME, key) for key in gone))
        named += [item.key for item in part]
    assert len(set(named)) == len(named)
    assert set(named) >= set(keys)


async def test_what_is_in_flight_stays_so_when_it_is_restored(process: Start) -> None:
    services, _ = process()
    await make(services)
    await register(services, *ITEMS[:20])
    taken = set(keys_of(await sample(services, 8)))
    await copied(services, NAME)
    assert set(keys_of(await sample(services, 20))) == set(ITEMS[:20]) - taken


async def test_a_restored_curriculum_replaces_the_one_of_its_name_and_leaves_no_key(
    process: Start, redis_client: Redis
) -> None:
    services, _ = process()
    await lived_in(services)
    before = len(await keys_of_runs(redis_client))
    await copied(services, NAME)
    requests = 3  # what repetitions of observations and samples are recognised by is not part of a state
    assert len(await keys_of_runs(redis_client)) == before - requests


@pytest.mark.parametrize("fails", [ValueError, asyncio.CancelledError])
async def test_a_document_that_breaks_off_changes_nothing(
    process: Start, redis_client: Redis, fails: type[BaseException]
) -> None:
    services, _ = process()
    await lived_in(services)
    saved = await services.curriculum.states.save(RUN, NAME)

    async def items() -> AsyncIterator[Sequence[SavedItem]]:
        async for part in saved.items:
            yield part[:50]
        raise fails

    before = await dump(redis_client)
    with pytest.raises(fails):
        await services.curriculum.states.load(RUN, NAME, replace(saved, items=items()))
    assert await dump(redis_client) == before


async def test_a_process_killed_while_it_loads_a_document_leaves_nothing_behind(
    process: Start, redis_client: Redis, redis_url: str
) -> None:
    services, maintenance = process()
    await lived_in(services)
    before = await dump(redis_client)
    loading = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HALF_A_LOAD, redis_url, cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'clients'}"},
    )  # fmt: skip
    assert loading.stdout is not None
    assert await loading.stdout.readline() == b"half\n"
    loading.send_signal(signal.SIGKILL)
    await loading.wait()
    during = await dump(redis_client)
    assert len(during) > len(before)
    assert {key: during[key] for key in before} == before
    await maintenance.maintain(RUN)
    assert KEYS.curricula_loading.encode() in await dump(redis_client), "it may go on"
    await redis_client.hincrby(KEYS.run, "clock_ms", 600_001)  # type: ignore[misc]
    await maintenance.maintain(RUN)
    after = await dump(redis_client)
    assert {key: after.get(key) for key in before} == before
    assert set(after) <= set(before)


async def test_what_is_restored_into_a_run_while_it_is_removed_leaves_no_key(
    process: Start, redis_client: Redis
) -> None:
    services, _ = process()
    await lived_in(services)
    saved = await services.curriculum.states.save(RUN, NAME)

    async def items() -> AsyncIterator[Sequence[SavedItem]]:
        parts = [part async for part in saved.items]
        yield parts[0][:50]
        await services.runs.administration.delete(RUN)
        yield parts[0][50:]

    with pytest.raises(CurriculumNotFound):
        await services.curriculum.states.load(RUN, "other", replace(saved, items=items()))
    assert await keys_of_runs(redis_client) == []
    with pytest.raises(RunNotFound):
        await services.curriculum.states.load(RUN, "other", saved)


async def test_what_is_meant_for_the_previous_one_does_nothing_to_the_one_restored(process: Start) -> None:
    services, _ = process()
    await lived_in(services)
    before = await CurriculumStore(services.connection).existing(RUN, NAME)
    await copied(services, NAME)
    await services.curriculum.administration._store.delete(before)
    assert (await services.curriculum.administration.facts(RUN, NAME)).census.counts.items == len(ITEMS)


@pytest.mark.parametrize("script", ["count_curriculum", "take_items", "register_items", "observe_items"])
async def test_requests_go_on_with_a_curriculum_that_is_restored_while_they_are_served(
    process: Start, redis_url: str, script: str
) -> None:
    services, _ = process()
    await lived_in(services)
    before, reads = await CurriculumStore(services.connection).existing(RUN, NAME), Counter[str | None]()

    class Meanwhile(RedisClient):
        async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
            name = name_of(commands[0])
            reads[name] += 1
            if name == script and reads[name] == 1:
                await copied(services, NAME)
            return await super().pipeline(commands)

    connection = Meanwhile(redis_url, 5.0)
    worker = build_services(ServiceSettings(redis_url=SecretStr(redis_url)), connection, "tested")
    keys = keys_of(await sample(worker, 10))
    assert (len(keys), await register(worker, "new")) == (10, 1)
    await observe(worker, {key: [1.0] for key in [*keys, "new"]}, "request")
    assert reads[script] >= 2
    facts = await services.curriculum.administration.facts(RUN, NAME)
    assert facts.view.curriculum_id != before.curriculum_id
    for key in [*keys, "new"]:
        item, flight = await services.curriculum.items.item(RUN, NAME, key)
        assert (item.stored.estimate.last, flight.in_flight_s) == (1.0, 0)
    await connection.aclose()


async def test_what_goes_on_is_not_taken_for_abandoned(process: Start, redis_client: Redis) -> None:
    """A process that found it abandoned looked before its last progress, so it deletes nothing."""
    services, _ = process()
    await make(services)
    states = CurriculumStateStore(services.connection)
    assert await states.begin(RUN, "loading", CurriculumHeader(), [], "1")
    await states.drop(RUN, "loading", -1)
    assert await states.stranded(RUN, 2**53) == ["loading"]
    await states.drop(RUN, "loading", 2**53)
    assert not [key async for key in redis_client.scan_iter("*loading*")]


async def test_the_state_of_atroposs_scheduler_is_restored(process: Start) -> None:
    services, _ = process()
    await make(services)
    scores = {f"q{n}": [n / 100, n] for n in range(100)}
    header, estimates = load_atropos({"strategy": "easy_first", "n_bins": 4, "item_scores": scores})

    async def items() -> AsyncIterator[Sequence[SavedItem]]:
        yield [SavedItem(key, "", "", each, (each.last,), 0) for key, each in estimates.items()]

    await services.curriculum.states.load(RUN, NAME, CurriculumDocument(header, (), items()))
    facts = await services.curriculum.administration.facts(RUN, NAME)
    assert (facts.view.settings.strategy, facts.view.settings.n_bins) == ("easy_first", 4)
    assert facts.census.counts.items == 100
    assert facts.census.counts.seen == 99, "one was never scored"
    page = await services.curriculum.items.page(RUN, NAME, limit=1000, bin_=0)
    assert {each.stored.key for each in page.items} >= {f"q{n}" for n in range(76, 100)}
