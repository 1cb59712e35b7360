"""What a look at a run finds."""

import asyncio
import time
from collections.abc import Callable

from redis.asyncio import Redis

from app.core.history.causes import HELD
from app.core.history.charts import BLOCKED, LOOKED_S, environment_series, run_series
from app.services.batches.request import BatchRequest
from app.services.stores import Stores
from app.store.redis.keys import RunKeys
from tests.core.views import TTL_MS
from tests.services.conftest import RUN, Process
from tests.services.history.history_runs import group, make_run, sampler_of
from tests.services.replay.moves import buffer_of


async def test_a_trainer_holds_a_batch_only_while_it_does(process: Callable[..., Process]) -> None:
    """Ten seconds pass between two looks. In them, a trainer holds a batch for a moment, and takes another one."""
    services, _ = process()
    math, clock_s = await make_run(services), 100.0
    sampler = sampler_of(services, Stores.on(services.connection, TTL_MS), clock=lambda: clock_s)
    await sampler.sample(RUN, replay=False)
    began_s = time.monotonic()
    for name in "abcdefgh":
        await services.groups.native.submit(RUN, [group(name, math, 0.0, 1.0)])
    taken = (await services.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch
    assert taken is not None
    await asyncio.sleep(0.005)
    await services.batches.leases.acknowledge(RUN, taken.lease.batch_id, taken.lease.lease_id)
    clock_s += 10.0
    first, _ = await sampler.sample(RUN, replay=False)
    assert (await services.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch is not None
    await asyncio.sleep(0.005)
    clock_s += 10.0
    second, _ = await sampler.sample(RUN, replay=False)
    for seen in (first, second):
        assert 0 < seen.run.counts[BLOCKED + HELD] <= time.monotonic() - began_s
        assert seen.run.counts[LOOKED_S] == 10.0


async def test_a_sample_that_is_given_back_counts_as_sampled_and_repeats_no_drops(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """It lowers a total of the replay buffer, which is no reset of the run."""
    services, _ = one = process()
    math, stores = await make_run(services), Stores.on(services.connection, TTL_MS)
    buffer, sampler = await buffer_of(one, redis_client), sampler_of(services, stores)
    await services.groups.native.submit(RUN, [group("a", math, 0.0, 1.0)])
    await services.groups.deletion.delete(RUN, "a")
    await buffer.put(0)
    sample = await buffer.take(1)
    first, growth = await sampler.sample(RUN, replay=True)
    assert (first.run.counts["dropped:deleted"], first.run.counts["replay_samples"]) == (1, 1)
    assert await stores.histories.append(RUN, first, growth)

    await buffer.nack(sample)
    second, growth = await sampler.sample(RUN, replay=True)
    assert await stores.histories.append(RUN, second, growth)
    assert not second.run.counts.keys() & {"dropped:deleted", "replay_samples"}
    assert not any(facts.counts for facts in second.environments.values())

    await buffer.set_version(2)
    for _ in range(2):
        await buffer.nack(await buffer.take(1))
    third, _ = await sampler.sample(RUN, replay=True)
    assert (third.run.counts["replay_samples"], third.run.counts["replay_staleness"]) == (2, 4)


async def test_totals_name_environments_that_have_dropped_nothing_too(process: Callable[..., Process]) -> None:
    """So the next look knows which environments were looked at."""
    services, _ = process()
    await make_run(services)
    _, growth = await sampler_of(services, Stores.on(services.connection, TTL_MS)).sample(RUN, replay=False)
    assert growth.now == {"": {}, "math": {}}


async def test_drops_are_not_counted_if_nobody_knows_when_they_happened(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """The run slept until its history had expired."""
    services, _ = process()
    math, stores = await make_run(services), Stores.on(services.connection, TTL_MS)
    sampler = sampler_of(services, stores)
    await redis_client.hset(RunKeys(RUN).run, "clock_ms", 10**9)
    for counted, name in enumerate("ab"):
        await services.groups.native.submit(RUN, [group(name, math, 0.0, 1.0)])
        await services.groups.deletion.delete(RUN, name)
        seen, growth = await sampler.sample(RUN, replay=False)
        assert seen.run.counts.get("dropped:deleted", 0) == counted
        assert await stores.histories.append(RUN, seen, growth)


async def test_the_charts_have_what_a_look_measures(process: Callable[..., Process]) -> None:
    services, _ = process()
    math = await make_run(services)
    await services.groups.native.submit(RUN, [group("a", math, 0.0, 1.0)])
    seen, _ = await sampler_of(services, Stores.on(services.connection, TTL_MS)).sample(RUN, replay=False)
    measured = {"queued_groups": [1], "queued_sequences": [2]}
    assert run_series({0: seen}, 1, measured) == measured
    owed = {"queued_groups": [1], "owed_sequences": [0]}
    assert environment_series({0: seen}, 1, owed) == {"math": owed}
