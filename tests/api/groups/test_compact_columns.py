"""Compact columns on the wire: who sends them, who gets them, and what is refused."""

from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from lachesis.wire.batch_file import BatchFile
from lachesis.wire.blob import read_header, write
from lachesis.wire.groups import COMPACT_SAFETENSORS, SAFETENSORS
from tests.api.native_groups import BINARY

RUN = "/v1/runs/math"
USUAL = {
    "tokens": np.int32([1, 2, 3, 4, 5, 6, 7, 8, 9]),
    "tokens.lengths": np.int32([4, 5]),
    "masks.trained": np.packbits([0, 1, 1, 1, 0, 0, 1, 1, 1]),
    "scores": np.float32([0, 1]),
    "advantages.per_sequence": np.float32([-0.5, 0.5]),
    "policy_versions.per_sequence": np.int32([0, 0]),
}
IN_FULL = {
    "tokens": [1, 2, 3, 4, 5, 6, 7, 8, 9],
    "masks": [-100, 2, 3, 4, -100, -100, 7, 8, 9],
    "scores": [0.0, 1.0],
    "advantages": [-0.5] * 4 + [0.5] * 5,
    "policy_versions": [0] * 9,
}


async def make_run(client: httpx.AsyncClient, **settings: Any) -> None:
    (await client.post("/v1/runs", json={"name": "math", "batch_size": 2, **settings})).raise_for_status()


async def submit(client: httpx.AsyncClient, tensors: dict[str, NDArray[Any]]) -> httpx.Response:
    return await client.post(f"{RUN}/groups", content=write(tensors), headers=BINARY)


@pytest.mark.parametrize("accept", [SAFETENSORS, COMPACT_SAFETENSORS, f"{SAFETENSORS} ; columns=COMPACT, */*"])
async def test_readers_get_compact_columns_only_if_they_ask(client: httpx.AsyncClient, accept: str) -> None:
    await make_run(client)
    assert (await submit(client, USUAL)).status_code == 201
    reply = await client.post(f"{RUN}/batches", headers={"Accept": accept})
    names = read_header(reply.content).tensors.keys()
    assert ("masks.trained" in names, "masks" in names) == ((True, False) if "columns" in accept else (False, True))
    file = BatchFile(reply.content)
    assert {name: file.of_group(0, name).tolist() for name in IN_FULL} == IN_FULL
    assert file.dtype(0, "masks") == "I32"


async def test_json_has_the_columns_in_full(client: httpx.AsyncClient) -> None:
    await make_run(client)
    await submit(client, USUAL)
    reply = await client.post(f"{RUN}/batches", headers={"Accept": "application/json"})
    (group,) = reply.json()["groups"]
    rows = {name: value if name == "scores" else [value[:4], value[4:]] for name, value in IN_FULL.items()}
    assert {name: group[name] for name in IN_FULL} == rows


async def test_what_came_as_json_is_stored_compact(client: httpx.AsyncClient) -> None:
    await make_run(client)
    cut = {name: value if name == "scores" else [value[:4], value[4:]] for name, value in IN_FULL.items()}
    (await client.post(f"{RUN}/groups", json=cut)).raise_for_status()
    reply = await client.post(f"{RUN}/batches", headers={"Accept": COMPACT_SAFETENSORS})
    assert USUAL.keys() <= read_header(reply.content).tensors.keys()


async def test_a_chunk_has_the_mean_version_of_its_tokens_in_each_form(client: httpx.AsyncClient) -> None:
    await make_run(client)
    (await client.put(f"{RUN}/replay", json={"groups": True})).raise_for_status()
    (await client.put(f"{RUN}/policy-version", json={"policy_version": 9})).raise_for_status()
    plain = {name: tensor for name, tensor in USUAL.items() if not name.startswith("policy_versions")}
    forms = {"policy_versions": [0] * 4 + [9] * 5, "policy_versions.per_sequence": [0, 9]}
    for name, versions in forms.items():
        assert (await submit(client, plain | {name: np.int32(versions)})).status_code == 201
        batch = (await client.post(f"{RUN}/batches")).json()
        (await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})).raise_for_status()
    chunks = (await client.get(f"{RUN}/replay/chunks")).json()["chunks"]
    assert [(one["version"], one["mean_version"], one["highest_version"]) for one in chunks] == [(0, 5.0, 9)] * 2


async def test_a_rank_gets_its_part_of_compact_columns(client: httpx.AsyncClient) -> None:
    await make_run(client)
    await submit(client, USUAL)
    masks = []
    for rank in range(2):
        asked = {"rank": rank, "world_size": 2, "split_groups": "true"}
        reply = await client.post(f"{RUN}/batches", params=asked, headers={"Accept": SAFETENSORS})
        assert reply.status_code == 201, reply.text
        masks.append(BatchFile(reply.content).of_group(0, "masks").tolist())
    assert sorted(masks) == sorted([IN_FULL["masks"][:4], IN_FULL["masks"][4:]])


@pytest.mark.parametrize(
    ("name", "tensor", "place", "said"),
    [
        ("masks.trained", np.uint8([0]), "masks.trained", "2 sequences of 9 tokens need 2"),
        ("masks.trained", np.uint8([0, 0, 0]), "masks.trained", "has 3 values"),
        ("masks.trained", np.int32([0, 0]), "masks.trained", "dtype I32"),
        ("masks.trained", np.uint8([[0, 0]]), "masks.trained", "2 dimensions"),
        ("masks", np.int32(range(9)), "masks.trained", "stands for masks, as does masks"),
        ("masks.per_sequence", np.int32([1, 1]), "masks.per_sequence", "stands for masks, as does masks.trained"),
        ("masks.lengths", np.int32([4, 5]), "masks.lengths", "masks, which is missing"),
        ("advantages.per_sequence", np.float32([1, np.inf]), "advantages.per_sequence.1", "not a finite number"),
        ("advantages.per_sequence", np.float32([1]), "advantages.per_sequence", "has 1 values"),
        ("advantages.per_sequence", np.int32([1, 2]), "advantages.per_sequence", "dtype I32"),
        ("policy_versions.per_sequence", np.int32([0, -1]), "policy_versions.1", "is negative: -1"),
    ],
)
async def test_wrong_compact_tensors_are_refused_by_name(
    client: httpx.AsyncClient, name: str, tensor: NDArray[Any], place: str, said: str
) -> None:
    await make_run(client)
    reply = await submit(client, {**USUAL, name: tensor})
    assert reply.status_code == 422, reply.text
    (error,) = reply.json()["errors"]
    assert ".".join(map(str, error["loc"])) == place
    assert said in error["msg"]
    assert (await client.get(f"{RUN}/status")).json()["groups"]["accepted"] == 0
