"""Groups of the native API that are wrong: each is a 4xx that names the place, and nothing is stored."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from redis.asyncio import Redis

from app.api.codec.group_json import decode_native_json
from app.store.redis.keys import RunKeys
from lachesis.wire import blob
from lachesis.wire.batch_file import parts_of
from lachesis.wire.errors import MalformedBody
from lachesis.wire.frame import frame, frame_header
from lachesis.wire.groups import MAX_GROUPS
from lachesis.wire.limits import MAX_BATCH_SIZE
from tests.api.native_groups import BINARY, in_binary, parts

GROUP: dict[str, Any] = {
    "id": "g",
    "tokens": [[1, 2], [3]],
    "masks": [[1, 2], [3]],
    "scores": [0.5, 1.0],
    "advantages": [[0.5], [1.0]],
    "distill_token_ids": [[[1], [2]], [[3]]],
    "distill_logprobs": [[[0.1], [0.2]], [[0.3]]],
    "policy_versions": [[5, 4], [6]],
}
TENSOR = {"dtype": "U8", "shape": [1], "data": "AQ=="}
DEEP = 100_000


def said(**metadata: str) -> bytes:
    """The group with other metadata."""
    tensors, own = parts(GROUP)
    return blob.write(tensors, own | metadata)


def with_tensor(name: str, array: Any) -> bytes:
    """The group with one tensor more, or another one; None: without it."""
    tensors, metadata = parts(GROUP)
    tensors.pop(name, None)
    return blob.write(tensors if array is None else tensors | {name: array}, metadata)


def with_tensors(changed: dict[str, Any]) -> bytes:
    """The group with other tensors."""
    tensors, metadata = parts(GROUP)
    return blob.write(tensors | changed, metadata)


def of_sequences(count: int) -> bytes:
    """A group of sequences with a token each."""
    ones = np.ones(count, np.int32)
    return blob.write({"tokens": ones, "tokens.lengths": ones, "masks": ones, "scores": ones.astype(np.float32)})


def with_details(text: str | bytes) -> bytes:
    return with_tensor("details", np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8))


def lying(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The group with a header that says something else than it should."""
    body = in_binary(GROUP)
    length = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body[8 + length :]


def shape(name: str, lengths: list[int]) -> Callable[[dict[str, Any]], object]:
    return lambda header: header[name].update(shape=lengths)


i32, i64, f32, f64 = (np.dtype(name).type for name in ("i4", "i8", "f4", "f8"))

BINARY_FAULTS: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "0 bytes"),
    "cut off": (in_binary(GROUP)[:-1], 400, "end at byte"),
    "more than it says": (in_binary(GROUP) + b"\0", 400, "end at byte"),
    "a header longer than the body": (b"\xff" * 8 + in_binary(GROUP)[8:], 400, "header of"),
    "a huge header": ((2**23).to_bytes(8, "little") + b" " * 2**23, 400, "header of 8388608"),
    "a header of two tensors in one place": (lying(lambda h: h.update(x=h["masks"])), 400, "starts at byte"),
    "a shape of another size": (lying(shape("tokens", [4])), 400, "'tokens' does not take"),
    "a shape beyond counting": (lying(lambda h: h.update(x=h["masks"] | {"shape": [2**64, 0]})), 400, "'x'"),
    "half a surrogate pair": (lying(lambda h: h["__metadata__"].update(item="\ud800")), 400, "surrogate"),
    "tokens of floats": (with_tensor("tokens", np.ones(3, f32)), 422, "tokens: has dtype F32"),
    "tokens of another width": (with_tensor("tokens", np.ones(3, np.int16)), 422, "tokens: has dtype I16"),
    "scores of integers": (with_tensor("scores", np.ones(2, i32)), 422, "scores: has dtype I32"),
    "lengths of floats": (with_tensor("tokens.lengths", np.array([2, 1], f32)), 422, "tokens.lengths: has dtype F32"),
    "tokens in rows": (with_tensor("tokens", np.ones((3, 1), i32)), 422, "tokens: has 2 dimensions"),
    "scores without dimension": (with_tensor("scores", np.array(1.0)), 422, "scores: has 0 dimensions"),
    "lengths in rows": (with_tensor("tokens.lengths", np.array([[2, 1]])), 422, "tokens.lengths: has 2 dimensions"),
    "lengths of too few": (with_tensor("tokens.lengths", np.array([1, 1])), 422, "tokens: has 3 values; its lengths"),
    "lengths of too many": (with_tensor("tokens.lengths", np.array([2, 2])), 422, "tokens: has 3 values"),
    "a length below 0": (
        with_tensor("tokens.lengths", np.array([4, -1])),
        422,
        "tokens.lengths[1]: a length is negative",
    ),
    "a length of 0": (with_tensor("tokens.lengths", np.array([3, 0])), 422, "tokens[1]: has no token"),
    "lengths whose sum overflows": (
        with_tensor("tokens.lengths", np.array([2**62, 2**62, 2**62, 2**62, 3])),
        422,
        "tokens.lengths[0]: a length is larger than the body",
    ),
    "no sequence": (
        in_binary({"tokens": [], "masks": [], "scores": [], "id": "g"}),
        422,
        "tokens: has no sequence",
    ),
    "not a number": (with_tensor("scores", np.array([0.5, np.nan])), 422, "scores[1]: not a finite"),
    "infinite": (with_tensor("advantages", np.array([-np.inf, 1], f32)), 422, "advantages[0]: not a finite"),
    "no tokens": (with_tensor("tokens", None), 422, "tokens.lengths: has the lengths of tokens, which is missing"),
    "no masks": (with_tensor("masks", None), 422, "masks: is required"),
    "no scores": (with_tensor("scores", None), 422, "scores: is required"),
    "no lengths": (with_tensor("tokens.lengths", None), 422, "tokens: needs tokens.lengths"),
    "no inner lengths": (
        with_tensor("distill_token_ids.inner_lengths", None),
        422,
        "distill_token_ids: needs distill_token_ids.inner_lengths",
    ),
    "masks of other rows": (with_tensor("masks.lengths", np.array([1, 2])), 422, "masks[0]: has 1 values"),
    "too few scores": (with_tensor("scores", np.ones(1)), 422, "scores: has 1 values for 2"),
    "versions of other rows": (with_tensor("policy_versions.lengths", np.array([3])), 422, "policy_versions: has 1"),
    "a version below 0": (with_tensor("policy_versions", np.array([1, -1, 2])), 422, "policy_versions[1]"),
    "more sequences than the largest batch": (
        of_sequences(MAX_BATCH_SIZE + 1),
        422,
        "tokens: has 131073 rows; the limit is 131072",
    ),
    "very many rows of nothing": (
        with_tensors({"advantages": np.zeros(0, f32), "advantages.lengths": np.zeros(MAX_BATCH_SIZE + 1, i32)}),
        422,
        "advantages: has 131073 rows; the limit is 131072",
    ),
    "very many positions of nothing": (
        with_tensors(
            {
                **{name: np.zeros(0, kind) for name, kind in (("distill_token_ids", i32), ("distill_logprobs", f32))},
                "distill_token_ids.lengths": np.array([MAX_BATCH_SIZE + 3, 1]),
                "distill_logprobs.lengths": np.array([MAX_BATCH_SIZE + 3, 1]),
                "distill_token_ids.inner_lengths": np.zeros(MAX_BATCH_SIZE + 4, i32),
            }
        ),
        422,
        "distill_token_ids: has 131076 positions; the limit is 131075",
    ),
    "lengths of what is not there": (
        with_tensor("ref_logprobs.lengths", np.array([1])),
        422,
        "ref_logprobs.lengths: has the lengths of ref_logprobs, which is missing",
    ),
    "lengths of flat values": (
        with_tensor("scores.lengths", np.array([2])),
        422,
        "scores.lengths: scores has no lengths",
    ),
    "inner lengths of flat rows": (with_tensor("masks.inner_lengths", np.array([2])), 422, "masks.inner_lengths"),
    "a name to no purpose": (with_tensor("a\nb", np.ones(1)), 422, "'a\\nb'"),
    "a name of nothing": (with_tensor("", np.ones(1)), 422, "''"),
    "a long name": (with_tensor("x" * 300, np.ones(1)), 422, "1 to 256 printable"),
    "many tensors": (
        blob.write(parts(GROUP)[0] | {str(n): np.ones(1) for n in range(300)}, {"id": "g"}),
        422,
        "the limit is 256",
    ),
    "details that are no text": (with_tensor("details", np.ones(3, i32)), 422, "details: has dtype I32"),
    "details that are nothing": (with_details(""), 422, "details: "),
    "details that are no object": (with_details("[1]"), 422, "details: should be a JSON object"),
    "details cut off": (with_details('{"images":'), 422, "details: not JSON"),
    "details of unknown keys": (with_details('{"env_id":1}'), 422, "details.env_id: is unknown"),
    "details of keys with a NUL": (with_details('{"images\\u0000":1}'), 422, "details.images\\x00: is unknown"),
    "details of a key twice": (with_details('{"images":1,"images":2}'), 422, "details: an object has the key"),
    "details not in UTF-8": (with_details(b'{"images":"\xff"}'), 422, "details: not UTF-8"),
    "details of infinities": (with_details('{"images":[1e999]}'), 422, "details.images[0]: not a finite"),
    "details of NaN": (with_details('{"images":NaN}'), 422, "details.images: not a finite"),
    "details that are deep": (with_details('{"images":' + "[" * DEEP + "]" * DEEP + "}"), 422, "details: nested"),
    "messages without content": (with_details('{"messages":[[{"role":"a"}]]}'), 422, "details.messages[0][0]"),
    "metadata that is deep": (said(metadata='{"a":' + "[" * DEEP + "]" * DEEP + "}"), 422, "metadata: nested"),
    "metadata that is no object": (said(metadata="[1]"), 422, "metadata: should be a JSON object"),
    "metadata that is no JSON": (said(metadata="{"), 422, "metadata: not JSON"),
    "metadata of a key twice": (said(metadata='{"a":1,"a":1}'), 422, "metadata: an object has the key 'a' twice"),
    "an unknown key": (said(reward="1"), 422, "reward: is unknown here"),
    "an id with spaces": (said(id="a b"), 422, "id: "),
    "an id with a newline": (said(id="a\n"), 422, "id: "),
    "an id of nothing": (said(id=""), 422, "id: "),
    "an id too long": (said(id="x" * 65), 422, "id: "),
    "an environment below 0": (said(environment="-1"), 422, "environment: "),
    "an environment that is no number": (said(environment="math"), 422, "environment: "),
    "an environment beyond doubles": (said(environment=str(2**53)), 422, "environment: "),
    "a version of its own": (said(policy_version="5"), 422, "policy_version: is not 4"),
    "an infinite cost": (said(cost="inf"), 422, "cost: "),
    "a cost that is no number": (said(cost="nan"), 422, "cost: "),
    "a cost that overflows sums": (said(cost="1e308"), 422, "cost: "),
    "a cost below 0": (said(cost="-1"), 422, "cost: "),
    "an item of nothing": (said(item=""), 422, "item: "),
    "an item too long": (said(item="x" * 513), 422, "item: "),
    "an empty frame": (frame([], "groups"), 422, "0 groups"),
    "a frame of too many": (frame_header([0] * (MAX_GROUPS + 1), "groups"), 422, f"{MAX_GROUPS + 1} groups"),
    "a batch": (b"".join(parts_of([in_binary(GROUP)], [2], {})), 422, "a file of 'batch', not of groups"),
    "a frame of fragments": (frame([in_binary(GROUP)], "fragments"), 422, "a file of 'fragments', not of groups"),
    "a frame in a frame": (frame([frame([in_binary(GROUP)], "groups")], "groups"), 422, "groups[0]."),
    "a frame of no blobs": (blob.write({"0": np.ones(2, i32)}, {"lachesis": "groups"}), 400, "dtype U8"),
    "a frame of nothing": (frame([in_binary(GROUP), b""], "groups"), 422, "groups[1]: not safetensors"),
    "one bad group of two": (frame([in_binary(GROUP), said(id="h", cost="x")], "groups"), 422, "groups[1].cost: "),
    "one id twice": (frame([in_binary(GROUP)] * 2, "groups"), 422, "groups[0].id: 2 groups have the id g"),
}

JSON_FAULTS: dict[str, tuple[Any, int, str]] = {
    "an array": ([GROUP], 400, "expected a JSON object"),
    "no groups": ({"groups": []}, 422, "groups: holds no group"),
    "groups that are none": ({"groups": 1}, 422, "groups: should be an array"),
    "a group that is none": ({"groups": [GROUP, 1]}, 422, "groups[1]: should be a group"),
    "something beside the groups": ({"groups": [GROUP], "id": "g"}, 422, "id: is not allowed next to"),
    "too many groups": ({"groups": [{}] * (MAX_GROUPS + 1)}, 422, f"groups[{MAX_GROUPS}]: more than"),
    "an unknown field": (GROUP | {"reward": 1}, 422, "reward: is unknown here"),
    "an env_id": (GROUP | {"env_id": 1}, 422, "env_id: is unknown here"),
    "a misspelt field": (GROUP | {"masc": []}, 422, "masc: is unknown here; did you mean masks or images?"),
    "an id that is a number": (GROUP | {"id": 7}, 422, "id: "),
    "metadata that is no object": (GROUP | {"metadata": [1]}, 422, "metadata: should be a JSON object"),
    "metadata that is a text": (GROUP | {"metadata": "x"}, 422, "metadata: not JSON"),
    "more than a header holds": (GROUP | {"metadata": {"x": "y" * 2**22}}, 422, "needs a header of"),
    "an infinite cost": (GROUP | {"cost": "inf"}, 422, "cost: "),
    "a cost that overflows sums": (GROUP | {"cost": 1e308}, 422, "cost: "),
    "an environment of its own": (GROUP | {"environment": {"id": 1}}, 422, "environment: "),
    "an environment that is true": (GROUP | {"environment": True}, 422, "environment: should be a number or a text"),
    "metadata that is true": (GROUP | {"metadata": True}, 422, "metadata: should be a JSON object, not true"),
    "a cost that is false": (GROUP | {"cost": False}, 422, "cost: should be a number or a text, not false"),
    "versions that are none": (GROUP | {"policy_versions": [[1, 2], [-3]]}, 422, "policy_versions[1][0]: is negative"),
    "very many rows of nothing": (
        GROUP | {"advantages": [[]] * (MAX_BATCH_SIZE + 1)},
        422,
        "advantages: has 131073 rows; the limit is 131072",
    ),
    "very many positions of nothing": (
        GROUP | {"distill_logprobs": [[[]] * (MAX_BATCH_SIZE + 3), [[]]]},
        422,
        "distill_logprobs: has 131076 positions; the limit is 131075",
    ),
    "tensors that are none": (GROUP | {"tensors": []}, 422, "tensors: should be an object"),
    "many tensors": (GROUP | {"tensors": {str(n): TENSOR for n in range(129)}}, 422, "tensors: 129 tensors"),
    "a tensor that is none": (GROUP | {"tensors": {"x": 1}}, 422, "tensors.x: should be an object"),
    "a tensor called like a column": (GROUP | {"tensors": {"masks": TENSOR}}, 422, "tensors.masks: is reserved"),
    "a tensor called like lengths": (GROUP | {"tensors": {"masks.lengths": TENSOR}}, 422, "tensors.masks.lengths"),
    "a tensor called like the metadata": (GROUP | {"tensors": {"__metadata__": TENSOR}}, 422, "tensors.__metadata__"),
    "a name with a NUL": (GROUP | {"tensors": {"a\0b": TENSOR}}, 422, "tensors.a\\x00b: "),
    "an unknown dtype": (GROUP | {"tensors": {"x": TENSOR | {"dtype": "U9"}}}, 422, "tensors.x.dtype"),
    "a length below 0 in a shape": (GROUP | {"tensors": {"x": TENSOR | {"shape": [-1]}}}, 422, "tensors.x.shape"),
    "a shape beyond counting": (
        GROUP | {"tensors": {"x": {"dtype": "U8", "shape": [2**62, 2**62, 0], "data": ""}}},
        422,
        "tensors.x.shape: invalid shape",
    ),
    "a shape of 33 dimensions": (GROUP | {"tensors": {"x": TENSOR | {"shape": [1] * 33}}}, 422, "tensors.x.shape"),
    "a shape of another size": (GROUP | {"tensors": {"x": TENSOR | {"shape": [2]}}}, 422, "tensors.x.data: has 1"),
    "data that is not base64": (GROUP | {"tensors": {"x": TENSOR | {"data": "é"}}}, 422, "tensors.x.data: is not bas"),
}


async def test_every_fault_is_a_4xx_that_names_the_place_and_nothing_is_stored(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    run = {"name": "r", "batch_size": 2}
    assert (await client.post("/v1/runs", json=run)).status_code == 201
    await client.put("/v1/runs/r/policy-version", json={"policy_version": 10})
    wrong: dict[str, tuple[int, str]] = {}
    cases = [(f"binary: {name}", {"content": case[0], "headers": BINARY}, case) for name, case in BINARY_FAULTS.items()]
    cases += [(f"json: {name}", {"json": case[0]}, case) for name, case in JSON_FAULTS.items()]
    for name, sent, (_, status, place) in cases:
        reply = await client.post("/v1/runs/r/groups", **sent)
        problem = reply.json()
        code = {400: "malformed_body", 422: "invalid_field"}[status]
        if (reply.status_code, problem.get("code")) != (status, code) or place not in problem["detail"]:
            wrong[name] = (reply.status_code, reply.text[:200])
    assert not wrong
    assert (await client.get("/v1/runs/r/status")).json()["groups"]["accepted"] == 0
    assert not await redis_client.exists(RunKeys("r").unreferenced, RunKeys("r").known)
    assert not [key async for key in redis_client.scan_iter("*payload*")]
    assert (await client.post("/v1/runs/r/groups", json=GROUP)).status_code == 201, "the group itself is right"
    assert (await client.post("/v1/runs/r/groups", content=said(id="h"), headers=BINARY)).status_code == 201


@pytest.mark.parametrize("second", ["null", "{}", "[]"])
def test_groups_that_are_there_twice_are_refused_whatever_the_second_is(second: str) -> None:
    """Readers differ in which of them they take."""
    body = f'{{"groups": [{json.dumps(GROUP)}], "groups": {second}}}'
    with pytest.raises(MalformedBody, match="'groups' twice"):
        decode_native_json(body.encode())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ("application/x-safetensors", 201),
        ("Application/X-SafeTensors; charset=binary", 201),
        ("application/octet-stream", 201),
        ("application/json; charset=utf-8", 400),
        ("text/plain", 415),
        ("application/x-safetensors, application/json", 415),
        ("", 415),
    ],
)
async def test_the_content_type_says_how_a_body_is_read(client: httpx.AsyncClient, sent: str, status: int) -> None:
    await client.post("/v1/runs", json={"name": "r", "batch_size": 2})
    reply = await client.post("/v1/runs/r/groups", content=in_binary(GROUP), headers={"Content-Type": sent})
    assert reply.status_code == status, reply.text


async def test_a_blob_may_be_compressed(client: httpx.AsyncClient) -> None:
    await client.post("/v1/runs", json={"name": "r", "batch_size": 2})
    packed = gzip.compress(in_binary(GROUP))
    headers = BINARY | {"Content-Encoding": "gzip"}
    assert (await client.post("/v1/runs/r/groups", content=packed, headers=headers)).status_code == 201
    assert (await client.post("/v1/runs/r/groups", content=packed[:-9], headers=headers)).status_code == 400
    twice = await client.post("/v1/runs/r/groups", content=gzip.compress(packed), headers=headers)
    assert twice.json()["code"] == "malformed_body"


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("APPLICATION/JSON", "application/json"),
        ("application/x-safetensors", "application/x-safetensors"),
        ("application/x-safetensors, application/json", "application/x-safetensors"),
        ("application/json, application/x-safetensors", "application/json"),
        ("application/json;q=0.1, application/x-safetensors", "application/x-safetensors"),
        ("application/json;q=0, */*", "application/x-safetensors"),
        ("application/x-safetensors;q=0, */*;q=0.1", "application/json"),
        ("text/html, */*;v=1;q=0.5", "application/json"),
        ("application/x-safetensors;q=0", None),
        ("*/*;q=0.000", None),
        ("application/json;q=many", None),
        ("text/html", None),
    ],
)
async def test_a_batch_comes_in_the_media_type_that_is_liked_best(
    client: httpx.AsyncClient, accept: str | None, answer: str | None
) -> None:
    await client.post("/v1/runs", json={"name": "r", "batch_size": 2})
    await client.post("/v1/runs/r/groups", json=GROUP)
    client.headers.pop("accept")
    reply = await client.post("/v1/runs/r/batches", headers={} if accept is None else {"Accept": accept})
    if answer is None:
        assert (reply.status_code, reply.json()["code"]) == (406, "not_acceptable")
        assert (await client.get("/v1/runs/r/batches")).json()["batches"] == []
    else:
        assert (reply.status_code, reply.headers["content-type"]) == (201, answer)
