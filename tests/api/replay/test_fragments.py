"""The fragments of a replay buffer over HTTP: what goes in comes out, and what holds workers back."""

import asyncio
import json
import re
from typing import Any

import httpx
import numpy as np
import pytest

from lachesis.wire import blob
from lachesis.wire.frame import frame, split
from tests.api.conftest import Start
from tests.api.native_groups import BINARY
from tests.api.replay.calls import (
    AS_BINARY,
    REPLAY,
    RUN,
    end,
    in_binary,
    in_json,
    insert,
    make_buffer,
    state,
    take,
    tensors_of,
)
from tests.waiting import wait_until


@pytest.mark.parametrize("sent", ["json", "binary"])
async def test_fragments_come_back_bit_for_bit_however_they_came(client: httpx.AsyncClient, sent: str) -> None:
    await make_buffer(client, fragments_per_chunk=2, sampling={"strategy": "fifo"})
    facts = {"episodes": ["e1", "e2"], "reward": -0.5, "cost": 2.0, "metadata": {"seed": [1, None]}}
    if sent == "json":
        body = {"fragments": [in_json(number, **facts) for number in range(2)]}
        reply = await client.post(f"{REPLAY}/fragments", json=body)
    else:
        body = frame([in_binary(number, **facts) for number in range(2)], "fragments")
        reply = await client.post(f"{REPLAY}/fragments", content=body, headers=BINARY)
    assert reply.status_code == 201, reply.text
    receipts = reply.json()["fragments"]
    assert [(one["number"], one["status"]) for one in receipts] == [(0, "stored"), (1, "stored")]
    reply = await client.post(f"{REPLAY}/samples", json={"num_fragments": 2}, headers=AS_BINARY)
    metadata, blobs = split(reply.content)
    info = json.loads(metadata["sample"])
    assert reply.headers["lachesis-sample"] == info["sample"]
    for record, payload, receipt in zip(info["records"], blobs, receipts, strict=True):
        assert record["fragment"] == receipt["fragment"]
        assert {name: record[name] for name in facts} == facts
        assert (record["worker"], record["number"], record["version"], record["staleness"]) == (
            ("w", receipt["number"], 0, 0)
        )
        assert (record["probability"], record["importance_weight"], record["uses"]) == (1, 1, 0)
        held = blob.read_header(payload)
        for name, array in tensors_of(receipt["number"]).items():
            there = blob.tensor(payload, held.tensors[name])
            assert there.dtype == array.dtype
            assert np.array_equal(there, array)
        alone = await client.get(f"{REPLAY}/fragments/{receipt['fragment']}")
        assert alone.content == bytes(payload)


async def test_many_fragments_are_read_at_once_in_the_order_asked_for(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    ids = [receipt["fragment"] for receipt in await insert(client, [0, 1, 2])]
    asked = [ids[2], ids[0]]
    reply = await client.post(f"{REPLAY}/fragments/fetch", json={"fragments": asked})
    metadata, blobs = split(reply.content)
    assert [one["fragment"] for one in json.loads(metadata["fragments"])] == asked
    assert [bytes(one) for one in blobs] == [in_binary(2), in_binary(0)]
    missing = await client.post(f"{REPLAY}/fragments/fetch", json={"fragments": [ids[0], "gone"]})
    assert (missing.status_code, missing.json()["code"]) == (404, "fragment_not_found")
    assert "gone" in missing.json()["detail"]


async def test_a_repeated_fragment_is_stored_once_and_a_different_one_refused(
    client: httpx.AsyncClient,
) -> None:
    await make_buffer(client)
    (first,) = await insert(client, [0])
    reply = await client.post(f"{REPLAY}/fragments", content=in_binary(0), headers=BINARY)
    assert reply.headers["idempotent-replay"] == "true"
    assert reply.json()["fragments"][0]["status"] == "repeated"
    other = in_binary(0, tensors={"x": np.ones(1)})
    reply = await client.post(f"{REPLAY}/fragments", content=other, headers=BINARY)
    assert (reply.status_code, reply.json()["code"]) == (409, "fragment_exists")
    assert (await state(client))["accepted_fragments"] == 1
    assert first["status"] == "stored"


async def test_the_oldest_of_several_versions_counts_and_the_mean_is_shown(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    await client.put(f"{RUN}/policy-version", json={"policy_version": 9})
    versions = np.array([9, 4, 5], np.int64)
    await insert(client, [0], tensors={"x": np.ones(3), "policy_versions": versions}, policy_version=None)
    (chunk,) = (await client.get(f"{REPLAY}/chunks")).json()["chunks"]
    assert (chunk["version"], chunk["mean_version"], chunk["highest_version"]) == (4, 6, 9)
    assert (await take(client, num_chunks=1))["records"][0]["staleness"] == 5


async def test_the_oldest_chunks_go_for_newcomers_though_a_sample_holds_them(client: httpx.AsyncClient) -> None:
    """What is left to others is what nobody has used yet; the sample keeps what it holds."""
    await make_buffer(client, max_chunks=4, max_reuse=1)
    await insert(client, range(4))
    sample = await take(client, num_chunks=3, strategy="fifo")
    await insert(client, range(4, 7))
    page = (await client.get(f"{REPLAY}/chunks")).json()
    assert [chunk["first"] for chunk in page["chunks"]] == [3, 4, 5, 6]
    assert (await state(client))["retired_chunks"] == {"evicted": 3}
    assert (await end(client, sample)).status_code == 200


async def test_fresh_fragments_are_not_lost_behind_a_stale_one(client: httpx.AsyncClient) -> None:
    await make_buffer(client, fragments_per_chunk=2, max_staleness=1)
    await insert(client, [0])
    await client.put(f"{RUN}/policy-version", json={"policy_version": 2})
    assert [one["status"] for one in await insert(client, [1], policy_version=2)] == ["stored"]
    assert (await state(client))["dropped_fragments"] == {"stale": 1}
    await insert(client, [2], policy_version=2)
    sample = await take(client, num_chunks=1)
    assert [record["number"] for record in sample["records"]] == [1, 2]


async def test_a_limiter_without_an_upper_bound_blocks_no_insert(client: httpx.AsyncClient) -> None:
    """Reverb writes such a bound as the largest float."""
    await make_buffer(client, limiter={"samples_per_insert": 0.5, "min_diff": 0, "max_diff": 1.7e308})
    await insert(client, [0, 1, 2])
    assert (await state(client))["limiter"]["inserts_blocked"] is None


async def test_workers_are_held_back_by_the_limiter_and_released_by_samples(client: httpx.AsyncClient) -> None:
    await make_buffer(client, limiter={"samples_per_insert": 1, "min_diff": 0, "max_diff": 2})
    for number in range(2):
        await insert(client, [number])
    reply = await client.post(f"{REPLAY}/fragments", content=in_binary(2), headers=BINARY)
    assert (reply.status_code, reply.json()["code"]) == (429, "replay_blocked")
    assert int(reply.headers["retry-after"]) >= 1
    assert "max_diff = 2" in reply.json()["detail"]
    assert (await state(client))["limiter"]["inserts_blocked"]["blocked_on"] == "samples"
    waiting = asyncio.create_task(insert(client, [2], wait_s=20))
    await take(client, num_chunks=1)
    assert [one["status"] for one in await waiting] == ["stored"]


async def test_fragments_that_wait_keep_no_other_body_waiting_however_little_memory(start: Start) -> None:
    client = await start(body_budget_bytes=0)
    await make_buffer(client, limiter={"samples_per_insert": 1, "min_diff": 0, "max_diff": 2})
    await insert(client, [0, 1])
    large = {"big": np.zeros(2**20, np.uint8)}
    waiting = asyncio.create_task(insert(client, [2], wait_s=600, tensors=large))

    async def waits() -> bool:
        return not re.search(r"^lachesis_body_memory_bytes{.*} 0$", (await client.get("/metrics")).text, re.MULTILINE)

    await wait_until(waits)
    sent = {"headers": BINARY, "params": {"wait_s": 600}}
    nonsense: dict[str, Any] = {"content": b" " * 2**20, "headers": {"Content-Type": "application/json"}}
    async with asyncio.timeout(120):
        other = await client.post(f"{REPLAY}/fragments", content=in_binary(0, "v", large), **sent)
        assert (other.status_code, other.json()["code"]) == (429, "replay_blocked"), "no more may wait"
        assert (await client.post(f"{REPLAY}/fragments", **nonsense)).status_code == 400
    assert not waiting.done()
    await take(client, num_chunks=1)
    assert [one["status"] for one in await waiting] == ["stored"]
    assert (await client.post(f"{REPLAY}/fragments", **nonsense)).status_code == 400
