"""The place of a wrong value follows one rule, however the body was sent."""

from typing import Any

import httpx
import pytest

from lachesis.wire.frame import frame
from tests.api.native_groups import BINARY, in_binary

GROUP: dict[str, Any] = {"tokens": [[1], [2]], "masks": [[1], [2]], "scores": [0.5, 1.0]}
RUN = "/v1/runs/r"


@pytest.fixture
async def client(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client of a service that has the run."""
    await client.post("/v1/runs", json={"name": "r", "batch_size": 2})
    return client


async def place_of(client: httpx.AsyncClient, method: str, path: str, **sent: Any) -> list[str | int]:
    """The place that a refusal names, once as a path and once in its sentence."""
    problem = (await client.request(method, path, **sent)).json()
    assert problem["code"] == "invalid_field", problem
    loc: list[str | int] = problem["errors"][0]["loc"]
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")
    assert problem["detail"].startswith(f"{text}: ")
    return loc


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"policy_version": -1}, ["policy_version"]),  # found among its keys
        ({"scores": [0.5]}, ["scores"]),  # found among its columns
        ({"masks": [[1], [2, 3]]}, ["masks", 1]),
    ],
    ids=str,
)
async def test_the_groups_of_a_frame_are_where_those_of_json_are(
    client: httpx.AsyncClient, wrong: dict[str, Any], place: list[str | int]
) -> None:
    right, bad = GROUP | {"id": "a"}, GROUP | {"id": "b"} | wrong
    alone = [{"json": bad}, {"content": in_binary(bad), "headers": BINARY}]
    second = [{"json": {"groups": [right, bad]}}]
    second.append({"content": frame([in_binary(right), in_binary(bad)], "groups"), "headers": BINARY})
    for sent in alone:
        assert await place_of(client, "POST", f"{RUN}/groups", **sent) == place
    for sent in second:
        assert await place_of(client, "POST", f"{RUN}/groups", **sent) == ["groups", 1, *place]


async def test_a_wrong_number_beside_what_is_no_group_has_its_place(client: httpx.AsyncClient) -> None:
    text = '{"groups": [{"tokens": [[1]], "masks": [[1]], "scores": [1e999]}, 7]}'
    sent = {"content": text, "headers": {"Content-Type": "application/json"}}
    assert await place_of(client, "POST", f"{RUN}/groups", **sent) == ["groups", 0, "scores", 0]


@pytest.mark.parametrize(
    ("method", "path", "body", "place"),
    [
        ("POST", "/v1/runs", {"name": "s", "batch_size": 0}, ["batch_size"]),
        ("POST", "/v1/runs", {"name": "s", "batch_size": 1, "atropos": {"num_steps": "x"}}, ["atropos", "num_steps"]),
        ("POST", f"{RUN}/rewind", {"step": 9}, ["step"]),
        ("POST", f"{RUN}/rewind", {"step": 9, "colour": "red"}, ["colour"]),
        ("POST", f"{RUN}/batches?wait_s=soon", {}, ["query", "wait_s"]),
        ("POST", f"{RUN}/batches?wait=3", {}, ["query", "wait"]),
        ("POST", "/v1/runs/-/batches", {}, ["path", "run"]),
        ("POST", "/v1/runs/-/groups", GROUP, ["path", "run"]),
        ("POST", f"{RUN}/batches/x/ack", {"lease": "x"}, ["path", "batch"]),
    ],
)
async def test_a_place_is_a_path_in_the_body_or_names_a_parameter(
    client: httpx.AsyncClient, method: str, path: str, body: Any, place: list[str | int]
) -> None:
    assert await place_of(client, method, path, json=body) == place


async def test_a_misspelt_field_is_named_with_the_one_that_may_be_meant(client: httpx.AsyncClient) -> None:
    misspelt = await client.post("/v1/runs", json={"name": "s", "batch_size": 1, "maxstaleness": 4})
    assert misspelt.json()["detail"] == "maxstaleness: is unknown here; did you mean max_staleness?"
    required = await client.post("/v1/runs", json={"name": "s", "batchsize": 1})
    assert required.json()["detail"] == "batchsize: is unknown here; did you mean batch_size?"
    further_down = await client.post("/v1/runs", json={"name": "s", "batch_size": 1, "atropos": {"colour": "red"}})
    assert further_down.json()["detail"] == "atropos.colour: is unknown here"
