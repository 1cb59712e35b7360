"""Thousands of requests to a replay buffer that nobody should send: none costs a 5xx, and what is taken can be had.

`LACHESIS_FUZZ_SEED` says where to start (`tests/seeds.py`).
"""

import json
from collections import Counter
from copy import deepcopy
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest

from lachesis.wire import blob
from lachesis.wire.frame import frame, split
from lachesis.wire.groups import SAFETENSORS
from tests.api.conftest import Start
from tests.api.native_groups import BINARY
from tests.api.replay.calls import REPLAY, in_json, make_buffer, state
from tests.properties import briefly_and_at_length
from tests.seeds import FUZZ, seed_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    0.5,
    1e300,
    5e-324,
    2**53,
    2**64,
    "",
    "0",
    "w",
    "\0",
    "图",
    "x" * 300,
    [],
    [1],
    {},
    {"a": {}},
]
ARRAYS = [
    np.ones(2, np.float16),
    np.zeros((0, 3)),
    np.array(7, np.uint64),
    np.array([True]),
    np.arange(2),
    np.ones((2, 1)),
]
KEYS = ("worker", "number", "session", "policy_version", "episodes", "reward", "cost", "priority", "metadata", "odd")
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("PATCH", "", {"fragments_per_chunk": 2, "max_chunks": 3, "max_bytes": 900, "max_reuse": 2, "max_staleness": 1}),
    ("PATCH", "", {"eviction": "most_used", "max_age_s": 5, "reorder_window_s": 0, "max_waiting": 1, "seed": 3}),
    ("PATCH", "", {"sampling": {"strategy": "rank", "alpha": 1}, "limiter": None, "min_size_to_sample": 1}),
    ("PUT", "/session", {"session": 1}),
    ("PATCH", "/priorities", {"priorities": {"1": 2.0, "3": 0}}),
    ("POST", "/samples", {"num_chunks": 1, "strategy": "staleness", "lease_s": 0.01, "request_id": "a"}),
    ("POST", "/samples", {"num_fragments": 2, "strategy": "proportional", "beta": 1, "alpha": 0.6}),
    ("POST", "/samples/ab/ack", {"lease": "x"}),
    ("POST", "/fragments/fetch", {"fragments": ["a"]}),
    ("GET", "/chunks?limit=2&sort=uses&place=archived", {}),
    ("DELETE", "/chunks?worker=w&below_version=1", {}),
]


def odd_value(rnd: Random) -> Any:
    """One of ODD, a copy: what is put into a value must not turn up in the next one, or in itself."""
    return deepcopy(rnd.choice(ODD))


def odd_blob(rnd: Random, number: int) -> bytes:
    """A fragment with up to two things wrong; some are right all the same."""
    said: dict[str, Any] = {"number": number, "policy_version": 0, "reward": 1.5}
    tensors: dict[str, Any] = {"obs/image": np.ones((2, 2), np.uint8)}
    worker = rnd.choice(("w", "w", "v", "a b"))
    for _ in range(rnd.randrange(3)):
        match rnd.randrange(3):
            case 0:
                said[rnd.choice(KEYS[1:])] = odd_value(rnd)
            case 1:
                tensors[rnd.choice(("x", "policy_versions", "__metadata__x", ""))] = rnd.choice(ARRAYS)
            case _:
                said.pop(rnd.choice(list(said)), None)
        said = said or {"number": number}
    body = blob.write(tensors, {"worker": worker} | {name: json.dumps(value) for name, value in said.items()})
    match rnd.randrange(8):
        case 0:
            body = body[: rnd.randrange(len(body))]
        case 1:
            place = rnd.randrange(len(body))
            body = body[:place] + bytes([rnd.randrange(256)]) + body[place + 1 :]
        case 2:
            body = frame([body] * rnd.choice((1, 1, 2)), rnd.choice(("fragments", "fragments", "groups")))
    return body


def odd_json(rnd: Random, number: int) -> Any:
    fragment: Any = in_json(number)
    for _ in range(rnd.randrange(3)):
        if rnd.random() < 0.3:
            tensor = rnd.choice(list(fragment["tensors"].values())) if isinstance(fragment["tensors"], dict) else {}
            tensor[rnd.choice(("dtype", "shape", "data", "odd"))] = odd_value(rnd)
        else:
            fragment[rnd.choice((*KEYS, "tensors"))] = odd_value(rnd)
        if not isinstance(fragment.get("tensors"), dict) or not fragment["tensors"]:
            break
    return {"fragments": [fragment, fragment]} if rnd.random() < 0.1 else fragment


async def odd_call(rnd: Random, client: httpx.AsyncClient) -> httpx.Response:
    method, path, body = rnd.choice(CALLS)
    if body and rnd.random() < 0.5:
        body = body | {rnd.choice(list(body)): odd_value(rnd)}
    if rnd.random() < 0.2:
        path = path.replace("=", rnd.choice(("=-1", "=x", "=%00", "=99999999999999999999")), 1)
    accept = rnd.choice(("application/json", SAFETENSORS))
    return await client.request(method, f"{REPLAY}{path}", json=body or None, headers={"Accept": accept})


@briefly_and_at_length("count", 300, 1_500)
async def test_no_odd_request_gets_5xx_and_every_kept_fragment_is_readable(start: Start, count: int) -> None:
    seed = seed_of(FUZZ)
    rnd, client = Random(seed), await start()
    await make_buffer(client)
    statuses: Counter[int] = Counter()
    for number in range(count):
        near = number // 4 + rnd.randrange(4)
        match rnd.randrange(4):
            case 0:
                reply = await odd_call(rnd, client)
            case 1:
                reply = await client.post(f"{REPLAY}/fragments", json=odd_json(rnd, near))
            case _:
                reply = await client.post(f"{REPLAY}/fragments", content=odd_blob(rnd, near), headers=BINARY)
        assert reply.status_code < 500, (reply.request.method, reply.request.url, reply.request.content, reply.text)
        if reply.status_code >= 400:
            assert reply.json()["code"], reply.text
        statuses[reply.status_code] += 1
    assert 0.05 < statuses[201] / count < 0.8, f"neither all refused nor all let through: {statuses}"
    await everything_can_be_read(client)


async def everything_can_be_read(client: httpx.AsyncClient) -> None:
    ids: list[str] = []
    for place in ("sampleable", "reserved", "archived"):
        chunks = (await client.get(f"{REPLAY}/chunks", params={"place": place, "limit": 1000})).json()["chunks"]
        ids += [fragment for chunk in chunks for fragment in chunk["fragments"]]
    assert len(ids) <= (await state(client))["chunk_fragments"]
    if ids:
        reply = await client.post(f"{REPLAY}/fragments/fetch", json={"fragments": ids})
        metadata, blobs = split(reply.content)
        assert [one["fragment"] for one in json.loads(metadata["fragments"])] == ids
        for one in blobs:
            blob.read_header(one)
