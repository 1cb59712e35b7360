"""Batches with groups from the replay buffer over HTTP: what is said of each, and to whom."""

import json
from typing import Any

import httpx
import pytest

from tests.api.native_groups import blobs_of
from tests.api.replay.calls import AS_BINARY, REPLAY, RUN


async def submit(client: httpx.AsyncClient, *ids: str) -> None:
    one = {"tokens": [[1, 2], [1, 3, 4]], "masks": [[-100, 2], [-100, 3, 4]], "scores": [1.0, 0.0], "policy_version": 0}
    reply = await client.post(f"{RUN}/groups", json={"groups": [{"id": group_id, **one} for group_id in ids]})
    assert reply.status_code == 201, reply.text


async def end(client: httpx.AsyncClient, batch: dict[str, Any], **said: Any) -> None:
    reply = await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"], **said})
    assert reply.status_code == 200, reply.text


@pytest.fixture
async def mixed(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A run with batches of two groups, one of them fresh, two groups in its buffer, and one in its queue."""
    assert (await client.post("/v1/runs", json={"name": "r", "batch_size": 4})).status_code == 201
    assert (await client.put(REPLAY, json={"groups": True, "max_reuse": 2})).status_code == 200
    await submit(client, "old1", "old2")
    await end(client, (await client.post(f"{RUN}/batches", json={})).json())
    reply = await client.patch(RUN, json={"fresh_fraction": 0.5})
    assert (reply.status_code, reply.json()["fresh_fraction"]) == (200, 0.5)
    await submit(client, "new")
    return client


async def test_a_batch_says_which_groups_are_replayed_and_how_they_came_in(mixed: httpx.AsyncClient) -> None:
    assert (await mixed.get(f"{RUN}/batches/explain")).json()["ready"]
    reply = await mixed.post(f"{RUN}/batches", json={"request_id": "a"}, headers=AS_BINARY)
    said, payloads = blobs_of(reply.content)
    batch = json.loads(said["batch"])
    new, old = batch["groups"]
    assert (new["id"], "replayed" in new, old["id"] in ("old1", "old2"), len(payloads)) == ("new", False, True, 2)
    chunk = old["replayed"].pop("chunk")
    assert old["replayed"] == {"uses": 0, "probability": 0.5, "importance_weight": 1.0}
    assert (old["size"], batch["batch_size"]) == (2, 4)
    (listed,) = (await mixed.get(f"{RUN}/batches")).json()["batches"]
    assert (listed["groups"], listed["replayed_groups"], listed["size"]) == (2, 1, 4)
    again = (await mixed.post(f"{RUN}/batches", json={"request_id": "a"})).json()
    assert [group["id"] for group in again["groups"]] == [new["id"], old["id"]]
    assert again["groups"][1]["replayed"]["chunk"] == chunk
    await end(mixed, batch)
    chunks = (await mixed.get(f"{REPLAY}/chunks")).json()["chunks"]
    assert {one["chunk"]: one["uses"] for one in chunks if one["uses"]} == {chunk: 1}


async def test_ranks_share_what_is_fresh_and_what_is_replayed(mixed: httpx.AsyncClient) -> None:
    shards = []
    for rank in range(2):
        reply = await mixed.post(f"{RUN}/batches", params={"rank": rank, "world_size": 2}, json={})
        assert reply.status_code == 201, reply.text
        shards.append(reply.json())
    assert shards[0]["batch"] == shards[1]["batch"]
    groups = [group for shard in shards for group in shard["groups"]]
    assert sum(group["size"] for group in groups) == 4
    assert any(group.get("replayed") for group in groups)
    assert any(group["id"] == "new" for group in groups)
    for rank, shard in enumerate(shards):
        await end(mixed, shard, rank=rank)
    state = (await mixed.get(REPLAY)).json()
    assert (state["samples_held"], state["uses"]) == (0, {"0": 2, "1": 1})


async def test_a_change_to_a_fresh_fraction_without_a_buffer_of_groups_is_refused(client: httpx.AsyncClient) -> None:
    half = {"fresh_fraction": 0.5}
    assert (await client.post("/v1/runs", json={"name": "r", "batch_size": 4})).status_code == 201
    refused = [await client.patch(RUN, json=half)]
    assert (await client.put(REPLAY, json={})).status_code == 200
    refused.append(await client.patch(RUN, json=half))
    refused += [await client.patch(RUN, json={"fresh_fraction": value}) for value in (0, 1.5)]
    for reply in refused:
        assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["fresh_fraction"])


async def test_a_new_run_with_a_fresh_fraction_gets_its_buffer_afterwards(client: httpx.AsyncClient) -> None:
    new = {"name": "r", "batch_size": 4, "fresh_fraction": 0.5}
    assert (await client.post("/v1/runs", json=new)).status_code == 201
    assert "no replay buffer takes groups" in (await client.get(f"{RUN}/batches/explain")).json()["detail"]
    (wrong,) = (await client.put(REPLAY, json={})).json()["errors"]
    assert wrong["loc"] == ["groups"]
    assert (await client.put(REPLAY, json={"groups": True})).status_code == 200
    assert "no replay buffer" not in (await client.get(f"{RUN}/batches/explain")).json()["detail"]


async def test_a_buffer_that_batches_are_filled_up_from_goes_on_to_take_groups(mixed: httpx.AsyncClient) -> None:
    refused = [await mixed.put(REPLAY, json={"max_chunks": 5}), await mixed.patch(REPLAY, json={"groups": False})]
    for reply in refused:
        (wrong,) = reply.json()["errors"]
        assert (reply.status_code, wrong["loc"]) == (422, ["groups"])
        assert "`fresh_fraction` is 0.5" in wrong["msg"]
    kept = (await mixed.get(REPLAY)).json()
    assert (kept["settings"]["groups"], kept["settings"]["max_reuse"]) == (True, 2)
    assert (await mixed.patch(REPLAY, json={"max_reuse": 3})).status_code == 200
    assert (await mixed.patch(RUN, json={"fresh_fraction": 1.0})).status_code == 200
    assert (await mixed.patch(REPLAY, json={"groups": False})).status_code == 200


async def test_without_its_buffer_a_run_has_fresh_batches_alone_and_says_so(mixed: httpx.AsyncClient) -> None:
    filling = "no replay buffer takes groups to fill batches up"
    assert (await mixed.get(f"{RUN}/batches/explain", params={"batch_size": 8})).json()["detail"].count(filling) == 0
    assert (await mixed.delete(REPLAY)).status_code == 204
    why = (await mixed.get(f"{RUN}/batches/explain")).json()
    assert (why["ready"], why["missing_sequences"], filling in why["detail"]) == (False, 2, True)
    assert (await mixed.put(REPLAY, json={})).json()["errors"][0]["loc"] == ["groups"]
    await submit(mixed, "newer")
    batch = (await mixed.post(f"{RUN}/batches", json={})).json()
    assert [group["id"] for group in batch["groups"]] == ["new", "newer"]


async def test_ranks_get_fresh_groups_if_replayed_ones_exceed_micro_batches(
    mixed: httpx.AsyncClient,
) -> None:
    """What was trained on under other settings is no reason to refuse batches that would form without it."""
    short = {"tokens": [[1], [1]], "masks": [[1], [1]], "scores": [1.0, 0.0], "policy_version": 0}
    groups = [{"id": f"short{n}", **short} for n in range(3)]
    await end(mixed, (await mixed.post(f"{RUN}/batches", json={})).json())
    assert (await mixed.post(f"{RUN}/groups", json={"groups": groups})).status_code == 201
    reply = await mixed.post(f"{RUN}/batches", params={"rank": 0, "world_size": 1, "micro_batch_tokens": 2})
    assert reply.status_code == 201, reply.text
    assert [group["id"] for group in reply.json()["groups"]] == ["short0", "short1"]
