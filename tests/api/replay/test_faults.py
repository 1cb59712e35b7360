"""Fragments, settings and requests that are wrong: each is a 4xx that names the place, and nothing is stored."""

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from lachesis.wire import blob
from lachesis.wire.fragments import MAX_FRAGMENTS
from lachesis.wire.frame import frame, frame_header
from tests.api.native_groups import BINARY
from tests.api.replay.calls import AS_BINARY, REPLAY, in_binary, in_json, insert, make_buffer, state, take, tensors_of

DEEP = 100_000


def said(**metadata: str) -> bytes:
    """A fragment with other metadata, as text."""
    own = {"worker": "w", "number": "0", "policy_version": "0"} | metadata
    return blob.write(tensors_of(0), {name: text for name, text in own.items() if text})


def lying(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A fragment with a header that says something else than it should."""
    body = in_binary(0)
    length = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body[8 + length :]


def versions(array: Any, **keys: Any) -> bytes:
    return in_binary(0, tensors={"policy_versions": array}, **{"policy_version": None, **keys})


BINARY_FAULTS: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "0 bytes"),
    "a pickle": (b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01x\x94.", 400, "header of"),
    "cut off": (in_binary(0)[:-1], 400, "end at byte"),
    "more than it says": (in_binary(0) + b"\0", 400, "end at byte"),
    "a header longer than the body": (b"\xff" * 8 + in_binary(0)[8:], 400, "header of"),
    "a shape of another size": (lying(lambda h: h["obs/image"].update(shape=[7])), 400, "'obs/image' does not take"),
    "a negative shape": (lying(lambda h: h["obs/image"].update(shape=[-2, -3])), 400, "'obs/image'"),
    "a shape beyond counting": (lying(lambda h: h.update(x=h["obs/image"] | {"shape": [2**64, 0]})), 400, "'x'"),
    "an unknown dtype": (lying(lambda h: h["obs/image"].update(dtype="O")), 400, "dtype unknown"),
    "two tensors in one place": (lying(lambda h: h.update(x=h["obs/image"])), 400, "starts at byte"),
    "no tensors": (in_binary(0, tensors={}), 422, "has no tensor"),
    "many tensors": (in_binary(0, tensors={str(n): np.ones(1) for n in range(300)}), 422, "the limit is 256"),
    "a name to no purpose": (in_binary(0, tensors={"a\nb": np.ones(1)}), 422, "'a\\nb'"),
    "a long name": (in_binary(0, tensors={"x" * 300: np.ones(1)}), 422, "1 to 256 printable"),
    "no worker": (said(worker=""), 422, "worker: Field required"),
    "no number": (said(number=""), 422, "number: Field required"),
    "no version": (said(policy_version=""), 422, "policy_version: Field required"),
    "an unknown key": (said(colour="1"), 422, "colour: is unknown here"),
    "a worker with spaces": (said(worker="a b"), 422, "worker: "),
    "a worker with a newline": (said(worker="a\n"), 422, "worker: "),
    "a worker too long": (said(worker="x" * 129), 422, "worker: "),
    "a number below 0": (said(number="-1"), 422, "number: "),
    "a number beyond doubles": (said(number=str(2**53)), 422, "number: "),
    "a number of very many digits": (said(number="9" * 5000), 422, "number: "),
    "a number with a point": (said(number="1.0"), 422, "number: "),
    "a number that is true": (said(number="true"), 422, "number: "),
    "a number that is no JSON": (said(number="0x1"), 422, "number: not JSON"),
    "a number in quotes": (said(number='"1"'), 422, "number: "),
    "a session below 0": (said(session="-1"), 422, "session: "),
    "a reward that is no number": (said(reward="NaN"), 422, "reward: not a finite"),
    "an infinite reward": (said(reward="1e999"), 422, "reward: not a finite"),
    "a cost below 0": (said(cost="-1"), 422, "cost: "),
    "a priority below 0": (said(priority="-0.5"), 422, "priority: "),
    "an infinite priority": (said(priority="Infinity"), 422, "priority: not a finite"),
    "episodes that are none": (said(episodes='"e"'), 422, "episodes: "),
    "an episode that is a number": (said(episodes="[1]"), 422, "episodes[0]: "),
    "too many episodes": (said(episodes=json.dumps(["e"] * 65)), 422, "episodes: "),
    "metadata that is no object": (said(metadata="[1]"), 422, "metadata: "),
    "metadata that is deep": (said(metadata='{"a":' + "[" * DEEP + "]" * DEEP + "}"), 422, "metadata: nested"),
    "metadata of a key twice": (said(metadata='{"a":1,"a":1}'), 422, "metadata: an object has the key 'a' twice"),
    "half a surrogate pair": (said(metadata='{"a":"\\ud800"}'), 422, "metadata: a string holds half"),
    "versions of floats": (versions(np.ones(2)), 422, "policy_versions: has dtype F64"),
    "versions in rows": (versions(np.ones((2, 1), np.int64)), 422, "policy_versions: has 2 dimensions"),
    "versions of nothing": (versions(np.zeros(0, np.int64)), 422, "policy_versions: is empty"),
    "a version below 0": (versions(np.array([3, -1])), 422, "policy_versions[1]: is negative: -1"),
    "a version beyond doubles": (versions(np.array([3, 2**53])), 422, "policy_versions[1]: is above"),
    "a version of its own": (versions(np.array([3, 2]), policy_version=3), 422, "policy_version: is not 2"),
    "an empty frame": (frame([], "fragments"), 422, "0 fragments"),
    "a frame of too many": (frame_header([0] * (MAX_FRAGMENTS + 1), "fragments"), 422, f"{MAX_FRAGMENTS + 1} frag"),
    "a frame of groups": (frame([in_binary(0)], "groups"), 422, "a file of 'groups', not of fragments"),
    "a frame in a frame": (frame([frame([in_binary(0)], "fragments")], "fragments"), 422, "fragments[0]."),
    "a frame of nothing": (frame([in_binary(0), b""], "fragments"), 422, "fragments[1]: not safetensors"),
    "one bad fragment of two": (frame([in_binary(0), said(number="x")], "fragments"), 422, "fragments[1].number: "),
    "one number twice": (frame([in_binary(0)] * 2, "fragments"), 422, "fragments[0].number: is 0, as of 2 fragments"),
    "two workers": (frame([in_binary(0), in_binary(1, "v")], "fragments"), 422, "fragments[1].worker: is v"),
    "two sessions": (frame([in_binary(0), in_binary(1, session=1)], "fragments"), 422, "fragments[1].session: is 1"),
}

X = {"dtype": "U8", "shape": [1], "data": "AQ=="}

JSON_FAULTS: dict[str, tuple[Any, int, str]] = {
    "an array": ([in_json(0)], 400, "expected a JSON object"),
    "no fragments": ({"fragments": []}, 422, "fragments: 0 fragments"),
    "too many fragments": ({"fragments": [0] * (MAX_FRAGMENTS + 1)}, 422, f"{MAX_FRAGMENTS + 1} fragments"),
    "fragments that are none": ({"fragments": 1}, 422, "fragments: should be an array"),
    "a fragment that is none": ({"fragments": [in_json(0), 1]}, 422, "fragments[1]: should be a fragment"),
    "something beside them": ({"fragments": [in_json(0)], "worker": "w"}, 422, "worker: is not allowed next to"),
    "an unknown field": (in_json(0, colour=1), 422, "colour: is unknown here"),
    "no tensors": (in_json(0, tensors=None), 422, "tensors: is required"),
    "tensors of none": (in_json(0, tensors={}), 422, "tensors: 0 tensors"),
    "tensors that are none": (in_json(0, tensors=[X]), 422, "tensors: should be an object"),
    "many tensors": (in_json(0, tensors={str(n): X for n in range(300)}), 422, "tensors: 300 tensors"),
    "a tensor that is none": (in_json(0, tensors={"x": 1}), 422, "tensors.x: should be an object of dtype"),
    "a tensor of objects": (in_json(0, tensors={"x": X | {"dtype": "O"}}), 422, "tensors.x.dtype: unknown dtype"),
    "a tensor cut off": (in_json(0, tensors={"x": X | {"shape": [2]}}), 422, "tensors.x.data: has 1 bytes"),
    "a tensor of another alphabet": (
        in_json(0, tensors={"x": X | {"data": "é"}}),
        422,
        "tensors.x.data: is not base64",
    ),
    "the name of metadata": (in_json(0, tensors={"__metadata__": X}), 422, "tensors.__metadata__: is reserved"),
    "versions of bytes": (in_json(0, tensors={"policy_versions": X}), 422, "tensors.policy_versions: should be I32"),
    "a number in quotes": ({**in_json(0), "number": "1"}, 422, "number: "),
    "a reward in quotes": (in_json(0, reward="1"), 422, "reward: "),
    "more than a header holds": (in_json(0, metadata={"x": "y" * 2**22}), 422, "needs a header of"),
    "deep metadata": (json.dumps(in_json(0, metadata=0))[:-2] + "[" * DEEP + "]" * DEEP + "}", 400, "nested deeper"),
}


async def held(redis: Redis) -> set[bytes]:
    """Return the keys of fragments. Those of events and of the history are written in the background."""
    return {key async for key in redis.scan_iter("*") if b":replay:" in key or b":payload:" in key}


async def refused(
    client: httpx.AsyncClient, redis: Redis, content: bytes, headers: dict[str, str], status: int, what: str
) -> None:
    await make_buffer(client)
    before = await held(redis)
    reply = await client.post(f"{REPLAY}/fragments", content=content, headers=headers)
    assert reply.status_code == status, reply.text
    assert what in reply.json()["detail"]
    assert await held(redis) == before
    assert (await state(client))["accepted_fragments"] == 0


@pytest.mark.parametrize(("body", "status", "what"), BINARY_FAULTS.values(), ids=BINARY_FAULTS)
async def test_a_wrong_body_in_binary_is_refused_with_its_place(
    client: httpx.AsyncClient, redis_client: Redis, body: bytes, status: int, what: str
) -> None:
    await refused(client, redis_client, body, BINARY, status, what)


@pytest.mark.parametrize(("body", "status", "what"), JSON_FAULTS.values(), ids=JSON_FAULTS)
async def test_a_wrong_body_in_json_is_refused_with_its_place(
    client: httpx.AsyncClient, redis_client: Redis, body: Any, status: int, what: str
) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    await refused(client, redis_client, text.encode(), {"Content-Type": "application/json"}, status, what)


async def test_a_bomb_and_a_body_of_another_kind_are_refused(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    zipped = gzip.compress(bytes(64 * 1024 * 1024))
    reply = await client.post(f"{REPLAY}/fragments", content=zipped, headers=BINARY | {"Content-Encoding": "gzip"})
    assert (reply.status_code, reply.json()["code"]) == (413, "body_too_large")
    reply = await client.post(f"{REPLAY}/fragments", content=b"x", headers={"Content-Type": "application/x-pickle"})
    assert (reply.status_code, reply.json()["code"]) == (415, "unsupported_media_type")


SETTINGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"colour": 1}, ["colour"]),
    ({"fragments_per_chunk": 0}, ["fragments_per_chunk"]),
    ({"max_chunks": 10**9}, ["max_chunks"]),
    ({"max_reuse": 0}, ["max_reuse"]),
    ({"eviction": "random"}, ["eviction"]),
    ({"sampling": {"strategy": "best"}}, ["sampling", "strategy"]),
    ({"sampling": {"alpha": 5}}, ["sampling", "alpha"]),
    ({"limiter": {"samples_per_insert": 1}}, ["limiter", "min_diff"]),
    ({"limiter": {"samples_per_insert": 1, "min_diff": 0, "max_diff": 1}}, ["limiter", "max_diff"]),
    ({"limiter": {"samples_per_insert": 3, "min_diff": 0, "max_diff": 9}, "max_reuse": 2}, ["limiter"]),
    ({"limiter": {"samples_per_insert": 5e-324, "min_diff": 0, "max_diff": 2}}, ["limiter", "samples_per_insert"]),
    ({"limiter": {"samples_per_insert": 1, "min_diff": 1e300, "max_diff": 2e300}}, ["limiter", "min_diff"]),
    ({"limiter": {"samples_per_insert": 1, "min_diff": -2e17, "max_diff": -1e17}}, ["limiter", "max_diff"]),
    ({"sampling": {"half_life_chunks": 5e-324}}, ["sampling", "half_life_chunks"]),
    ({"min_size_to_sample": 11, "max_chunks": 10}, ["min_size_to_sample"]),
    ({"seed": -1}, ["seed"]),
]


@pytest.mark.parametrize(("wrong", "place"), SETTINGS, ids=str)
async def test_settings_that_are_wrong_or_must_deadlock_are_refused(
    client: httpx.AsyncClient, wrong: dict[str, Any], place: list[str]
) -> None:
    await make_buffer(client, max_chunks=16)
    before = (await state(client))["settings"]
    for method in ("PUT", "PATCH"):
        reply = await client.request(method, REPLAY, json=wrong)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field"), reply.text
        assert reply.json()["errors"][0]["loc"][: len(place)] == place
    assert (await state(client))["settings"] == before


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({}, "one of num_chunks and num_fragments"),
        ({"num_chunks": 1, "num_fragments": 2}, "one of num_chunks and num_fragments"),
        ({"num_chunks": 0}, "num_chunks: "),
        ({"num_fragments": 3}, "num_fragments: is 3, which is not a multiple of fragments_per_chunk = 2"),
        ({"num_fragments": 18}, "num_fragments: .*18.*max_chunks = 8"),
        ({"num_chunks": 9}, "num_chunks: .*9.*max_chunks = 8"),
        ({"num_chunks": 1, "strategy": "proportional", "alpha": 1.5}, "alpha: "),
        ({"num_chunks": 1, "strategy": "best"}, "strategy: "),
        ({"num_chunks": 1, "beta": 1.5}, "beta: "),
        ({"num_chunks": 1, "half_life_chunks": 5e-324}, "half_life_chunks: "),
        ({"num_chunks": 1, "request_id": "a b"}, "request_id: "),
        ({"num_chunks": 1, "lease_s": 0}, "lease_s: "),
        ({"num_chunks": 1, "colour": 1}, "colour: "),
    ],
    ids=str,
)
async def test_a_sample_that_cannot_be_is_refused_at_once(
    client: httpx.AsyncClient, asked: dict[str, Any], what: str
) -> None:
    await make_buffer(client, max_chunks=8, fragments_per_chunk=2)
    await insert(client, range(16))
    reply = await client.post(f"{REPLAY}/samples", params={"wait_s": 60}, json=asked)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field")
    assert re.search(what, reply.json()["detail"]), reply.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        ("GET", "/chunks?cursor=x", None),
        ("GET", "/chunks?cursor=9999999999999999999", None),
        ("GET", "/chunks?limit=0", None),
        ("GET", "/chunks?sort=colour", None),
        ("GET", "/chunks?place=sampelable", None),
        ("GET", "/chunks?below_version=1", None),
        ("DELETE", "/chunks?place=archived", None),
        ("GET", "/samples/XYZ", None),
        ("GET", "/fragments/a%20b", None),
        ("PATCH", "/priorities", {"priorities": {}}),
        ("PATCH", "/priorities", {"priorities": {"x": 1}}),
        ("PATCH", "/priorities", {"priorities": {"0": 1}}),
        ("PATCH", "/priorities", {"priorities": {"1": -1}}),
        *(("PATCH", "/priorities", {"priorities": {"1": 1, name: 2}}) for name in ("01", " 1", "1.0", "1_0", "\u0661")),
        ("PATCH", "/priorities", {"priorities": {str(n): 1 for n in range(1, 10_002)}}),
        ("PUT", "/session", {"session": -1}),
        ("POST", "/fragments/fetch", {"fragments": []}),
        ("POST", "/fragments/fetch", {"fragments": ["a b"]}),
        ("POST", "/samples?wait_s=601", {"num_chunks": 1}),
        ("POST", "/samples/ab/ack", {}),
    ],
)
async def test_what_is_not_known_or_out_of_range_is_refused(
    client: httpx.AsyncClient, method: str, path: str, sent: Any
) -> None:
    await make_buffer(client)
    reply = await client.request(method, f"{REPLAY}{path}", json=sent)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field"), reply.text


async def test_a_run_without_a_buffer_says_so(client: httpx.AsyncClient) -> None:
    await client.post("/v1/runs", json={"name": "r", "batch_size": 1})
    calls: list[tuple[str, str, Any]] = [
        ("GET", "", None),
        ("PATCH", "", {"max_reuse": 2}),
        ("GET", "/chunks", None),
        ("DELETE", "/chunks", None),
        ("PUT", "/session", {"session": 1}),
        ("PATCH", "/priorities", {"priorities": {"1": 1}}),
        ("POST", "/fragments", in_json(0)),
        ("POST", "/samples", {"num_chunks": 1}),
    ]
    for method, path, sent in calls:
        reply = await client.request(method, f"{REPLAY}{path}", json=sent)
        assert (reply.status_code, reply.json()["code"]) == (404, "replay_not_found"), (method, path)


async def test_a_damaged_payload_is_never_handed_out(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await make_buffer(client)
    (receipt,) = await insert(client, [0])
    await redis_client.setrange(RunKeys("r").payload(receipt["fragment"]), 100, b"x")
    await take(client, num_chunks=1)
    reply = await client.get(f"{REPLAY}/fragments/{receipt['fragment']}")
    assert (reply.status_code, reply.json()["code"]) == (404, "fragment_not_found")
    assert "damaged" in reply.json()["detail"]


async def test_a_damaged_payload_fails_one_sample_alone(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await make_buffer(client, sampling={"strategy": "fifo"})
    receipts = await insert(client, [0, 1])
    await redis_client.setrange(RunKeys("r").payload(receipts[0]["fragment"]), 100, b"x")
    statuses = []
    for _ in range(2):
        reply = await client.post(f"{REPLAY}/samples", json={"num_chunks": 1}, headers=AS_BINARY)
        statuses.append(reply.status_code)
    assert statuses == [404, 201]
    seen = await state(client)
    assert (seen["sampleable_chunks"], seen["retired_chunks"]) == (1, {"corrupt": 1})
