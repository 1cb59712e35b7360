"""The replay buffer over HTTP: what goes in comes out, who holds what, and what operators see."""

import asyncio
import json
import re
from typing import Any

import httpx
import numpy as np
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from lachesis.wire import blob
from lachesis.wire.frame import frame, split
from lachesis.wire.groups import SAFETENSORS
from tests.api.conftest import Start
from tests.api.native_groups import BINARY, blobs_of
from tests.api.replay.calls import REPLAY, RUN, end, in_binary, in_json, insert, make_buffer, state, take, tensors_of
from tests.waiting import wait_until

AS_BINARY = {"Accept": SAFETENSORS}


async def test_a_buffer_is_set_up_changed_while_used_and_set_up_again(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_chunks=8, max_reuse=2)
    limiter = {"samples_per_insert": 2, "min_diff": 0, "max_diff": 8}
    reply = await client.patch(REPLAY, json={"max_reuse": None, "limiter": limiter, "sampling": {"strategy": "fifo"}})
    settings = reply.json()["settings"]
    assert (settings["max_chunks"], settings["max_reuse"], settings["limiter"]) == (8, None, limiter)
    assert settings["sampling"]["strategy"] == "fifo"
    assert (await state(client))["settings"] == settings
    again = (await client.put(REPLAY, json={})).json()["settings"]
    assert (again["max_chunks"], again["limiter"], again["sampling"]["strategy"]) == (10_000, None, "uniform")


async def test_if_absent_leaves_an_existing_buffer_as_it_is(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_chunks=8)
    await insert(client, [0, 1])
    if_absent = {"if_absent": "true"}
    kept = (await client.put(REPLAY, json={"max_chunks": 1, "groups": True}, params=if_absent)).json()
    assert (kept["settings"]["max_chunks"], kept["settings"]["groups"], kept["sampleable_chunks"]) == (8, False, 2)
    assert kept["filled_share"] == 0.25
    assert (await client.put(REPLAY, json={"max_chunks": 0}, params=if_absent)).status_code == 422
    await client.delete(REPLAY)
    made = (await client.put(REPLAY, json={"max_chunks": 7}, params=if_absent)).json()
    assert (made["settings"]["max_chunks"], made["sampleable_chunks"]) == (7, 0)


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


async def test_a_trainer_waits_for_chunks_and_learns_what_it_waits_for(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    reply = await client.post(f"{REPLAY}/samples", params={"wait_s": 0.05}, json={"num_chunks": 2})
    assert (reply.status_code, reply.content) == (204, b"")
    assert reply.headers["lachesis-waiting"].startswith("chunks: sampling 2 needs 2 sampleable chunks, 0 are there")
    waiting = asyncio.create_task(take(client, wait_s=20, num_chunks=2))
    await insert(client, [0])
    await insert(client, [1])
    assert sorted(record["number"] for record in (await waiting)["records"]) == [0, 1]


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


async def listed(client: httpx.AsyncClient, limit: int, **asked: Any) -> list[dict[str, Any]]:
    """Look at all chunks, page by page."""
    chunks: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while cursor.get("cursor", "") is not None:
        page = (await client.get(f"{REPLAY}/chunks", params={"limit": limit, **asked, **cursor})).json()
        assert len(page["chunks"]) <= limit
        cursor = {"cursor": page["cursor"]}
        chunks += page["chunks"]
    return chunks


async def test_chunks_are_listed_sorted_filtered_and_retired(
    client: httpx.AsyncClient,
) -> None:
    await make_buffer(client, fragments_per_chunk=2)
    await insert(client, range(4), "a")
    await insert(client, range(6), "b", reward=1)
    pages = await listed(client, limit=2, descending=True)
    assert [one["chunk"] for one in pages] == [5, 4, 3, 2, 1]
    assert [len(one["fragments"]) for one in pages] == [2] * 5
    of_a = (await client.get(f"{REPLAY}/chunks", params={"worker": "a"})).json()["chunks"]
    assert [(one["worker"], one["first"]) for one in of_a] == [("a", 0), ("a", 2)]
    assert (await client.delete(f"{REPLAY}/chunks", params={"worker": "a", "session": 1})).json()["retired_chunks"] == 0
    assert (await client.delete(f"{REPLAY}/chunks", params={"worker": "a"})).json()["retired_chunks"] == 2
    assert (await client.delete(f"{REPLAY}/chunks")).json()["retired_chunks"] == 3
    seen = await state(client)
    assert (seen["sampleable_chunks"], seen["chunk_bytes"], seen["retired_chunks"]) == (0, 0, {"deleted": 5})


async def test_chunks_of_every_place_come_in_the_order_asked_for_or_it_is_refused(client: httpx.AsyncClient) -> None:
    """A page has no more chunks than it may, wherever they are."""
    await make_buffer(client, fragments_per_chunk=1, max_reuse=1)
    await client.put(f"{RUN}/policy-version", json={"policy_version": 30})
    for number in range(30):
        await insert(client, [number], policy_version=number * 7 % 30)
    await take(client, num_chunks=30)
    reserved = await listed(client, limit=7, place="reserved", sort="versions", descending=True)
    assert [chunk["version"] for chunk in reserved] == list(range(29, -1, -1))
    assert [chunk["version"] for chunk in await listed(client, limit=7, place="reserved")] == list(range(30))
    await client.put(f"{REPLAY}/session", json={"session": 1})
    archived = await listed(client, limit=7, place="archived", descending=True)
    assert [chunk["chunk"] for chunk in archived] == list(range(30, 0, -1))
    for place, asked in (
        ("reserved", {"sort": "uses"}),
        ("archived", {"sort": "versions"}),
        ("stale", {"descending": True}),
    ):
        refused = await client.get(f"{REPLAY}/chunks", params={"place": place, **asked})
        assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, ["query", *asked])


async def test_a_grid_shows_age_uses_and_priority(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_reuse=2, max_staleness=None)
    empty = (await client.get(f"{REPLAY}/grid")).json()
    assert (empty["chunks"], empty["looked_at"], empty["counts"]) == (0, 0, [])
    await insert(client, range(3), priority=2.0)
    await client.put(f"{RUN}/policy-version", json={"policy_version": 3})
    await insert(client, [3], policy_version=3, priority=4.0)
    for _ in range(2):  # the oldest chunk is used once, and then reserved
        sample = await take(client, num_chunks=1, strategy="fifo")
        await end(client, sample)
    found = (await client.get(f"{REPLAY}/grid")).json()
    assert (found["chunks"], found["looked_at"]) == (3, 3)
    assert (found["age_edges"], found["uses_edges"]) == ([0, 1, 2, 3, 4], [0, 1])
    assert found["counts"] == [[1, 0, 0, 2]]
    assert found["mean_priorities"] == [[4.0, None, None, 2.0]]
    held = await take(client, num_chunks=1, strategy="fifo")
    await end(client, held)
    await take(client, num_chunks=1, strategy="fifo")
    found = (await client.get(f"{REPLAY}/grid")).json()
    assert (found["chunks"], found["uses_edges"]) == (3, [0, 1, 2]), "a reserved chunk counts"
    assert [sum(row) for row in found["counts"]] == [2, 1]
    assert (await client.get("/v1/runs/none/replay/grid")).status_code == 404


async def test_a_grid_of_a_large_buffer_looks_at_a_part_of_it(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_chunks=10_000)
    for first in range(0, 2400, 800):
        await insert(client, range(first, first + 800))
    found = (await client.get(f"{REPLAY}/grid")).json()
    assert found["chunks"] == 2400
    assert 1000 <= found["looked_at"] <= 2000
    assert sum(map(sum, found["counts"])) == found["looked_at"]


async def test_a_new_session_retires_what_there_is_and_old_numbers_begin_again(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    await insert(client, [0, 1])
    assert (await client.put(f"{REPLAY}/session", json={"session": 1})).json() == {"session": 1, "retired_chunks": 2}
    assert (await insert(client, [2]))[0]["status"] == "old_session"
    assert (await insert(client, [0], session=2))[0]["status"] == "future_session"
    assert (await insert(client, [0], session=1))[0]["status"] == "stored"
    archived = (await client.get(f"{REPLAY}/chunks", params={"place": "archived"})).json()["chunks"]
    assert [one["session"] for one in archived] == [0, 0]
    seen = await state(client)
    assert (seen["session"], seen["sampleable_chunks"], seen["archived_chunks"]) == (1, 1, 2)
    back = await client.put(f"{REPLAY}/session", json={"session": 0})
    assert (back.status_code, back.json()["errors"][0]["loc"]) == (422, ["session"])


async def test_snapshots_are_taken_listed_restored_and_released(client: httpx.AsyncClient) -> None:
    await make_buffer(client, limiter={"samples_per_insert": 2, "min_diff": -8, "max_diff": 8})
    await insert(client, [0, 1])
    sample = await take(client, num_chunks=1)
    reply = await client.post(f"{REPLAY}/snapshots", json={"name": "step-1"})
    expected = {"name": "step-1", "taken_age_s": 0.0, "policy_version": 0, "session": 0, "chunks": 2}
    expected |= {"chunk_bytes": len(in_binary(0)) + len(in_binary(1)), "inserts": 2, "samples": 1, "limiter_error": 3.0}
    assert (reply.status_code, reply.json()) == (201, expected)
    await client.delete(f"{REPLAY}/chunks")
    named = (await client.post(f"{REPLAY}/snapshots", json={})).json()["name"]
    there = (await client.get(f"{REPLAY}/snapshots")).json()["snapshots"]
    assert [(one["name"], one["chunks"]) for one in there] == [("step-1", 2), (named, 0)]
    reply = await client.post(f"{REPLAY}/restore", json={"name": "step-1"})
    assert (reply.json()["sampleable_chunks"], reply.json()["limiter"]["error"]) == (2, 4.0)
    late = await end(client, sample)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    assert (await client.delete(f"{REPLAY}/snapshots/step-1")).status_code == 204
    again = await client.delete(f"{REPLAY}/snapshots/step-1")
    assert (again.status_code, again.json()["code"]) == (404, "snapshot_not_found")
    for wrong in ({"name": "a b"}, {"name": ""}, {"called": "a"}):
        assert (await client.post(f"{REPLAY}/snapshots", json=wrong)).status_code == 422
    assert (await client.put(REPLAY, json={"keep_snapshots": 5})).status_code == 422


async def test_a_buffer_that_is_removed_is_not_there_and_may_be_made_again(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_chunks=7)
    await insert(client, [0])
    sample = await take(client, num_chunks=1)
    assert (await client.delete(REPLAY)).status_code == 204
    late = await end(client, sample)
    assert (late.status_code, late.json()["code"]) == (404, "replay_not_found")
    assert (await client.delete(REPLAY)).status_code == 404
    assert (await client.get(RUN)).status_code == 200
    await make_buffer(client)
    assert [receipt["status"] for receipt in await insert(client, [0])] == ["stored"]
    assert (await state(client))["settings"]["max_chunks"] == 10_000


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


async def test_a_buffer_of_groups_has_chunks_of_one_fragment(client: httpx.AsyncClient) -> None:
    await make_buffer(client, groups=True)
    for reply in (
        await client.patch(REPLAY, json={"fragments_per_chunk": 2}),
        await client.put(REPLAY, json={"groups": True, "fragments_per_chunk": 4}),
    ):
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field")
        assert reply.json()["errors"][0]["loc"] == ["fragments_per_chunk"]
    assert (await state(client))["settings"]["fragments_per_chunk"] == 1
