"""A trainer adds values per token to groups, which are shown with their contents and their history."""

from typing import Any

import httpx
import pytest

from lachesis.wire.columns import unpack
from lachesis.wire.groups import SAFETENSORS
from tests.api.groups.test_listing import GROUPS, RUN, group, made, send, take

ENTROPY = [[0.5, 0.25, 0.0], [1.5]]


async def annotate(client: httpx.AsyncClient, name: str, **annotations: Any) -> httpx.Response:
    return await client.post(f"{GROUPS}/{name}/annotations", json={"annotations": annotations})


async def test_annotations_are_shown_with_contents_and_stay_with_the_history(client: httpx.AsyncClient) -> None:
    await made(client)
    await send(client, group("a"), group("b"))
    assert (await client.get(f"{GROUPS}/a")).json()["annotations"] == []
    batch = await take(client)
    for _ in range(2):
        reply = await annotate(client, "a", entropy=ENTROPY, mismatch=[[1, 2, 3], [4]])
        assert (reply.status_code, reply.json()) == (200, {"id": "a", "annotations": ["entropy", "mismatch"]})
    await annotate(client, "a", mismatch=[[0.1, 0.1, 0.1], [0.1]])
    tenth = 0.10000000149011612  # in 32 bits
    mismatch = [[tenth] * 3, [tenth]]
    content = (await client.get(f"{GROUPS}/a/content")).json()
    assert content["annotations"] == {"entropy": ENTROPY, "mismatch": mismatch}
    assert content["tokens"] == [[1, 2, 3], [4]]
    part = {"sequence": 0, "from": 1, "tokens": 1}
    shown = (await client.get(f"{GROUPS}/a/content", params=part)).json()
    assert shown["annotations"] == {"entropy": [[0.25]], "mismatch": [[tenth]]}
    binary = await client.get(f"{GROUPS}/a/content", headers={"Accept": SAFETENSORS})
    read = unpack(binary.content)
    assert read.tensors["annotations.entropy"].tolist() == [0.5, 0.25, 0.0, 1.5]
    assert read.columns["tokens"].values.tolist() == [1, 2, 3, 4]
    binary = await client.get(f"{GROUPS}/a/content", params=part, headers={"Accept": SAFETENSORS})
    assert unpack(binary.content).tensors["annotations.entropy"].tolist() == [0.25]
    assert (await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})).status_code < 300
    assert (await client.post(f"{RUN}/checkpoints", json={"step": 1})).status_code == 200
    assert (await client.get(f"{GROUPS}/a/content")).status_code == 410
    assert (await client.get(f"{GROUPS}/a")).json()["annotations"] == ["entropy", "mismatch"]
    kept = (await client.get(f"{GROUPS}/a/annotations")).json()
    assert kept == {"id": "a", "lengths": [3, 1], "annotations": {"entropy": ENTROPY, "mismatch": mismatch}}
    assert (await client.get(f"{GROUPS}/b/annotations")).json() == {"id": "b", "lengths": [], "annotations": {}}
    gone = await annotate(client, "a", entropy=ENTROPY)
    assert (gone.status_code, gone.json()["code"]) == (410, "group_gone")
    assert (await annotate(client, "unknown", entropy=ENTROPY)).json()["code"] == "group_not_found"


@pytest.mark.parametrize(
    ("annotations", "place"),
    [
        ({}, ["annotations"]),
        ({f"a{n}": ENTROPY for n in range(9)}, ["annotations"]),
        ({"Entropy": ENTROPY}, ["annotations", "Entropy"]),
        ({"a b": ENTROPY}, ["annotations", "a b"]),
        ({".lengths": ENTROPY}, ["annotations", ".lengths"]),
        ({"a": 1}, ["annotations", "a"]),
        ({"a": [[1, 2, 3]]}, ["annotations", "a"]),
        ({"a": [[1, 2, 3], [4, 5]]}, ["annotations", "a", 1]),
        ({"a": [[1, "x", 3], [4]]}, ["annotations", "a", 0, 1]),
        ({"a": [[1, 2, 3], [None]]}, ["annotations", "a", 1, 0]),
        ({"a": [[1, 2, 3], [1e39]]}, ["annotations", "a", 1, 0]),
        ({"good": ENTROPY, "a": [[1, 2, 3], []]}, ["annotations", "a", 1]),
    ],
    ids=str,
)
async def test_what_does_not_fit_is_refused_with_its_place_and_nothing_is_stored(
    client: httpx.AsyncClient, annotations: dict[str, Any], place: list[str | int]
) -> None:
    await made(client)
    await send(client, group("a"))
    reply = await annotate(client, "a", **annotations)
    assert reply.status_code == 422, reply.text
    assert reply.json()["errors"][0]["loc"] == place
    assert (await client.get(f"{GROUPS}/a")).json()["annotations"] == []


async def test_the_name_of_a_tensor_of_the_sender_is_refused(client: httpx.AsyncClient) -> None:
    """Both would be `annotations.entropy` in binary, and an export would leave out the sender's."""
    await made(client)
    own = {"dtype": "U8", "shape": [1], "data": "Bw=="}
    await send(client, group("a", tensors={"annotations.entropy": own, "mismatch": own}))
    reply = await annotate(client, "a", entropy=ENTROPY)
    assert reply.status_code == 422, reply.text
    assert reply.json()["errors"][0]["loc"] == ["annotations", "entropy"]
    assert (await annotate(client, "a", mismatch=ENTROPY)).status_code == 200
    binary = await client.get(f"{GROUPS}/a/content", headers={"Accept": SAFETENSORS})
    assert sorted(unpack(binary.content).tensors) == ["annotations.entropy", "annotations.mismatch", "mismatch"]


@pytest.mark.parametrize(
    "body", ["", "[]", '{"annotations": {"a": [], "a": []}}', '{"annotations": {}', '{"notes": {}}']
)
async def test_a_body_of_another_kind_is_refused(client: httpx.AsyncClient, body: str) -> None:
    await made(client)
    await send(client, group("a"))
    reply = await client.post(f"{GROUPS}/a/annotations", content=body)
    assert reply.status_code in (400, 422), reply.text
