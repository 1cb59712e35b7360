"""Who makes a run that does not exist by sending a group to it."""

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RUNS
from app.store.runs.store import MOST_RUNS
from tests.api.access.conftest import Tokens, bearer
from tests.api.atropos_calls import registration
from tests.api.conftest import Start

GROUP = {"tokens": [[1]], "masks": [[1]], "scores": [1.0]}


def place(run: str, path: str = "scored_data") -> str:
    return f"/runs/{run}/atropos/{path}"


@pytest.mark.parametrize("pattern", ["math-*", "*"])
async def test_groups_of_a_worker_for_a_pattern_make_no_runs(start: Start, tokens: Tokens, pattern: str) -> None:
    """It could take all the runs that the service may have."""
    worker, operator = await tokens.make("environment", pattern), await tokens.make("operator")
    client = await start()
    for path, sent in (("scored_data", GROUP), ("scored_data_list", [GROUP])):
        reply = await client.post(place("math-1", path), json=sent, headers=bearer(worker))
        assert (reply.status_code, reply.json()["code"]) == (404, "run_not_found")
    listed = (await client.get("/v1/runs", headers=bearer(operator))).json()
    assert (listed["runs"], listed["unconfigured"]) == ([], [])
    await client.post("/v1/runs", json={"name": "math-1", "batch_size": 1}, headers=bearer(operator))
    assert (await client.post(place("math-1"), json=GROUP, headers=bearer(worker))).status_code == 200


async def test_groups_of_a_worker_for_a_pattern_do_not_bring_a_deleted_run_back(start: Start, tokens: Tokens) -> None:
    worker, operator = bearer(await tokens.make("environment", "math-*")), bearer(await tokens.make("operator"))
    client, other = await start(), await start()
    await client.post("/v1/runs", json={"name": "math-1", "batch_size": 1}, headers=operator)
    for process in (client, other):
        assert (await process.post(place("math-1"), json=GROUP, headers=worker)).status_code == 200
    assert (await client.delete("/v1/runs/math-1", headers=operator)).status_code == 204
    for process in (client, other):
        reply = await process.post(place("math-1"), json=GROUP, headers=worker)
        assert (reply.status_code, reply.json()["code"]) == (404, "run_not_found")
    assert (await client.get("/v1/runs", headers=operator)).json()["unconfigured"] == []


@pytest.mark.parametrize(("role", "runs"), [("environment", ("math-1", "code-*")), ("operator", ("math-*",))])
async def test_early_groups_wait_for_the_trainer_if_the_token_names_the_run(
    start: Start, tokens: Tokens, role: str, runs: tuple[str, ...]
) -> None:
    sender, trainer = bearer(await tokens.make(role, *runs)), bearer(await tokens.make("trainer", "math-1"))
    client = await start()
    assert (await client.post(place("math-1"), json=GROUP, headers=sender)).status_code == 200
    await client.post(place("math-1", "register"), json=registration(batch_size=1), headers=trainer)
    assert (await client.get(place("math-1", "batch"), headers=trainer)).json()["batch"]


async def test_groups_between_a_reset_and_the_next_registration_are_kept(start: Start, tokens: Tokens) -> None:
    worker, trainer = bearer(await tokens.make("environment", "math-*")), bearer(await tokens.make("trainer", "math-*"))
    client = await start()
    await client.post(place("math-1", "register"), json=registration(batch_size=1), headers=trainer)
    assert (await client.get(place("math-1", "reset_data"), headers=trainer)).status_code == 200
    assert (await client.post(place("math-1"), json=GROUP, headers=worker)).status_code == 200
    await client.post(place("math-1", "register"), json=registration(batch_size=1), headers=trainer)
    assert (await client.get(place("math-1", "batch"), headers=trainer)).json()["batch"]


async def test_a_run_without_settings_is_listed_and_can_be_deleted(client: httpx.AsyncClient) -> None:
    assert (await client.post(place("math-1"), json=GROUP)).status_code == 200
    assert (await client.get("/v1/runs")).json()["unconfigured"] == ["math-1"]
    assert (await client.delete("/v1/runs/math-1")).status_code == 204
    assert (await client.get("/v1/runs")).json()["unconfigured"] == []
    assert (await client.delete("/v1/runs/math-1")).status_code == 404


async def test_too_many_runs_are_refused_with_what_to_do(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await redis_client.zadd(RUNS, {f"run-{number}": 1e15 for number in range(MOST_RUNS)})
    made = {"name": "math-1", "batch_size": 1}
    calls = [("/v1/runs", made), (place("math-1"), GROUP), (place("math-1", "register"), registration(batch_size=1))]
    for path, sent in calls:
        problem = (await client.post(path, json=sent)).json()
        assert (problem["status"], problem["code"]) == (409, "too_many_runs")
        assert "Delete runs that are not needed" in problem["remedy"]
