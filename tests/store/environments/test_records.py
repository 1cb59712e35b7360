"""What a process remembers of environments is what Redis holds, and it reads only what changed."""

from dataclasses import replace
from random import Random

import pytest

from app.core.environments.live import EnvironmentsById
from app.core.environments.record import EnvironmentRecord
from app.core.runs.settings import Policy
from app.store.environments.records import SharedEnvironments
from app.store.redis.keys import RunKeys
from app.store.runs.store import RunStore
from app.store.runs.tick import PendingHeartbeats
from tests.core.views import TTL_MS
from tests.store.conftest import CONFIG, MATH, RUN, Store

STEPS = 60
MANY = 50


async def put(store: Store, environment: EnvironmentRecord, runs: RunStore) -> None:
    assert await store.environments.put(RUN, environment, (await runs.view(RUN)).epoch)


@pytest.mark.parametrize("seed", range(12))
async def test_two_processes_and_a_new_one_see_the_same_after_any_changes(store: Store, seed: int) -> None:
    """Environments are put, changed and forgotten through either process; the run is reset, deleted and made again."""
    random, processes = Random(seed), [store.runs, RunStore(store.connection, TTL_MS)]
    for step in range(STEPS):
        runs = random.choice(processes)
        view = await runs.view(RUN)
        known = list(view.environments.values())
        what = random.choice(("new", "new", "change", "change", "forget", "member", "reset", "configure"))
        if what == "new":
            number = view.next_environment
            await put(store, replace(MATH, environment=number, name=f"math_{number}"), runs)
        elif what == "change" and known:
            await put(store, replace(random.choice(known), weight=random.random(), heard_ms=None), runs)
        elif what == "forget" and known:
            idle = random.sample(known, min(2, len(known)))
            assert await store.environments.forget(RUN, idle, view) == (not any(one.members for one in idle))
        elif what == "member" and known:
            await store.members.put(RUN, random.choice(known).environment, f"m{step}")
        elif what == "reset" and random.random() < 0.3:
            await runs.reset(RUN, f"token{step}")
            if random.random() < 0.5:
                await runs.forget(RUN)
        elif what == "configure":
            await runs.put(RUN, CONFIG.model_copy(update={"num_steps": step}), Policy(), view.epoch)
        fresh = (await RunStore(store.connection, TTL_MS).view(RUN)).environments
        for each in processes:
            if random.random() < 0.7:
                assert (await each.view(RUN)).environments == fresh
                assert list((await each.view(RUN)).environments) == sorted(fresh)
                assert (await each.queue(RUN)).environments == fresh


async def test_only_records_that_changed_are_parsed(store: Store) -> None:
    for number in range(1, 50):
        await put(store, replace(MATH, environment=number, name=f"math_{number}"), store.runs)
    other = RunStore(store.connection, TTL_MS)
    assert len((await other.view(RUN)).environments) == 50
    assert other.records.parsed == 50
    for _ in range(3):
        await other.view(RUN)
    assert other.records.parsed == 50, "nothing has changed"
    await put(store, replace(MATH, environment=50, name="math_50"), store.runs)
    await put(store, replace(MATH, environment=7, weight=3.0), store.runs)
    assert (await other.view(RUN)).environments[7].weight == 3.0
    assert other.records.parsed == 52


async def test_a_queue_of_many_environments_shows_each_record_that_changed_with_its_activity(store: Store) -> None:
    """What environments did last may be older, but not where a record has changed since."""
    for number in range(1, MANY):
        await put(store, replace(MATH, environment=number, name=f"math_{number}"), store.runs)
    other = RunStore(store.connection, TTL_MS)
    for number in (3, 5, 7):
        await store.members.put(RUN, number, "one")
        await put(store, replace(MATH, environment=number, name=f"math_{number}", weight=2.0), store.runs)
        environments = (await other.queue(RUN)).environments
        assert (environments[number].members, environments[number].weight) == (1, 2.0)
    assert (await other.queue(RUN)).environments == (await store.view()).environments
    other.forget_unused()
    other.forget_unused()
    assert (await other.queue(RUN)).environments == (await store.view()).environments


def test_activity_is_read_again_after_a_while_and_always_where_environments_are_few() -> None:
    def known(count: int) -> SharedEnvironments:
        records = {n: replace(MATH, environment=n) for n in range(count)}
        return SharedEnvironments(records, EnvironmentsById(records, {}, {}), began_s=5.0)

    assert [known(count).is_old(5.0) for count in (1, 30, MANY, 10_000)] == [True, True, False, False]
    assert [known(count).is_old(5.11) for count in (MANY, 10_000)] == [True, False]
    assert known(10_000).is_old(7.0)
    assert [known(count).are_many for count in (30, MANY)] == [False, True]


async def test_records_of_a_run_that_nobody_asks_for_are_forgotten(store: Store) -> None:
    await store.view()
    before = store.runs.records.parsed
    for _ in range(2):
        store.runs.records.forget_unused()
        await store.view()
    assert store.runs.records.parsed == before, "somebody asks for it"
    for _ in range(2):
        store.runs.records.forget_unused()
    await store.view()
    assert store.runs.records.parsed == before + 1


async def test_a_sign_of_life_that_is_written_late_makes_nobody_older(store: Store) -> None:
    """Each process writes what it heard, and one that could not write for a while does so later."""
    await store.pass_time(100_000)
    now_ms = (await store.view()).clock_ms
    for heard_ms in (now_ms, now_ms - 50_000):
        await store.runs.record_heartbeats({RUN: PendingHeartbeats({0: heard_ms})})
        assert (await store.view()).environments[0].heard_ms == now_ms


async def test_a_run_that_is_made_again_with_lower_epochs_has_its_own_environments(store: Store) -> None:
    """As after the clock of Redis went back: epochs begin with its time."""
    other, keys = RunStore(store.connection, TTL_MS), RunKeys(RUN)
    assert [env.name for env in (await other.view(RUN)).environments.values()] == [MATH.name]
    await store.runs.reset(RUN, "token")
    await store.runs.forget(RUN)
    await store.runs.register(RUN, CONFIG)
    await put(store, replace(MATH, name="new"), store.runs)
    await store.redis.hset(keys.run, mapping={"epoch": 1000, "first_epoch": 999})  # type: ignore[misc]
    await store.redis.zadd(keys.environment_epochs, {"0": 1000})
    assert [env.name for env in (await other.view(RUN)).environments.values()] == ["new"]
