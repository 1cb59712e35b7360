"""What many readers would feel: how often Redis is asked, and how often plans in flight are outdated."""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count

import numpy as np
import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.batches.leases import Lease
from app.core.runs.settings import Policy
from app.services import turns
from app.services.batches.request import BatchRequest
from app.services.groups import arrivals
from app.services.replay.request import ReplaySample
from tests.services.conftest import RUN, Process, config, encoded, join
from tests.services.curriculum.runs import NAME, observe, register
from tests.services.replay.moves import buffer_of

OF_WHAT_IS_NAMED = {
    *("evalsha", "exec", "exists", "hdel", "hexists", "hget", "hincrby", "hlen", "hmget", "hset", "multi", "publish"),
    *("mset", "sadd", "strlen", "time", "unlink", "zadd", "zcard", "zmscore", "zrank", "zrem", "zrangebyscore"),
    *("set", "zscore"),
}
"""Commands whose work is by what they name or find, and at most by the logarithm of all else that a key holds.

`zrangebyscore` finds a thousand at most: `app/store/lua/curriculum/forget_oldest.lua`.
"""


@pytest.fixture
async def services(process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch) -> Services:
    """Of one process, which looks for no others: it does so by the clock."""
    monkeypatch.setattr(turns, "_LOOK_EACH_S", float("inf"))
    found, _ = process()
    await found.runs.administration.create(RUN, config(2), Policy())
    return found


async def calls(redis: Redis, ask: Callable[[], Awaitable[object]]) -> dict[str, int]:
    """How many commands of each name it takes, those of pipelines and scripts counted one by one."""
    await redis.config_resetstat()
    await ask()
    counted = await redis.info("commandstats")
    own = {"cmdstat_config|resetstat", "cmdstat_info"}
    return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in counted.items() if name not in own}


async def commands(redis: Redis, ask: Callable[[], Awaitable[object]]) -> int:
    """How many commands it takes in all."""
    return sum((await calls(redis, ask)).values())


async def test_to_follow_a_group_costs_the_same_however_many_batches_there_are(
    services: Services, redis_client: Redis
) -> None:
    async def submit_and_take(name: str) -> None:
        await services.groups.native.submit(RUN, [encoded(2, 0)._replace(given_id=name)])
        await services.batches.dispatch.take(RUN, BatchRequest())

    async def follow(name: str) -> int:
        life = (await services.groups.histories.of(RUN, name)).group
        assert (life.state, life.step) == ("leased", int(name.removeprefix("g")))
        return await commands(redis_client, lambda: services.groups.histories.of(RUN, name))

    await submit_and_take("g1")
    one = await follow("g1")
    for number in range(2, 6):
        await submit_and_take(f"g{number}")
    assert await follow("g5") == one


async def test_to_observe_an_item_costs_the_same_however_many_items_there_are(
    services: Services, redis_client: Redis
) -> None:
    await join(services, NAME)
    await services.curriculum.administration.configure(RUN, NAME, {}, make=True)

    async def grow(first: int, end: int) -> None:
        keys = [f"i{n}" for n in range(first, end)]
        await register(services, *keys, category="algebra")
        await observe(services, {key: [1.0] for key in keys})

    async def by_group(name: str) -> None:
        scored = encoded(2, 0, environment=0)._replace(given_id=name, item="i7", rewards=np.array([1.0, 0.0]))
        await services.groups.native.submit(RUN, [scored])

    async def both_ways(name: str) -> list[dict[str, int]]:
        own = await calls(redis_client, lambda: observe(services, {"i7": [1.0, 0.0]}))
        return [own, await calls(redis_client, lambda: by_group(name))]

    await grow(0, 100)
    await by_group("before")
    few = await both_ways("few")
    await grow(100, 10_000)
    assert await both_ways("many") == few
    assert set().union(*few) <= OF_WHAT_IS_NAMED, "there may be one that goes through all items"
    assert (await services.curriculum.administration.facts(RUN, NAME)).census.updates == 10_000 + 5


async def test_a_take_reads_groups_only_if_there_are_enough(services: Services, redis_client: Redis) -> None:
    run = "four"
    await services.runs.administration.create(run, config(4), Policy())
    await services.batches.dispatch.take(run, BatchRequest())  # the first starts the run

    async def reads_after(name: str) -> int:
        await services.groups.native.submit(run, [encoded(3, 0)._replace(given_id=name)])
        counted = await calls(redis_client, lambda: services.batches.dispatch.take(run, BatchRequest()))
        return counted["zrange"]

    too_few = await reads_after("g1")
    assert await reads_after("g2") == too_few + 1, "two groups of three are enough, and do not fit"


async def test_a_list_of_runs_takes_one_command_more_than_there_are_runs(
    services: Services, redis_client: Redis
) -> None:
    for name in ("a", "b"):
        await services.runs.administration.create(name, config(4), Policy(max_staleness=1))
    await services.runs.atropos.view("nobody")
    page = await services.runs.administration.page(100, "")
    found, failures = page.runs, page.unreadable
    assert failures == {}
    assert list(found) == ["a", "b", RUN]
    for name, summary in found.items():
        view = await services.runs.administration.get(name)
        assert summary.config == view.config
        assert (summary.policy, summary.step, summary.policy_version) == (view.policy, view.step, view.policy_version)
    assert await commands(redis_client, partial(services.runs.administration.page, 100, "")) == 1 + len(found)


async def test_only_what_is_new_outdates_plans_in_flight(services: Services) -> None:
    async def outdated(act: Awaitable[object]) -> bool:
        before = (await services.runs.atropos.view(RUN)).epoch
        await act
        return (await services.runs.atropos.view(RUN)).epoch != before

    assert await outdated(join(services))
    assert not await outdated(join(services)), "as a worker does that starts again"
    assert not await outdated(services.environments.registry.change_environment(RUN, 0, {"weight": 1.0}))
    assert await outdated(join(services, min_share=0.5, change_settings=True))
    assert not await outdated(join(services, member="two")), "others are there already"
    assert not await outdated(services.environments.registry.leave(RUN, 0, "two")), "others stay"
    assert await outdated(services.environments.registry.leave(RUN, 0, "one"))
    assert not await outdated(services.environments.registry.leave(RUN, 0, None))
    assert await outdated(join(services, min_share=0.5))
    assert not await outdated(services.runs.administration.change(RUN, {"keep_batches": 0}))


@pytest.mark.parametrize("keep_batches", [0, 1])
async def test_a_batch_of_many_groups_takes_as_many_commands_as_one_of_few(
    services: Services, redis_client: Redis, keep_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is written to disk by itself."""
    monkeypatch.setattr(arrivals, "WINDOW_MS", 10**12)  # a look at the run each second costs commands, too
    number = count()

    async def life(groups: int) -> list[dict[str, int]]:
        """Take and acknowledge two batches. The second one releases the first."""
        await services.runs.administration.change(
            RUN, {"batch_size": 2 * groups, "keep_batches": keep_batches, "keep_bytes": 2**20}
        )
        counted = []
        for _ in range(2):
            named = [encoded(2, 0)._replace(given_id=f"g{next(number)}") for _ in range(groups)]
            await services.groups.native.submit(RUN, named)
            taken: list[Lease] = []

            async def take(taken: list[Lease] = taken) -> None:
                batch = (await services.batches.dispatch.take(RUN, BatchRequest())).batch
                assert batch is not None
                assert len(batch.groups) == groups
                taken.append(batch.lease)

            async def acknowledge(taken: list[Lease] = taken) -> None:
                await services.batches.leases.acknowledge(RUN, taken[0].batch_id, taken[0].lease_id)

            counted += [await calls(redis_client, take), await calls(redis_client, acknowledge)]
        return counted

    await life(2)
    assert await life(40) == await life(2)  # not of one: the newest stays, for an example


async def test_what_is_written_for_many_chunks_takes_as_many_commands_as_for_one(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Each command costs, most of all in the append-only file; it was two thirds of what a new session took."""
    buffer = await buffer_of(process(), redis_client, max_reuse=1)
    replay = buffer.process[0].replay.buffers

    async def writes(act: Callable[[], Awaitable[object]]) -> dict[str, int]:
        counted = await calls(redis_client, act)
        return {name: counted.get(name, 0) for name in ("hset", "hincrby", "hdel", "zadd", "zrem")}

    async def life(chunks: int) -> list[dict[str, int]]:
        """Reserved by a sample and given back, used up by another; the rest archived, and deleted."""
        session = (await replay.state(RUN)).session
        await buffer.insert(*range(2 * chunks), session=session)
        taken: list[ReplaySample] = []

        async def take() -> None:
            taken.append(await buffer.take(chunks, sampling={"strategy": "fifo"}))

        return [
            await writes(take),
            await writes(lambda: buffer.nack(taken.pop())),
            await writes(take),
            await writes(lambda: buffer.ack(taken.pop())),
            await writes(lambda: replay.set_session(RUN, session + 1)),
            await writes(lambda: replay.delete_chunks(RUN, session=session)),
        ]

    assert await life(40) == await life(1)


async def test_a_submission_like_those_before_looks_for_no_warnings(services: Services, redis_client: Redis) -> None:
    """Also if its groups are taken at once, so that the queue has none of their size; and if there are warnings."""
    names = (f"g{n}" for n in count())

    async def submit(size: int) -> dict[str, int]:
        group = encoded(size, 0)._replace(given_id=next(names))
        return await calls(redis_client, lambda: services.groups.native.submit(RUN, [group]))

    assert (await submit(2))["hgetall"] > 0
    await services.batches.dispatch.take(RUN, BatchRequest())
    assert "hgetall" not in await submit(2)
    assert (await submit(3))["hgetall"] > 0
    assert services.runs.warnings.of(RUN) != ()
    assert "hgetall" not in await submit(3)


async def test_to_restore_a_snapshot_costs_the_same_however_many_samples_it_holds(
    services: Services, redis_client: Redis
) -> None:
    """Each chunk is released once, a few at a time."""
    buffer = await buffer_of((services, None), redis_client)  # type: ignore[arg-type]
    await buffer.put(*range(8))
    held: list[ReplaySample] = []

    async def restoration(samples: int) -> int:
        held.extend([await buffer.take(8) for _ in range(samples)])
        await services.replay.snapshots.take(RUN, "a")
        for sample in held:
            await buffer.nack(sample)
        held.clear()
        asked = await commands(redis_client, lambda: services.replay.snapshots.restore(RUN, "a"))
        assert (await buffer.books()).total("samples") == 0
        return asked

    assert await restoration(5) == await restoration(1)
