"""The same group in JSON and in binary: stored with one meaning, handed out exactly, refused with the place."""

import asyncio
import json
import uuid
from typing import Any

import httpx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from app.api.codec import batch
from app.api.codec.group_blob import decode_blobs
from app.api.codec.group_json import decode_native_json
from app.store.groups.encoded_group import EncodedGroup
from app.store.redis.keys import RUNS, RunKeys
from lachesis.wire.frame import frame
from lachesis.wire.groups import MAX_GROUPS, SAFETENSORS
from tests.api.bodies import FIELDS, exact
from tests.api.conftest import running_service
from tests.api.native_groups import BINARY, blobs_of, comparable, in_binary, in_json, meaning_in_binary, native_groups
from tests.clients.batches.replies import info_of
from tests.properties import examples


def meaning(encoded: EncodedGroup) -> tuple[Any, ...]:
    stored = meaning_in_binary(encoded.payload)
    assert stored["id"] == encoded.given_id
    return comparable(stored), encoded.size, encoded.environment, encoded.policy_version, encoded.given_id


@given(native_groups(), st.booleans())
def test_a_group_means_the_same_in_json_and_in_binary(group: dict[str, Any], spelled_out: bool) -> None:
    group["id"] = "g"
    (from_json,) = decode_native_json(json.dumps(in_json(group)).encode())
    (from_binary,) = decode_blobs(in_binary(group, spelled_out=spelled_out))
    assert meaning(from_json) == meaning(from_binary)
    assert meaning(from_json)[0] == comparable(group)


@given(st.lists(native_groups(), min_size=1, max_size=4))
def test_many_groups_mean_what_each_means(several: list[dict[str, Any]]) -> None:
    for position, group in enumerate(several):
        group["id"] = f"g{position}"
    from_json = decode_native_json(json.dumps({"groups": list(map(in_json, several))}).encode())
    from_binary = decode_blobs(frame(list(map(in_binary, several)), "groups"))
    assert [meaning(one)[0] for one in from_json] == list(map(comparable, several))
    assert list(map(meaning, from_binary)) == list(map(meaning, from_json))


@given(native_groups())
def test_a_group_without_an_id_gets_one_and_stays_what_it_is(group: dict[str, Any]) -> None:
    for encoded in (*decode_native_json(json.dumps(in_json(group)).encode()), *decode_blobs(in_binary(group))):
        assert uuid.UUID(encoded.given_id)
        stored = meaning_in_binary(encoded.payload)
        assert stored.pop("id") == encoded.given_id
        assert comparable(stored) == comparable(group)


@examples(20)
@given(st.lists(native_groups(), min_size=1, max_size=4))
def test_groups_come_back_as_they_went_in_in_every_format(redis_url: str, several: list[dict[str, Any]]) -> None:
    asyncio.run(_there_and_back(redis_url, several))


async def _there_and_back(redis_url: str, several: list[dict[str, Any]]) -> None:
    for position, group in enumerate(several):
        group["id"] = f"g{position}"
    sequences = sum(len(group["tokens"]) for group in several)
    expected = list(map(comparable, several))
    async with running_service(redis_url) as client:
        for sent in ("json", "binary"):
            for asked in ("json", "binary", "atropos"):
                run = await made_run(client, sequences)
                if sent == "json":
                    reply = await client.post(f"/v1/runs/{run}/groups", json={"groups": list(map(in_json, several))})
                else:
                    body = frame(list(map(in_binary, several)), "groups")
                    reply = await client.post(f"/v1/runs/{run}/groups", content=body, headers=BINARY)
                assert reply.status_code == 201, reply.text
                if asked == "atropos":
                    groups = (await client.get(f"/runs/{run}/atropos/batch")).json()["batch"]
                    assert list(map(exact, groups)) == list(map(exact, map(as_atropos, several)))
                    continue
                accept = SAFETENSORS if asked == "binary" else "application/json"
                taken = await client.post(f"/v1/runs/{run}/batches", headers={"Accept": accept})
                assert taken.status_code == 201, taken.text
                read = read_binary(taken.content) if asked == "binary" else read_json(taken.content)
                assert list(map(comparable, read)) == expected
                await client.delete(f"/v1/runs/{run}")


async def made_run(client: httpx.AsyncClient, batch_size: int) -> str:
    """Make a run with an environment, 0, in which any policy version is in force."""
    run = f"r{uuid.uuid4().hex}"
    assert (await client.post("/v1/runs", json={"name": run, "batch_size": batch_size})).status_code == 201
    version = {"policy_version": 2**53 - 1}
    assert (await client.put(f"/v1/runs/{run}/policy-version", json=version)).status_code == 200
    assert (await client.post(f"/v1/runs/{run}/environments", json={"name": "math"})).status_code == 201
    return run


def as_atropos(group: dict[str, Any]) -> dict[str, Any]:
    """The group's 14 fields of ``ScoredData``, null where it has none."""
    return {name: group.get(name) for name in FIELDS} | {"env_id": group.get("environment")}


def read_binary(content: bytes) -> list[dict[str, Any]]:
    metadata, blobs = blobs_of(content)
    described = json.loads(metadata["batch"])["groups"]
    read = list(map(meaning_in_binary, blobs))
    assert [group["id"] for group in described] == [group["id"] for group in read]
    return read


def read_json(content: bytes) -> list[dict[str, Any]]:
    """The groups of a batch in JSON without what only describes them. What a group has not is left out."""
    groups = json.loads(content, parse_constant=float.fromhex)["groups"]
    assert not [
        name for group in groups for name in group if name == "env_id" or (name in FIELDS and group[name] is None)
    ]
    about = ("environment_name", "size", "staleness", "received_age_s")
    return [{n: v for n, v in group.items() if n not in about and v is not None} for group in groups]


async def test_as_many_groups_as_one_request_may_hold_are_stored_with_it(client: httpx.AsyncClient) -> None:
    run, count = await made_run(client, 1), MAX_GROUPS
    blobs = [in_binary({"tokens": [[1]], "masks": [[1]], "scores": [0.5], "id": f"g{n}"}) for n in range(count)]
    reply = await client.post(f"/v1/runs/{run}/groups", content=frame(blobs, "groups"), headers=BINARY)
    assert reply.status_code == 201, reply.text
    assert [receipt["id"] for receipt in reply.json()["groups"]] == [f"g{n}" for n in range(count)]
    status = (await client.get(f"/v1/runs/{run}/status")).json()
    assert status["groups"]["accepted"] == status["groups"]["queued"] == count


async def test_a_batch_of_many_tensors_is_laid_out_beside_the_event_loop() -> None:
    """On the event loop it would delay all other answers: by 0.7 s for a thousand groups with sixty arrays each."""
    group = {"tokens": [[1]], "masks": [[1]], "scores": [0.5], "tensors": {f"x{n}": np.zeros(2) for n in range(100)}}
    blobs = [in_binary(group)] * 100
    turns = []
    for several in (blobs[:1], blobs):
        laying_out = asyncio.create_task(batch.batch_in_binary(info_of(several), several, compact=True))
        turns.append(0)
        while not laying_out.done():
            await asyncio.sleep(0)
            turns[-1] += 1
        assert blobs_of(b"".join(laying_out.result()))[1] == several
    assert turns[0] == 1
    assert turns[1] > 1


async def test_a_group_of_a_run_that_is_not_there_leaves_nothing(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    group = {"tokens": [[1]], "masks": [[1]], "scores": [0.5]}
    for body in (group, {"groups": [group]}, {"groups": []}):
        assert (await client.post("/v1/runs/nobody/groups", json=body)).status_code in (404, 422)
    assert not [key async for key in redis_client.scan_iter(f"*{RunKeys('nobody').name}*")]
    assert not await redis_client.exists(RUNS)
