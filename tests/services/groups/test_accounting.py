"""Many producers and trainers at once, over real Redis: every group is accounted for."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.core.environments.registration import RegistrationRequest
from app.services.environments import registry
from app.store.groups.entries import Outcome, PendingGroup, Placement, Preconditions, Stored
from app.store.groups.store import GroupStore
from app.store.redis import scripts
from app.store.redis.keys import PREFIX, RunKeys
from app.store.runs import store
from app.store.runs.scripts import RenamedHash, reset_run
from lachesis.wire.errors import RunFull, TooManyRuns
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded, marks
from tests.waiting import wait_until


async def test_every_group_sent_is_served_once_or_still_there(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    processes = [process() for _ in range(3)]
    first = processes[0][0]
    await first.runs.atropos.register(RUN, config(16))
    await first.batches.dispatch.take(RUN)
    shares = (None, 0.25, None)
    environments = []
    for name, share in zip(("plain", "promised", "mixed"), shares, strict=True):
        registered = await first.environments.registry.register_environment(
            RUN, RegistrationRequest(name, 4, 512, 1.0, share)
        )
        assert registered is not None
        environments.append(registered[0].environment)
    generator = random.Random(7)
    sent: list[int] = []
    served: Counter[int] = Counter()
    producing = True

    async def produce(environment: int, sizes: tuple[int, ...], services_index: int) -> None:
        for _ in range(60):
            group = [encoded(generator.choice(sizes), len(sent) + n, environment) for n in range(2)]
            sent.extend(range(len(sent), len(sent) + 2))
            await processes[services_index][0].groups.atropos.submit(RUN, group)

    async def train(services_index: int) -> None:
        services, _ = processes[services_index]
        while True:
            answer = await services.batches.dispatch.take(RUN)
            if answer.batch is None:
                if not producing:
                    return
                await asyncio.sleep(0.01)
                continue
            if generator.random() < 0.2:
                await services.batches.atropos_delivery.break_off(RUN, answer.batch)
                continue
            served.update(marks(answer))
            await services.batches.atropos_delivery.finish(RUN, answer)

    trainers = [asyncio.create_task(train(n)) for n in range(3)]
    sizes = ((4,), (4,), (1, 2, 3, 4, 5))
    await asyncio.gather(*(produce(env, sizes[n], n) for n, env in enumerate(environments)))
    producing = False
    await asyncio.gather(*trainers)

    assert max(served.values()) == 1, "no group was trained on twice"
    books = await books_of(redis_client, RUN)
    assert len(sent) == 360
    assert len(served) + len(books["queued"]) + len(books["buffered"]) == len(sent)
    assert len(served) > 100


async def test_a_repeated_submission_stores_nothing(process: Callable[..., Process], redis_client: Redis) -> None:
    """A retry after a lost reply: same ids, so the second time changes nothing, wherever the group has gone."""
    services, _ = process()
    submission = [PendingGroup("one", encoded(2, 1), Placement(None, buffered=False))]
    for _ in range(2):
        assert await GroupStore(services.connection).admit(RUN, [submission], Preconditions(0)) == Stored([[Outcome()]])
    assert (await books_of(redis_client, RUN))["queued"] == {"one"}

    await services.runs.atropos.register(RUN, config(2))
    await services.groups.atropos.submit(RUN, [encoded(2, 2)])
    for _ in range(3):
        answer = await services.batches.dispatch.take(RUN)
        await services.batches.atropos_delivery.finish(RUN, answer)
    assert (await books_of(redis_client, RUN))["delivered"] == 2
    epoch = (await services.runs.atropos.view(RUN)).epoch
    assert await GroupStore(services.connection).admit(RUN, [submission], Preconditions(epoch)) == Stored([[Outcome()]])
    books = await books_of(redis_client, RUN)
    assert (books["queued"], books["delivered"]) == (set(), 2)


async def test_a_payload_without_an_index_entry_is_reaped(process: Callable[..., Process], redis_client: Redis) -> None:
    """What a crash between the payload and its index entry leaves behind."""
    services, maintenance = process(orphan_ttl_s=1)
    await services.runs.atropos.register(RUN, config(2))
    keys = RunKeys(RUN)
    await redis_client.zadd(keys.unreferenced, {"orphan": 0, "young": 99_500})
    for group in ("orphan", "young"):
        await redis_client.set(keys.payload(group), b"columns")
    await redis_client.hset(keys.run, "clock_ms", 100_000)  # type: ignore[misc]
    await maintenance.maintain(RUN)
    assert [key async for key in redis_client.scan_iter(keys.payload("*"))] == [keys.payload("young").encode()]


@pytest.mark.parametrize("damage", ["missing", "changed"])
@pytest.mark.parametrize("when", ["queued", "leased"])
async def test_a_damaged_payload_is_dropped_with_its_reason_and_replaced(
    process: Callable[..., Process], redis_client: Redis, damage: str, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    services, _ = process()
    await services.runs.atropos.register(RUN, config(4))
    for mark in range(3):
        await services.groups.atropos.submit(RUN, [encoded(2, mark)])
    if when == "leased":
        answer = await services.batches.dispatch.take(RUN)
        assert answer.batch is not None
        await services.batches.atropos_delivery.break_off(RUN, answer.batch)
    keys = [key async for key in redis_client.scan_iter(f"{PREFIX}:payload:*")]
    for key in keys:
        if (await redis_client.get(key)).startswith(b"0|"):
            await (redis_client.delete(key) if damage == "missing" else redis_client.setrange(key, 3, "?"))
    answer = await services.batches.dispatch.take(RUN)
    assert marks(answer) == [1, 2]
    reason = "payload_lost" if damage == "missing" else "corrupt"
    assert (await services.runs.atropos.view(RUN)).dropped == {(reason, None): 1}
    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    fields = line.fields  # type: ignore[attr-defined]
    assert (line.message, fields["reason"], fields["groups"]) == ("groups lost", reason, 1)
    await books_of(redis_client, RUN)


async def test_a_request_reads_the_run_and_each_payload_once(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """And once more each time that it has to start over, as it does when a payload is damaged."""
    services, _ = process()
    await services.runs.atropos.register(RUN, config(4))
    await services.batches.dispatch.take(RUN)
    for mark in range(3):
        await services.groups.atropos.submit(RUN, [encoded(2, mark)])
    oldest = (await redis_client.zrange(RunKeys(RUN).lane("-:2"), 0, 0))[0]
    await redis_client.setrange(RunKeys(RUN).payload(oldest.decode()), 3, "?")
    await redis_client.config_resetstat()
    assert marks(await services.batches.dispatch.take(RUN)) == [1, 2]
    commands = await redis_client.info("commandstats")
    assert commands["cmdstat_zcard"]["calls"] == 2, "one in each view"
    assert commands["cmdstat_mget"]["calls"] == 2, "all payloads of a batch at once"


async def test_reset_leaves_no_payload_behind(process: Callable[..., Process], redis_client: Redis) -> None:
    services, maintenance = process()
    await services.runs.atropos.register(RUN, config(4))
    await services.batches.dispatch.take(RUN)
    registered = await services.environments.registry.register_environment(RUN, RegistrationRequest("env", 8, 512, 1.0))
    assert registered is not None
    for mark in range(5):
        await services.groups.atropos.submit(RUN, [encoded(2, mark), encoded(3, mark, registered[0].environment)])
    await services.batches.dispatch.take(RUN)
    await services.runs.atropos.reset(RUN)
    await maintenance.maintain(RUN)
    await books_of(redis_client, RUN)
    left = {key.decode().split(":", 3)[-1] async for key in redis_client.scan_iter(f"{PREFIX}:*")}
    assert left <= {"run", "runs", "service", "processes"}
    assert not [key async for key in redis_client.scan_iter(f"{PREFIX}:payload:*")]


async def test_a_run_takes_only_so_many_environments(
    process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MAX_ENVIRONMENTS", 2)
    services, _ = process()
    await services.runs.atropos.register(RUN, config(4))
    await services.batches.dispatch.take(RUN)
    for name in ("one", "two"):
        await services.environments.registry.register_environment(RUN, RegistrationRequest(name, 4, 512, 1.0))
    with pytest.raises(RunFull, match="the run has 2 environments"):
        await services.environments.registry.register_environment(RUN, RegistrationRequest("three", 4, 512, 1.0))


async def test_there_are_only_so_many_runs(process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_RUNS", 1)
    services, _ = process()
    await services.runs.atropos.register(RUN, config(4))
    await services.runs.atropos.register(RUN, config(8))
    with pytest.raises(TooManyRuns, match="there are 1 runs"):
        await services.groups.atropos.submit("another", [encoded(2, 1)])


async def test_the_trouble_of_one_run_does_not_keep_the_others_waiting(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, maintenance = process()
    for name in ("a", RUN):
        await services.runs.atropos.register(name, config(4))
    await redis_client.set(RunKeys("a").left, "not a list")
    running = asyncio.create_task(maintenance.run_forever())
    try:

        async def looked_after() -> bool:
            return bool(await redis_client.hexists(RunKeys(RUN).run, "asleep_ms"))  # type: ignore[misc]

        await wait_until(looked_after)
        assert not running.done()
    finally:
        running.cancel()


async def test_a_reset_that_was_planned_on_other_lanes_changes_nothing(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """One lane emptied and another filled in between: as many as before, yet a reset must leave none behind."""
    services, _ = process()
    await services.groups.atropos.submit(RUN, [encoded(2, 1)])
    keys = RunKeys(RUN)
    reset = scripts.load("reset_run")
    await redis_client.script_load(reset.source)
    command = reset_run(
        keys,
        payload_hashes=[RenamedHash(keys.groups, keys.marked_hash("t"))],
        deleted=[keys.lane("-:3")],
        spare_native=False,
        spare_archived=False,
        tokens=["t"],
        name=RUN,
        epoch=str((await services.runs.atropos.view(RUN)).epoch),
        names=[b"lane -:3"],
    )
    assert await redis_client.evalsha(*command[1:]) == 0  # type: ignore[arg-type]
    assert len((await books_of(redis_client, RUN))["queued"]) == 1


async def test_a_group_without_an_index_entry_is_in_nobodys_way(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await services.runs.atropos.register(RUN, config(2))
    for mark in range(2):
        await services.groups.atropos.submit(RUN, [encoded(2, mark)])
    oldest = (await redis_client.zrange(RunKeys(RUN).lane("-:2"), 0, 0))[0]
    await redis_client.hdel(RunKeys(RUN).groups, oldest)
    assert marks(await asyncio.wait_for(services.batches.dispatch.take(RUN), 60)) == [1]


async def test_who_sends_a_batch_is_known_to_be_alive_from_the_start(process: Callable[..., Process]) -> None:
    """A process of another host that never ticked would be taken for dead, and its batch handed out twice."""
    services, _ = process()
    await services.runs.atropos.register(RUN, config(2))
    await services.groups.atropos.submit(RUN, [encoded(2, 1)])
    await services.batches.dispatch.take(RUN)
    assert services.batches.atropos_delivery.worker in (await services.runs.atropos.view(RUN)).workers
