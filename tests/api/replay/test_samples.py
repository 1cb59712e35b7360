"""The samples of a replay buffer over HTTP: who holds what, and who waits."""

import asyncio
import json

import httpx
import numpy as np
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from lachesis.wire.frame import frame, split
from lachesis.wire.groups import SAFETENSORS
from tests.api.conftest import Start
from tests.api.native_groups import BINARY, blobs_of
from tests.api.replay.calls import AS_BINARY, REPLAY, RUN, end, in_binary, insert, make_buffer, state, take
from tests.waiting import wait_until


async def test_a_sample_is_held_until_it_ends_or_its_lease_expires(
    client: httpx.AsyncClient,
) -> None:
    await make_buffer(client, max_reuse=1)
    await insert(client, [0])
    sample = await take(client, num_chunks=1, lease_s=60)
    assert 59 < sample["lease_s"] <= 60
    assert (await client.post(f"{REPLAY}/samples", json={"num_chunks": 1})).status_code == 204
    shown = await client.get(f"{REPLAY}/samples/{sample['sample']}")
    assert shown.json()["records"] == sample["records"]
    longer = await end(client, sample, "extend", lease_s=100)
    assert longer.json() == {"sample": sample["sample"], "state": "held", "lease_s": 100}
    assert (await end(client, sample, "nack", reason="out of memory")).json()["state"] == "given_back"
    assert (await state(client))["limiter"]["samples"] == 0
    again = await take(client, num_chunks=1, lease_s=0.01)
    assert again["records"][0]["uses"] == 0
    last = await take(client, wait_s=10, num_chunks=1)
    for _ in range(2):  # its answer may have been lost
        assert (await end(client, last)).json()["state"] == "acknowledged"
    late = await end(client, again)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    gone = await client.get(f"{REPLAY}/samples/{last['sample']}")
    assert (gone.status_code, gone.json()["code"]) == (404, "sample_not_found")
    seen = await state(client)
    assert (seen["avg_reuse"], seen["sampleable_chunks"], seen["samples_held"]) == (1, 0, 0)


async def test_a_request_that_is_repeated_gets_the_same_sample(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    await insert(client, range(8))
    first = await take(client, num_chunks=2, request_id="step-1")
    again = await take(client, num_chunks=2, request_id="step-1")
    assert (again["sample"], again["lease"], again["records"]) == (first["sample"], first["lease"], first["records"])
    assert (await state(client))["samples_held"] == 1


async def test_a_request_makes_the_lease_of_a_sample_longer_and_never_shorter(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    await insert(client, range(8))
    first = await take(client, num_chunks=2, request_id="step-1", lease_s=600)
    assert 500 < (await end(client, first, "extend", lease_s=60)).json()["lease_s"] <= 600
    shorter = await take(client, num_chunks=2, request_id="step-1", lease_s=20)
    assert shorter["lease"] == first["lease"]
    assert 500 < shorter["lease_s"] <= 600
    assert (await end(client, first, "extend", lease_s=700)).json()["lease_s"] == 700
    longer = await take(client, num_chunks=2, request_id="step-1", lease_s=800)
    assert (longer["lease"], longer["lease_s"]) == (first["lease"], 800)


async def test_a_sample_whose_reply_breaks_off_is_held_for_ten_seconds(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    blob = in_binary(0, tensors={"obs": np.zeros(8 * 1024 * 1024, np.float32)})
    assert (await client.post(f"{REPLAY}/fragments", content=blob, headers=BINARY)).status_code == 201
    asked = json.dumps({"num_chunks": 1, "request_id": "step-1", "lease_s": 600})
    head = f"POST {REPLAY}/samples HTTP/1.1\r\nHost: localhost\r\nAccept: {SAFETENSORS}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(asked)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write((head + asked).encode())
    assert b" 201 " in await reader.readuntil(b"\r\n\r\n")
    writer.close()

    async def is_shorter() -> bool:
        again = await take(client, num_chunks=1, request_id="step-1", lease_s=1)
        return again["lease_s"] <= 10

    await wait_until(is_shorter)


@pytest.mark.parametrize("strategy", ["uniform", "fifo", "proportional"])
async def test_simultaneous_requests_of_one_id_get_one_sample_from_any_process(start: Start, strategy: str) -> None:
    """The store recognises the request: a process recognises it even if another process served it first."""
    processes = [await start() for _ in range(3)]
    await make_buffer(processes[0], max_reuse=2, sampling={"strategy": strategy})
    await insert(processes[0], range(60))
    for step in range(30):
        asked = {"num_chunks": 2, "request_id": f"step-{step}"}
        taken = await asyncio.gather(*(take(process, **asked) for process in (*processes, processes[0])))
        told = {(one["sample"], one["lease"], str(one["records"])) for one in taken}
        assert len(told) == 1
        assert (await state(processes[1]))["samples_held"] == 1
        (sample, lease, _), *_ = told
        reply = await processes[2].post(f"{REPLAY}/samples/{sample}/nack", json={"lease": lease})
        assert reply.status_code == 200, reply.text


async def test_simultaneous_requests_of_one_id_share_the_last_chunk(start: Start) -> None:
    processes = [await start() for _ in range(3)]
    await make_buffer(processes[0], max_reuse=1)
    for number in range(20):
        await insert(processes[0], [number])
        asked = {"num_chunks": 1, "request_id": "always-the-same"}
        taken = await asyncio.gather(*(take(process, **asked) for process in processes))
        assert len({one["sample"] for one in taken}) == 1
        reply = await processes[2].post(f"{REPLAY}/samples/{taken[0]['sample']}/ack", json={"lease": taken[0]["lease"]})
        assert reply.status_code == 200, reply.text


async def test_a_request_whose_sample_ran_out_takes_another_one(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await make_buffer(client, max_reuse=1)
    await insert(client, [0])
    first = await take(client, num_chunks=1, request_id="step-1", lease_s=30)
    await redis_client.hincrby(RunKeys("r").run, "clock_ms", 31_000)  # type: ignore[misc]
    again = await take(client, num_chunks=1, request_id="step-1")
    assert again["sample"] != first["sample"]
    reply = await client.post(f"{REPLAY}/samples/{first['sample']}/ack", json={"lease": first["lease"]})
    assert (reply.status_code, reply.json()["code"]) == (409, "lease_lost")


async def test_a_trainer_waits_for_chunks_and_learns_what_it_waits_for(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    reply = await client.post(f"{REPLAY}/samples", params={"wait_s": 0.05}, json={"num_chunks": 2})
    assert (reply.status_code, reply.content) == (204, b"")
    assert reply.headers["lachesis-waiting"].startswith("chunks: sampling 2 needs 2 chunks; 0 can be sampled")
    waiting = asyncio.create_task(take(client, wait_s=20, num_chunks=2))
    await insert(client, [0])
    await insert(client, [1])
    assert sorted(record["number"] for record in (await waiting)["records"]) == [0, 1]


@pytest.mark.parametrize(
    ("min_diff", "max_diff", "left", "wanted", "at_once"), [(-5, 5, 5, 8, 1), (-5, 5, 5, 8, 5), (1, 11, 8, 8, 4)]
)
async def test_a_polling_trainer_and_a_polling_worker_do_not_block_each_other(
    client: httpx.AsyncClient, min_diff: int, max_diff: int, left: int, wanted: int, at_once: int
) -> None:
    """There are too few chunks for the sample, or too few inserts: either way it frees inserts."""
    await make_buffer(client, limiter={"samples_per_insert": 1, "min_diff": min_diff, "max_diff": max_diff})
    await insert(client, range(left))
    for number in range(left, left + 8, at_once):
        reply = await client.post(f"{REPLAY}/samples", json={"num_chunks": wanted})
        if reply.status_code == 201:
            return
        body = frame([in_binary(each) for each in range(number, number + at_once)], "fragments")
        sent = await client.post(f"{REPLAY}/fragments", content=body, headers=BINARY)
        assert sent.status_code == 201, "the trainer has been told to wait, and so is the worker"
    assert (await client.post(f"{REPLAY}/samples", json={"num_chunks": wanted})).status_code == 201


async def test_priorities_weigh_samples_and_missing_chunks_are_named(
    client: httpx.AsyncClient,
) -> None:
    await make_buffer(client, sampling={"strategy": "proportional", "alpha": 1, "beta": 1})
    await insert(client, [0, 1, 2], priority=1.0)
    reply = await client.patch(f"{REPLAY}/priorities", json={"priorities": {"1": 8, "2": 0.5, "3": 0.5, "99": 1}})
    assert reply.json() == {"updated": 3, "missing": [99]}
    sample = await take(client, num_chunks=3)
    by_chunk = {record["chunk"]: record for record in sample["records"]}
    assert [by_chunk[chunk]["probability"] for chunk in (1, 2, 3)] == pytest.approx([8 / 9, 0.5 / 9, 0.5 / 9], rel=1e-3)
    assert by_chunk[1]["importance_weight"] == pytest.approx(1 / 16, rel=1e-3)
    assert by_chunk[2]["importance_weight"] == 1


async def test_trained_groups_are_sampled_unchanged_until_used_up(
    client: httpx.AsyncClient,
) -> None:
    await make_buffer(client, groups=True, max_reuse=2, sampling={"strategy": "fifo"})
    await client.post(f"{RUN}/environments", json={"name": "math", "group_size": 1})
    sent = {
        "id": "g1",
        "environment": 0,
        "tokens": [[1, 2, 3]],
        "masks": [[-100, 2, 3]],
        "scores": [0.5],
        "policy_versions": [[0, 0, 0]],
        "cost": 7.0,
    }
    assert (await client.post(f"{RUN}/groups", json=sent)).status_code == 201
    assert (await client.post(f"{REPLAY}/samples", json={"num_chunks": 1})).status_code == 204
    reply = await client.post(f"{RUN}/batches", json={"request_id": "step-1"}, headers=AS_BINARY)
    said, (handed_out,) = blobs_of(reply.content)
    batch = json.loads(said["batch"])
    reply = await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})
    assert reply.status_code == 200, reply.text
    for uses in range(2):
        reply = await client.post(f"{REPLAY}/samples", json={"num_chunks": 1}, headers=AS_BINARY)
        said, (payload,) = split(reply.content)
        assert bytes(payload) == handed_out
        sample = json.loads(said["sample"])
        (record,) = sample["records"]
        assert (record["group"], record["environment"], record["worker"]) == ("g1", 0, "@environment/0")
        assert (record["reward"], record["cost"], record["uses"], record["version"]) == (0.5, 7, uses, 0)
        assert (await client.get(f"{REPLAY}/fragments/{record['fragment']}")).content == handed_out
        assert (await end(client, sample)).status_code == 200
    assert (await client.post(f"{REPLAY}/samples", json={"num_chunks": 1})).status_code == 204
    assert (await state(client))["retired_chunks"] == {"used_up": 1}
    assert (await client.get(f"{REPLAY}/fragments/{record['fragment']}")).status_code == 404
