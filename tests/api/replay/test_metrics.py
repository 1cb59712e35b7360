"""What Prometheus reads of a replay buffer, beside what the API says of it."""

import asyncio
import math
from typing import Any

import httpx
from redis.asyncio import Redis

from tests.api.conftest import Start
from tests.api.native_groups import BINARY
from tests.api.replay.calls import REPLAY, RUN, end, in_binary, insert, make_buffer, state, take
from tests.api.test_metrics import Scraped, scrape
from tests.waiting import wait_until


async def busy(client: httpx.AsyncClient) -> None:
    """A buffer with chunks in every place, fragments that wait, are dropped and refused, and a limiter."""
    limiter = {"samples_per_insert": 1, "min_diff": -10, "max_diff": 100}
    await make_buffer(client, fragments_per_chunk=2, max_reuse=2, reorder_window_s=0, limiter=limiter)
    await insert(client, range(9), "former")
    await client.put(f"{REPLAY}/session", json={"session": 1})
    await insert(client, [0], "former")
    await insert(client, [*range(6), 7, 8, 10], session=1)
    await insert(client, [11, 12], session=1)
    fifo = {"num_chunks": 1, "strategy": "fifo"}
    held = [await take(client, **fifo) for _ in range(3)]
    await client.put(f"{RUN}/policy-version", json={"policy_version": 3})
    await end(client, held[0])
    await end(client, held[2], "nack")
    last = await take(client, num_chunks=1, strategy="lifo")
    await client.delete(f"{REPLAY}/chunks", params={"version": 0, "session": 1, "worker": "w"})
    await end(client, last)


def of_run(page: Scraped, name: str, label: str) -> dict[str, float]:
    """The values of a metric by one label, those that are not 0."""
    found = {dict(labels)[label]: value for (metric, labels), value in page.samples.items() if metric == name}
    return {key: value for key, value in found.items() if value}


async def test_metrics_of_a_buffer_are_what_the_api_says_of_it(client: httpx.AsyncClient) -> None:
    await busy(client)
    page, told = await scrape(client), await state(client)
    chunks = {name: told[f"{name}_chunks"] for name in ("sampleable", "reserved", "archived", "retired_in_use")}
    assert {place: page.value("lachesis_replay_chunks", place=place) for place in chunks} == chunks
    assert {chunks["archived"], chunks["retired_in_use"]} == {4, 1}
    for state_, name in (("in_chunks", "chunk"), ("waiting", "waiting")):
        assert page.value("lachesis_replay_fragments", state=state_) == told[f"{name}_fragments"]
        assert page.value("lachesis_replay_payload_bytes", state=state_) == told[f"{name}_bytes"]
    assert page.value("lachesis_replay_fragments_accepted_total") == told["accepted_fragments"]
    for name in ("dropped_fragments", "refused_fragments", "retired_chunks"):
        what, things = name.split("_")
        assert of_run(page, f"lachesis_replay_{things}_{what}_total", "reason") == told[name] != {}
    assert page.value("lachesis_replay_gaps_total") == told["gaps"] > 0
    assert page.value("lachesis_replay_chunks_inserted_total") == told["limiter"]["inserts"]
    assert page.value("lachesis_replay_sampled_chunks") == told["limiter"]["samples"]
    assert page.value("lachesis_replay_limiter_error_chunks") == told["limiter"]["error"]
    assert page.value("lachesis_replay_samples_held") == told["samples_held"] == 1
    blocked = {side: told["limiter"][f"{side}s_blocked"] is not None for side in ("insert", "sample")}
    assert {side: page.value("lachesis_replay_blocked", side=side) for side in blocked} == blocked
    assert blocked["sample"], "all chunks were retired"
    assert mean(page, "lachesis_replay_retired_uses") == told["avg_reuse"] > 0
    assert mean(page, "lachesis_replay_sampled_staleness_versions") == told["avg_staleness"] == 3 / 4


def mean(page: Scraped, name: str) -> float:
    return page.value(f"{name}_sum") / page.value(f"{name}_count")


async def test_staleness_is_counted_by_powers_of_two(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    await insert(client, [0])
    name, taken = "lachesis_replay_sampled_staleness_versions", [0, 1, 2, 3, 4, 5, 256, 257, 2**50]
    for version in taken:
        await client.put(f"{RUN}/policy-version", json={"policy_version": version})
        await end(client, await take(client, num_chunks=1), "nack")
    page = await scrape(client)
    bounds = of_run(page, f"{name}_bucket", "le")
    assert len(bounds) == 11
    assert bounds == {bound: sum(each <= float(bound) for each in taken) for bound in bounds}
    assert bounds["+Inf"] == page.value(f"{name}_count") == len(taken)
    assert page.value(f"{name}_sum") == sum(taken)


async def test_means_are_shown_from_the_first_sample_on_and_never_of_nothing(client: httpx.AsyncClient) -> None:
    def means(told: dict[str, Any]) -> tuple[Any, Any]:
        return told["avg_reuse"], told["avg_staleness"]

    for _ in range(2):  # the second time after a reset
        await make_buffer(client, max_reuse=1)
        assert means(await state(client)) == (None, None)
        page = await scrape(client)
        assert not [key for key, value in page.samples.items() if math.isnan(value)]
        await insert(client, [0, 1])
        await client.put(f"{RUN}/policy-version", json={"policy_version": 5})
        sample = await take(client, num_chunks=1)
        assert means(await state(client)) == (None, 5)
        await end(client, sample)
        assert means(await state(client)) == (1, 5)
        await client.delete(f"{REPLAY}/chunks")
        assert means(await state(client)) == (0.5, 5)
        await client.delete(RUN)
    assert (await scrape(client)).named("run") == set()


async def test_only_runs_with_a_buffer_have_its_metrics_and_no_worker_has_a_series(client: httpx.AsyncClient) -> None:
    await client.post("/v1/runs", json={"name": "without", "batch_size": 1})
    await make_buffer(client)
    for number in range(20):
        await insert(client, [0], f"worker-{number}")
    page = await scrape(client)
    of_r = {key for key in page.samples if ("run", "r") in key[1] and key[0].startswith("lachesis_replay_")}
    assert not [key for key in page.samples if ("run", "without") in key[1] and key[0].startswith("lachesis_replay_")]
    assert len(of_r) < 60
    workers = (await state(client))["workers"]
    assert len(workers) == 20
    assert all(worker["fragments_per_s"] > 0 for worker in workers)


async def test_who_is_held_back_is_counted_by_side_by_the_process_that_answers(start: Start) -> None:
    client, other = await start(), await start()
    await make_buffer(client, limiter={"samples_per_insert": 1, "min_diff": 0, "max_diff": 2})

    def counts(page: Scraped) -> dict[str, tuple[float, float]]:
        blocked, waiting = "lachesis_replay_requests_blocked_total", "lachesis_replay_requests_waiting"
        return {side: (page.value(blocked, side=side), page.value(waiting, side=side)) for side in ("insert", "sample")}

    assert (await client.post(f"{REPLAY}/samples", json={"num_chunks": 1})).status_code == 204
    waiting = asyncio.create_task(take(client, wait_s=20, num_chunks=1))

    async def counted(expected: dict[str, tuple[float, float]]) -> bool:
        return counts(await scrape(client)) == expected

    await wait_until(lambda: counted({"insert": (0, 0), "sample": (2, 1)}))
    await insert(client, [0])
    await waiting
    for number in (1, 2):
        await insert(client, [number])
    assert (await client.post(f"{REPLAY}/fragments", content=in_binary(3), headers=BINARY)).status_code == 429
    assert counts(await scrape(client)) == {"insert": (1, 0), "sample": (2, 0)}
    assert counts(await scrape(other)) == {"insert": (0, 0), "sample": (0, 0)}


async def test_a_scrape_costs_one_round_trip_a_run_for_any_buffer(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    await make_buffer(client)

    async def commands() -> dict[str, int]:
        """The fewest of five scrapes: maintenance of other runs adds commands of its own to some."""
        tried = [await commands_of_one() for _ in range(5)]
        return {name: min(one[name] for one in tried) for name in tried[0]}

    async def commands_of_one() -> dict[str, int]:
        before = await redis_client.info("commandstats")
        await scrape(client)
        after = await redis_client.info("commandstats")
        calls = {name: stats["calls"] - before.get(name, {"calls": 0})["calls"] for name, stats in after.items()}
        return {name: calls.get(f"cmdstat_{name}", 0) for name in ("hlen", "zcard", "hscan", "zrange", "hmget")}

    empty = await commands()
    await insert(client, range(300))
    assert await commands() == empty
