"""What is documented under ``/v1`` is what is answered: a real call of each operation, for each way it succeeds."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from jsonschema_rs import Draft202012Validator
from redis.asyncio import Redis

from app.api.codec.group_json import KNOWN, decode_native_json
from app.store.redis.keys import RunKeys
from lachesis.wire.errors import InvalidField
from lachesis.wire.groups import SAFETENSORS, SubmittedGroup
from tests.api.http.conformance import OPENAPI, OPERATIONS, Operation, answers, check_reply, example_body
from tests.api.native_groups import in_json, native_groups
from tests.properties import examples

RUN = "/v1/runs/math-rl"
GROUP = example_body(OPERATIONS["POST", "/v1/runs/{run}/groups"])
ONE = {name: value[:1] if isinstance(value, list) else value for name, value in GROUP.items()}
HELD_S = 100.0

SUBMITTED = Draft202012Validator(
    {"$ref": "#/components/schemas/SubmittedGroup", "components": OPENAPI["components"]},
)


async def lease(client: httpx.AsyncClient) -> tuple[str, dict[str, str]]:
    """Submit a group and take the batch it makes: its path, and the body that ends it."""
    await client.post(f"{RUN}/groups", json={name: value for name, value in ONE.items() if name != "id"})
    batch = (await client.post(f"{RUN}/batches", json={"lease_s": HELD_S})).json()
    return f"{RUN}/batches/{batch['batch']}", {"lease": batch["lease"]}


async def live_through_a_run(client: httpx.AsyncClient, redis_client: Redis) -> None:
    """Use everything once."""
    for _ in range(2):
        await client.post("/v1/runs", json={"name": "math-rl", "batch_size": 1, "max_deliveries": 1})
        await client.post(f"{RUN}/environments", json={"name": "gsm8k"})
    for path in ("", "/math-rl", "/math-rl/status", "/math-rl/environments", "/math-rl/environments/0"):
        await client.get(f"/v1/runs{path}")
    await client.get(f"{RUN}/events?after=0")
    await client.post(f"{RUN}/environments", json={"name": "gsm8k", "member": "m"})
    await client.get(f"{RUN}/environments/0/members")
    await client.get(f"{RUN}/environments/0/credits")
    await client.post(f"{RUN}/environments/0/heartbeat", json={"member": "m", "running_groups": 3})
    await client.patch(f"{RUN}/environments/0", json={"min_share": 0.5})
    await client.patch(RUN, json={"max_staleness": 64})
    await client.post(f"{RUN}/batches?wait_s=0")
    await client.get(f"{RUN}/batches/explain?batch_size=2&relax_after_s=1")
    for _ in range(2):
        await client.post(f"{RUN}/groups", json=ONE)
    await client.get(f"{RUN}/groups")
    await client.get(f"{RUN}/groups/{ONE['id']}")
    await client.get(f"{RUN}/groups/{ONE['id']}/content")
    entropy = {"annotations": {"entropy": [[0.5] * len(row) for row in ONE["tokens"]]}}
    await client.post(f"{RUN}/groups/{ONE['id']}/annotations", json=entropy)
    await client.get(f"{RUN}/groups/{ONE['id']}/annotations")
    await client.post(f"{RUN}/batches", headers={"Accept": SAFETENSORS})
    await client.get(f"{RUN}/batches")
    await client.get(f"{RUN}/batches/recent")
    await client.get(f"{RUN}/history")
    await client.get(f"{RUN}/history/histograms?value=reward")
    await client.get(f"{RUN}/history/shares")
    batch, ended = await lease(client)
    await client.get(batch)
    for verb in ("extend", "ack"):
        await client.post(f"{batch}/{verb}", json=ended)
    batch, ended = await lease(client)
    await client.post(f"{batch}/nack", json=ended)
    poisoned = (await client.post(f"{RUN}/batches", json={"lease_s": HELD_S})).json()["batch"]
    await redis_client.hincrby(RunKeys("math-rl").run, "clock_ms", round(1000 * HELD_S))  # type: ignore[misc]
    await client.post(f"{RUN}/batches")
    await client.delete(f"{RUN}/batches/{poisoned}")
    await client.put(f"{RUN}/policy-version", json={"policy_version": 42})
    await client.post(f"{RUN}/checkpoints", json={"step": 1})
    await client.post(f"{RUN}/rewind", json={"step": 1})
    for name in ("unwanted", "stale"):
        await client.post(f"{RUN}/groups", json=ONE | {"id": name})
    await client.delete(f"{RUN}/groups/unwanted")
    await client.delete(f"{RUN}/groups?size={len(ONE['tokens'])}")
    await client.post("/v1/shards/plan", json={"ranks": 2, "lengths": [3, 1, 2]})
    await use_a_buffer(client)
    await use_a_curriculum(client)
    await client.delete(f"{RUN}/environments/0")
    await client.delete(RUN)
    await use_tokens(client)
    await client.get("/v1/audit?limit=1")
    await client.get("/v1/identity")


async def use_a_buffer(client: httpx.AsyncClient) -> None:
    """Use all of a replay buffer once."""
    replay = f"{RUN}/replay"
    await client.put(replay, json={})
    await client.patch(replay, json={"max_reuse": None})
    await client.get(replay)
    await client.put(f"{replay}/session", json={"session": 0})
    await client.post(f"{replay}/samples", json={"num_chunks": 1})
    fragment = example_body(OPERATIONS["POST", "/v1/runs/{run}/replay/fragments"])
    receipt = (await client.post(f"{replay}/fragments", json=fragment)).json()["fragments"][0]
    await client.post(f"{replay}/fragments", json=fragment)
    await client.get(f"{replay}/fragments/{receipt['fragment']}")
    await client.post(f"{replay}/fragments/fetch", json={"fragments": [receipt["fragment"]]})
    for accept in ("application/json", SAFETENSORS):
        headers = {"Accept": accept}
        taken = await client.post(f"{replay}/samples", json={"num_chunks": 1, "request_id": "s"}, headers=headers)
        await client.get(f"{replay}/samples/{taken.headers['lachesis-sample']}", headers=headers)
    for verb in ("extend", "nack", "ack"):
        held = (await client.post(f"{replay}/samples", json={"num_chunks": 1, "request_id": "s"})).json()
        await client.post(f"{replay}/samples/{held['sample']}/{verb}", json={"lease": held["lease"]})
    await client.patch(f"{replay}/priorities", json={"priorities": {"1": 0.5}})
    await client.get(f"{replay}/chunks?limit=1")
    await client.get(f"{replay}/grid")
    await client.delete(f"{replay}/chunks?below_version=1")
    await client.post(f"{replay}/snapshots", json={"name": "a"})
    await client.get(f"{replay}/snapshots")
    await client.post(f"{replay}/restore", json={"name": "a"})
    await client.delete(f"{replay}/snapshots/a")
    await client.delete(replay)


async def use_a_curriculum(client: httpx.AsyncClient) -> None:
    """Use all of a curriculum once."""
    curriculum = f"{RUN}/curricula/gsm8k"
    for method, path in (("PUT", ""), ("PATCH", ""), ("POST", "/items"), ("POST", "/samples"), ("POST", "/what-if")):
        operation = OPERATIONS[method, f"/v1/runs/{{run}}/curricula/{{curriculum}}{path}"]
        await client.request(method, f"{curriculum}{path}", json=example_body(operation))
    for _ in range(2):
        sample = (await client.post(f"{curriculum}/samples", json={"n": 1, "request_id": "s"})).json()["sample"]
    await client.post(f"{curriculum}/samples/{sample}/release", json={"items": ["gsm8k/17"]})
    for _ in range(2):
        observations = example_body(OPERATIONS["POST", "/v1/runs/{run}/curricula/{curriculum}/observations"])
        await client.post(f"{curriculum}/observations", json=observations | {"request_id": "o"})
    await client.get(f"{RUN}/curricula")
    for path in ("", "/metrics", "/items?limit=1", "/items/gsm8k/17", "/state"):
        saved = await client.get(f"{curriculum}{path}")
    await client.patch(f"{curriculum}/items/gsm8k/17", json={"category": "algebra"})
    headers = {"Content-Type": "application/jsonl"}
    await client.put(f"{curriculum}/state", content=saved.content, headers=headers)
    await client.put(f"{RUN}/curricula/other/state", json={"item_scores": {"a": [0.5, 2]}})
    await client.delete(f"{curriculum}/items/gsm8k/17")
    await client.delete(curriculum)


async def use_tokens(client: httpx.AsyncClient) -> None:
    """Use all of the tokens once. The first closes the service, so the client sends it from then on."""
    operator = (await client.post("/v1/tokens", json={"role": "operator"})).json()
    client.headers["Authorization"] = f"Bearer {operator['token']}"
    created = await client.post("/v1/tokens", json=example_body(OPERATIONS["POST", "/v1/tokens"]))
    token = f"/v1/tokens/{created.json()['id']}"
    await client.get("/v1/tokens")
    await client.post(f"{token}/rotate", json={"overlap_s": 60})
    await client.delete(token)


async def test_every_success_that_is_documented_is_answered_as_documented(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    seen: set[tuple[Operation, str]] = set()

    async def check(reply: httpx.Response) -> None:
        await reply.aread()
        operation = check_reply(reply)
        assert reply.is_success, reply.text
        assert operation is not None
        seen.add((operation, str(reply.status_code)))

    client.event_hooks["response"].append(check)
    await live_through_a_run(client, redis_client)
    documented = {
        (operation, status)
        for operation, said in OPERATIONS.items()
        for status in said["responses"]
        if status.startswith("2")
    }
    assert seen == documented


def test_what_is_documented_of_a_submitted_group_is_what_is_read() -> None:
    assert frozenset(SubmittedGroup.model_fields) == KNOWN


@examples(30)
@given(native_groups())
def test_a_group_that_is_taken_is_one_that_the_document_allows(group: dict[str, Any]) -> None:
    spelled = in_json(group | {"id": "g"})
    SUBMITTED.validate(spelled)


@pytest.mark.parametrize(
    "wrong",
    [
        {"env_id": 0},
        {"colour": "red"},
        {"id": "no id"},
        {"environment": -1},
        {"policy_version": 2**53},
        {"item": ""},
        {"cost": -1.0},
        {"metadata": []},
        {"scores": [[1.0]]},
        {"messages": [{}]},
        {"tensors": {"x": {"dtype": "I128", "shape": [1], "data": "AQ=="}}},
    ],
    ids=str,
)
def test_a_group_that_the_document_forbids_is_refused(wrong: dict[str, Any]) -> None:
    assert not SUBMITTED.is_valid(ONE | wrong)
    with pytest.raises(InvalidField):
        decode_native_json(json.dumps(ONE | wrong).encode())


def test_every_reference_of_the_document_leads_somewhere() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, list):
            return [found for item in value for found in references(item)]
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [found for item in value.values() for found in references(item)]
        return []

    components = {kind: named for kind, named in OPENAPI["components"].items() if kind != "securitySchemes"}
    there = {f"#/components/{kind}/{name}" for kind, named in components.items() for name in named}
    assert set(references(OPENAPI)) == there


@pytest.mark.parametrize("operation", OPERATIONS, ids=" ".join)
def test_every_problem_has_a_schema_with_its_codes(operation: Operation) -> None:
    problems = {status: said for status, said in answers(operation).items() if not status.startswith("2")}
    assert {"422", "500"} <= problems.keys()
    assert "503" in problems or "{run}" not in operation[1]
    for said in problems.values():
        problem, codes = said["content"]["application/problem+json"]["schema"]["allOf"]
        assert problem["$ref"].endswith("/Problem")
        assert codes["properties"]["code"]["enum"]


# Errors that every operation may have


def call(operation: Operation, **names: str) -> dict[str, Any]:
    """A request with the body of the document's example."""
    method, path = operation
    named = {"run": "typo", "environment": "0", "batch": "ab", "group": "g", "fragment": "f", "sample": "ab"}
    named |= {"snapshot": "a", "curriculum": "c", "key": "k", "token": "0f3a5c7e9b1d"} | names
    return {"method": method, "url": path.format(**named), "json": example_body(OPERATIONS[operation])}


NEEDED = {
    ("DELETE", "/v1/runs/{run}/groups"): {"environment": "0"},  # without a filter it deletes nothing
    ("GET", "/v1/runs/{run}/history/histograms"): {"value": "reward"},
}


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if "{run}" in one[1]], ids=" ".join)
async def test_every_operation_reports_a_missing_run(client: httpx.AsyncClient, operation: Operation) -> None:
    reply = await client.request(**call(operation), params=NEEDED.get(operation))
    assert (reply.status_code, reply.json()["code"]) == (404, "run_not_found")


@pytest.mark.parametrize("operation", OPERATIONS, ids=" ".join)
async def test_a_query_parameter_that_is_not_known_is_refused(client: httpx.AsyncClient, operation: Operation) -> None:
    reply = await client.request(**call(operation), params={"wait_s": "0", "colour": "red"})
    problem = reply.json()
    assert (reply.status_code, problem["code"]) == (422, "invalid_field")
    known = {one["name"] for one in OPERATIONS[operation].get("parameters", ()) if one["in"] == "query"}
    wrong = "colour" if "wait_s" in known else "wait_s"
    assert problem["errors"][0]["loc"] == ["query", wrong]
    assert problem["detail"].startswith(f"query.{wrong}: is unknown here")
    assert all(name in problem["detail"] for name in known)


PARAMETERS = [
    (operation, one["name"])
    for operation, described in OPERATIONS.items()
    for one in described.get("parameters", ())
    if one["in"] == "query"
]


@pytest.mark.parametrize(("operation", "name"), PARAMETERS, ids=str)
async def test_a_duplicate_query_parameter_is_refused(
    client: httpx.AsyncClient, operation: Operation, name: str
) -> None:
    """Even with the same value: a client that says a thing twice does not know what it says."""
    reply = await client.request(**call(operation), params=[(name, "1"), (name, "1")])
    problem = reply.json()
    assert (reply.status_code, problem["code"]) == (422, "invalid_field")
    assert (problem["errors"][0]["loc"], problem["detail"]) == (["query", name], f"query.{name}: duplicate parameter")


@pytest.mark.parametrize(
    ("misspelt", "meant"), [("wait", "wait_s"), ("Wait_S", "wait_s"), ("wait_seconds", "wait_s"), ("\n", "wait_s")]
)
async def test_the_refusal_of_a_misspelt_query_parameter_names_the_one_that_was_meant(
    client: httpx.AsyncClient, misspelt: str, meant: str
) -> None:
    reply = await client.post(f"{RUN}/batches", params={misspelt: "3"})
    assert reply.status_code == 422
    assert meant in reply.json()["detail"]


async def test_atropos_clients_may_send_any_query(client: httpx.AsyncClient) -> None:
    assert (await client.get("/status?colour=red")).status_code == 200
