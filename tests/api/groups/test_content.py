"""The contents of a group are read exactly while it is kept, whole or in part; then the answer says why not."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from tokenizers import Tokenizer

from app.api.http.bodies.content_budget import CONTENTS_BYTES
from app.api.routes import groups as routes
from app.store.redis.keys import RunKeys
from lachesis.wire.columns import NATIVE_COLUMNS
from lachesis.wire.groups import COMPACT_SAFETENSORS, SAFETENSORS
from tests.api.conftest import Start, running_service
from tests.api.groups.test_listing import GROUPS, HOSTILE, RUN, group, made, send, take
from tests.api.groups.test_native_groups import made_run
from tests.api.native_groups import comparable, in_binary, in_json, meaning_in_binary, native_groups
from tests.properties import examples
from tests.tokenizers import END, make_tokenizer
from tests.waiting import wait_until

DESCRIBED = ("state", "size", "lengths", "sequence", "first_token", "annotations", "group_advantages", "version_ages")
BINARY = {"Accept": SAFETENSORS}
DEPTHS = {column.name: column.depth for column in NATIVE_COLUMNS}


async def content(client: httpx.AsyncClient, name: str, **query: Any) -> dict[str, Any]:
    reply = await client.get(f"{GROUPS}/{name}/content", params=query)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def bare(body: dict[str, Any]) -> dict[str, Any]:
    """The group of an answer in JSON, as it was sent."""
    return {name: value for name, value in body.items() if name not in DESCRIBED and value is not None}


@examples(30)
@given(native_groups(), st.integers(0, 3), st.integers(0, 4), st.none() | st.integers(1, 3))
def test_what_was_sent_is_read_whole_and_in_parts(
    redis_url: str, sent: dict[str, Any], sequence: int, first: int, most: int | None
) -> None:
    asyncio.run(_read(redis_url, sent | {"id": "g"}, sequence, first, most))


async def _read(redis_url: str, sent: dict[str, Any], sequence: int, first: int, most: int | None) -> None:
    size = len(sent["tokens"])
    async with running_service(redis_url) as client:
        run = await made_run(client, 1000)
        url = f"/v1/runs/{run}/groups/g/content"
        reply = await client.post(f"/v1/runs/{run}/groups", json=in_json(sent))
        assert reply.status_code == 201, reply.text
        whole = json.loads((await client.get(url)).content, parse_constant=float.fromhex)
        assert (whole["state"], whole["size"]) == ("queued", size)
        assert whole["annotations"] == {}
        assert whole["lengths"] == list(map(len, sent["tokens"]))
        assert comparable(bare(whole)) == comparable(sent)
        for accept in (SAFETENSORS, COMPACT_SAFETENSORS):
            binary = await client.get(url, headers={"Accept": accept})
            assert comparable(meaning_in_binary(binary.content)) == comparable(sent)
        query = {"sequence": sequence, "from": first} | ({} if most is None else {"tokens": most})
        reply, binary = await client.get(url, params=query), await client.get(url, params=query, headers=BINARY)
        if sequence >= size:
            for one in (reply, binary):
                assert (one.status_code, one.json()["errors"][0]["loc"]) == (422, ["query", "sequence"])
            return
        part = json.loads(reply.content, parse_constant=float.fromhex)
        assert (part["sequence"], part["first_token"], part["lengths"]) == (sequence, first, whole["lengths"])
        last = None if most is None else first + most
        expected = dict(sent)
        for name in (*DEPTHS, "messages", "overrides"):
            if expected.get(name) is None:
                continue
            rows = expected.pop(name)
            if sequence < len(rows):
                expected[name] = [rows[sequence][first:last]] if DEPTHS.get(name, 1) > 1 else [rows[sequence]]
        for name in ("images", "tensors"):
            expected.pop(name, None)
        versions, given = expected.pop("policy_versions", None), expected.pop("policy_version", None)
        if versions is not None:
            given = min(version for row in sent["policy_versions"] for version in row)
        for read in (bare(part), meaning_in_binary(binary.content)):
            assert read.pop("policy_versions", None) == versions
            assert read.pop("policy_version", None) == given
            assert comparable(read) == comparable(expected)
        await client.delete(f"/v1/runs/{run}")


async def test_contents_are_read_while_the_group_is_kept_then_refused_with_the_reason(
    client: httpx.AsyncClient,
) -> None:
    await made(client)
    await send(client, group("a"), group("b"), group("c"))
    assert (await content(client, "a"))["state"] == "queued"
    batch = await take(client)
    assert (await content(client, "a"))["state"] == "leased"
    assert (await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})).status_code < 300
    assert (await content(client, "a"))["tokens"] == [[1, 2, 3], [4]], "its batch is kept for a rewind"
    assert (await client.post(f"{RUN}/checkpoints", json={"step": 1})).status_code == 200
    await client.delete(f"{GROUPS}/c")
    for name, why in (("a", f"was delivered in batch {batch['batch']} (step 1)"), ("c", "was dropped (deleted)")):
        gone = await client.get(f"{GROUPS}/{name}/content")
        assert (gone.status_code, gone.json()["code"]) == (410, "group_gone")
        assert why in gone.json()["detail"]
        assert " s ago" in gone.json()["detail"]
    unknown = await client.get(f"{GROUPS}/unknown/content")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "group_not_found")


async def test_a_group_in_the_replay_buffer_is_kept(client: httpx.AsyncClient) -> None:
    await made(client, keep_batches=0)
    assert (await client.put(f"{RUN}/replay", json={"groups": True})).status_code in (200, 201)
    await send(client, group("a", policy_version=0), group("b", policy_version=0))
    batch = await take(client)
    assert (await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})).status_code < 300
    assert (await content(client, "a"))["state"] == "delivered"
    (listed, *_) = (await client.get(GROUPS, params={"state": "delivered"})).json()["groups"]
    assert (await content(client, listed["id"]))["size"] == 2, "also by the id in a list"


async def test_what_senders_wrote_comes_back_exactly_as_json_text(client: httpx.AsyncClient) -> None:
    await made(client)
    large = HOSTILE * (10_000_000 // len(HOSTILE))
    messages = [[{"role": HOSTILE, "content": large, HOSTILE: [HOSTILE]}], [{"role": "user", "content": HOSTILE}]]
    sent = {"messages": messages, "metadata": {HOSTILE: [HOSTILE, 2**63]}, "generation_params": {"stop": HOSTILE}}
    sent |= {"item": HOSTILE, "overrides": [{"a": HOSTILE}, {}], "group_overrides": {HOSTILE: None}}
    await send(client, group("a", **sent))
    reply = await client.get(f"{GROUPS}/a/content")
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert b"\x1b" not in reply.content
    assert b"\x00" not in reply.content
    assert {name: reply.json()[name] for name in sent} == sent
    part = await content(client, "a", sequence=1, tokens=1)
    assert (part["messages"], part["overrides"]) == (messages[1:], [{}])
    assert len(json.dumps(part)) < 10_000, "a part does not bring what belongs to other sequences"


async def test_it_says_what_follows_from_the_scores_and_from_the_version_in_force(client: httpx.AsyncClient) -> None:
    await made(client, max_staleness=10)
    assert (await client.put(f"{RUN}/policy-version", json={"policy_version": 5})).status_code == 200
    versions = {"policy_version": 3, "policy_versions": [[3, 4, 5], [4]]}
    await send(client, group("a", scores=[1.0, 0.0], **versions), group("b", scores=[1.0, 1.0], policy_version=3))
    a = await content(client, "a")
    assert (a["group_advantages"], a["version_ages"]) == ([1.0, -1.0], [[2, 1, 0], [1]])
    part = await content(client, "a", sequence=0, **{"from": 1})
    assert (part["group_advantages"], part["version_ages"]) == ([1.0], [[1, 0]])
    b = await content(client, "b")
    assert b["group_advantages"] == [0.0, 0.0], "equal scores"
    assert "version_ages" not in b


async def test_tokens_are_text_by_the_tokenizer_that_the_operator_names(start: Start, tmp_path: Path) -> None:
    client = await start(tokenizer_file=make_tokenizer(tmp_path, longest=1000))
    assert (await client.get("/version")).json()["tokenizer"] == "tokenizer.json"
    ids = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("<b>hello world").ids
    longest = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).token_to_id("x" * 1000)
    await made(client)
    hostile = [-1, 2**62, *ids]
    await send(client, group("a", tokens=[hostile, [0]], masks=[hostile, [0]]))
    await send(client, group("long", tokens=[[longest] * 20_000, [0]], masks=[[1] * 20_000, [0]]))
    assert "texts" not in await content(client, "a")
    texts = (await content(client, "a", text=True))["texts"]
    assert texts[0][:2] == [None, None], "such ids are in no vocabulary"
    assert ("".join(texts[0][2:]), texts[1]) == ("<b>hello world", [END])
    part = await content(client, "a", text=True, sequence=0, tokens=1, **{"from": 1})
    assert part["texts"] == [[None]]
    assert (await content(client, "long", text=True, sequence=0, tokens=10))["texts"] == [["x" * 1000] * 10]
    for name, headers, why in (("long", {}, "ask for a part"), ("a", BINARY, "is for answers in JSON")):
        reply = await client.get(f"{GROUPS}/{name}/content", params={"text": True}, headers=headers)
        assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["query", "text"])
        assert why in reply.json()["detail"]


async def test_without_a_tokenizer_there_is_no_text(client: httpx.AsyncClient) -> None:
    await made(client)
    await send(client, group("a"))
    assert (await client.get("/version")).json()["tokenizer"] is None
    reply = await client.get(f"{GROUPS}/a/content", params={"text": True})
    assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["query", "text"])
    assert "LACHESIS_TOKENIZER_FILE" in reply.json()["detail"]


async def test_damage_is_an_error_that_says_so(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await made(client)
    await send(client, group("a"), group("b"))
    keys = RunKeys("math")
    for name, damage in (("a", "missing"), ("b", "damaged")):
        entries = await redis_client.hgetall(keys.groups)  # type: ignore[misc]
        own = {entry.decode().split()[6]: group_id.decode() for group_id, entry in entries.items()}
        payload = keys.payload(own[name])
        await (redis_client.delete(payload) if damage == "missing" else redis_client.setrange(payload, 0, "?" * 20))
        reply = await client.get(f"{GROUPS}/{name}/content")
        assert (reply.status_code, reply.json()["code"]) == (410, "group_gone")
        assert ("lost" if damage == "missing" else "damaged") in reply.json()["detail"]


@pytest.mark.parametrize("query", [{"from": 1}, {"tokens": 1}, {"sequence": -1}, {"sequence": 2}], ids=str)
async def test_a_part_needs_a_sequence(client: httpx.AsyncClient, query: dict[str, Any]) -> None:
    await made(client)
    await send(client, group("a"))
    reply = await client.get(f"{GROUPS}/a/content", params=query)
    assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["query", "sequence"])


async def test_contents_are_read_while_groups_move(client: httpx.AsyncClient) -> None:
    await made(client)
    names = [f"g{n}" for n in range(40)]
    await send(client, *map(group, names))

    async def train() -> None:
        for _ in range(len(names) // 2):
            batch = await take(client)
            await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})
            await client.post(f"{RUN}/checkpoints", json={"step": batch["step"]})

    training = asyncio.create_task(train())
    statuses = set()
    while not training.done():
        for name in names:
            reply = await client.get(f"{GROUPS}/{name}/content")
            statuses.add(reply.status_code)
            if reply.status_code == 200:
                assert reply.json()["tokens"] == [[1, 2, 3], [4]]
    await training
    assert statuses <= {200, 410}
    assert {(await client.get(f"{GROUPS}/{name}/content")).status_code for name in names} == {410}


async def test_contents_that_a_client_leaves_unread_hold_their_room_until_it_goes(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 connections that asked for 77 MB each and did not read made a process 4 GB larger."""
    monkeypatch.setattr(routes, "_TEXT_COPIES", CONTENTS_BYTES)  # annotations count as if they were that large
    await made(client)
    large = {"x": np.zeros(CONTENTS_BYTES * 3 // 8, np.uint8)}
    sent = in_binary(group("a") | {"tensors": large})
    reply = await client.post(GROUPS, content=sent, headers={"Content-Type": SAFETENSORS})
    assert reply.status_code == 201, reply.text
    await send(client, group("small"), group("bare"))
    values = {"entropy": [[1, 2, 3], [4]]}
    reply = await client.post(f"{GROUPS}/small/annotations", json={"annotations": values})
    assert reply.status_code == 200, reply.text
    url = f"{GROUPS}/a/content"
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(f"GET {url} HTTP/1.1\r\nHost: localhost\r\nAccept: {SAFETENSORS}\r\n\r\n".encode())
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    refused = await client.get(url, headers=BINARY)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_reads")
    assert int(refused.headers["retry-after"]) > 0
    for wrong, status in (({"params": {"sequence": 2}}, 422), ({"headers": {"Accept": "text/html"}}, 406)):
        assert (await client.get(url, **wrong)).status_code == status, "it is refused before contents are read"
    assert (await content(client, "small"))["size"] == 2, "what fits is read"
    refused = await client.get(f"{GROUPS}/small/annotations")
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_reads"), "annotations share the room"
    assert (await client.get(f"{GROUPS}/bare/annotations")).json()["annotations"] == {}
    writer.close()

    async def is_read() -> bool:
        return (await client.get(url, headers=BINARY)).status_code == 200

    await wait_until(is_read)
    assert await is_read(), "a client that reads leaves nothing behind"
    assert (await client.get(f"{GROUPS}/small/annotations")).json()["annotations"] == values
    assert await is_read(), "nor do annotations"
