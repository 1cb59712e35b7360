"""Trainers wait for batches: a new batch wakes them, and a timeout says what is missing."""

import asyncio
import contextlib
import statistics
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from tests.e2e.service import Service
from tests.scenarios.native_calls import (
    RUN,
    Batch,
    end,
    group,
    ids,
    join,
    leased_batches,
    make_run,
    submit,
    take,
    taken,
    trainers_wait,
)
from tests.waiting import wait_until

LONG_S = 30.0


def waiting(client: httpx.AsyncClient, wait_s: float = LONG_S) -> "asyncio.Task[Batch | None]":
    return asyncio.create_task(take(client, wait_s))


async def test_the_last_missing_group_wakes_a_waiting_trainer(client: httpx.AsyncClient, redis_client: Redis) -> None:
    """Polling would take half a second on average; a notification takes as long as a few requests."""
    await make_run(client, batch_size=20)
    clock, took_s, submitting_s = asyncio.get_running_loop().time, [], []

    async def is_listened_to() -> bool:
        ((_, listeners),) = await redis_client.pubsub_numsub(RunKeys("run").run)
        return bool(listeners)

    for number in range(5):
        trainer = waiting(client)
        await trainers_wait(client, 1)
        await wait_until(is_listened_to)
        names = [f"{number}.{n}" for n in range(10)]
        for name in names[:-1]:  # one by one: the trainer also tries when it begins to listen, and has done so then
            await submit(client, name)
        assert not trainer.done(), "nine groups of ten make no batch"
        before = clock()
        await submit(client, names[-1])
        begun = clock()
        batch = await trainer
        submitting_s.append(begun - before)
        took_s.append(clock() - begun)
        assert batch is not None
        assert ids(batch) == names
    assert statistics.median(took_s) < 20 * statistics.median(submitting_s)


async def test_when_time_is_up_the_answer_says_what_is_missing(client: httpx.AsyncClient) -> None:
    await make_run(client)
    await submit(client, "a")
    reply = await client.post(f"{RUN}/batches", params={"wait_s": 0.2})
    assert (reply.status_code, reply.content) == (204, b"")
    assert reply.headers["lachesis-waiting"].startswith("too_few_sequences: a batch needs 4 sequences; the queue has 2")


@pytest.mark.parametrize("has_left", [False, True])
async def test_a_trainer_that_waited_learns_who_must_act(client: httpx.AsyncClient, has_left: bool) -> None:
    """As `explain` says it."""
    await make_run(client)
    if has_left:
        await client.delete(f"{RUN}/environments/{await join(client, 'math')}")
    who = "no environment is alive: start one" if has_left else "no environment has joined: start one"
    reply = await client.post(f"{RUN}/batches", params={"wait_s": 0.1})
    explained = (await client.get(f"{RUN}/batches/explain")).json()
    assert explained["detail"].endswith(who)
    assert reply.headers["lachesis-waiting"] == f"{explained['reason']}: {explained['detail']}"


async def test_the_answer_names_an_environment_with_any_name(client: httpx.AsyncClient) -> None:
    await make_run(client, max_staleness=0)
    math = await join(client, "数学\r\nevil: 1 ☂", group_size=4)
    await submit(client, *(group(f"g{n}", 3, environment=math) for n in range(2)))
    reply = await client.post(f"{RUN}/batches", params={"wait_s": 0.1})
    assert reply.headers["lachesis-waiting"].endswith(
        r"environment 0 (\u6570\u5b66\r\nevil: 1 \u2602) must make a group of 4"
    )
    assert "evil" not in reply.headers


@pytest.mark.parametrize("news", ["a smaller batch size", "a batch given back", "a rewind", "a lease that runs out"])
async def test_a_waiting_trainer_is_woken_by_whatever_lets_a_batch_form(client: httpx.AsyncClient, news: str) -> None:
    await make_run(client)
    await submit(client, "a", "b")
    batch = await taken(client, lease_s=0.3 if "runs out" in news else 600)
    trainer = waiting(client)
    if "runs out" not in news:  # the lease may have run out by then
        await trainers_wait(client, 1)
    match news:
        case "a smaller batch size":
            await submit(client, "c")
            await client.patch(RUN, json={"batch_size": 2})
        case "a batch given back":
            await end(client, batch, "nack")
        case "a rewind":
            await end(client, batch)
            await client.post(f"{RUN}/rewind", json={"step": 0})
    answer = await asyncio.wait_for(trainer, 20)
    assert answer is not None
    assert ids(answer) == (["c"] if news == "a smaller batch size" else ["a", "b"])


async def test_those_who_wait_are_served_in_the_order_they_came(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    trainers = []
    for number in range(8):
        trainers.append(waiting(client))
        await trainers_wait(client, number + 1)
    sent = [f"g{number}" for number in range(8)]
    await submit(client, *sent)
    batches = [batch for batch in await asyncio.gather(*trainers) if batch is not None]
    assert [one for batch in batches for one in ids(batch)] == sent


async def test_a_trainer_that_hung_up_takes_no_batch_with_it(client: httpx.AsyncClient) -> None:
    await make_run(client)
    for _ in range(3):
        gone = waiting(client)
        await trainers_wait(client, 1)
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
    patient = waiting(client)
    await submit(client, "a", "b")
    batch = await asyncio.wait_for(patient, 60)
    assert batch is not None
    assert (ids(batch), batch["delivery_count"]) == (["a", "b"], 1)
    assert [held["batch"] for held in await leased_batches(client)] == [batch["batch"]]


@pytest.mark.slow
async def test_a_service_that_stops_answers_who_waits_at_once(tmp_path: Path) -> None:
    """Its grace period is for requests that do work."""
    service = Service(tmp_path)
    try:
        async with httpx.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
            await make_run(client)
            trainers = [asyncio.create_task(client.post(f"{RUN}/batches", params={"wait_s": 60})) for _ in range(3)]
            await trainers_wait(client, 3)
            stopping = asyncio.create_task(asyncio.to_thread(service.stop))
            replies = await asyncio.wait_for(asyncio.gather(*trainers), 40)
            assert [reply.status_code for reply in replies] == [204] * 3
            assert all(reply.headers["lachesis-waiting"].startswith("too_few_sequences") for reply in replies)
            await asyncio.wait_for(stopping, 40)
    finally:
        service.stop()
