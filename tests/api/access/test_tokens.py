"""Tokens against the real service."""

import asyncio
import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from starlette.types import Receive, Scope, Send

from app.main import create_app
from app.services.access.credentials import GivenCredentials
from app.settings import ServiceSettings
from app.store.server.embedded import EmbeddedRedis
from tests.api.access.conftest import Tokens, bearer, id_of
from tests.api.conftest import Start, running_service
from tests.api.log_capture import LogLines
from tests.scenarios.native_calls import group
from tests.waiting import wait_until

RUN = {"name": "math-1", "batch_size": 4}


async def test_without_a_token_an_open_service_asks_nobody(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/runs", json=RUN)).status_code == 201
    assert (await client.get("/v1/runs", headers=bearer("whatever"))).status_code == 200


async def test_the_first_token_closes_the_service(start: Start, tokens: Tokens) -> None:
    operator = await tokens.make("operator")
    client = await start()
    refused = await client.get("/v1/runs")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert refused.json()["code"] == "unauthorized"
    assert (await client.get("/v1/runs", headers=bearer(operator))).status_code == 200
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.get("/readyz")).status_code == 200


async def test_a_closed_service_logs_why_it_is_not_ready_but_not_each_time(
    start: Start, tokens: Tokens, log_lines: LogLines
) -> None:
    await tokens.make("operator")
    client = await start()
    (maintenance,) = [task for task in asyncio.all_tasks() if task.get_name() == "maintenance"]
    maintenance.cancel()
    await asyncio.wait([maintenance])
    for _ in range(20):
        reply = await client.get("/readyz")
        assert (reply.status_code, reply.json()["code"]) == (503, "maintenance_ended")
    lines = [line["message"] for line in log_lines.all if line["message"].startswith("not ready")]
    assert set(lines) == {"not ready: maintenance has ended in this process"}
    assert len(lines) < 5, "a line after 0, 10, 30, 70, 130 s"


async def test_a_token_is_a_password_too(start: Start, tokens: Tokens) -> None:
    operator = await tokens.make("operator")
    client = await start()
    for auth in ((operator, ""), ("anyone", operator)):
        assert (await client.get("/v1/runs", auth=auth)).status_code == 200


async def test_a_sender_learns_who_it_is_and_what_it_may_do(start: Start, tokens: Tokens) -> None:
    client = await start()
    anyone = (await client.get("/v1/identity")).json()
    assert (anyone["name"], anyone["kind"], anyone["role"], anyone["runs"]) == ("anyone", "open", "operator", ["*"])
    assert {"operate", "tokens", "audit"} <= set(anyone["permissions"])
    await tokens.make("operator")
    own = await start()
    viewer = await own.get("/v1/identity", headers=bearer(await tokens.make("viewer", "math-*", name="ann")))
    assert (viewer.json()["name"], viewer.json()["runs"]) == ("ann", ["math-*"])
    assert viewer.json()["permissions"] == ["open", "describe", "metrics", "list_runs", "read", "read_settings"]
    assert (await own.get("/v1/identity")).status_code == 401
    assert (await own.get("/v1/identity", headers=bearer(await tokens.make("metrics")))).status_code == 403


async def test_an_environment_with_a_name_acts_for_this_one_alone(start: Start, tokens: Tokens) -> None:
    operator = bearer(await tokens.make("operator"))
    client = await start()
    await client.post("/v1/runs", json=RUN, headers=operator)
    environments = "/v1/runs/math-1/environments"
    other = (await client.post(environments, json={"name": "code", "group_size": 2}, headers=operator)).json()
    own = bearer(await tokens.make("environment", "math-*", environment="gsm8k"))
    refused = await client.post(environments, json={"name": "code"}, headers=own)
    assert refused.status_code == 403
    assert refused.json()["detail"] == "the credentials are for environment 'gsm8k' only, not for 'code'"
    heartbeat = await client.post(f"{environments}/{other['id']}/heartbeat", json={"member": "m"}, headers=own)
    assert "code" not in heartbeat.json()["detail"], "the token may not read names of others"
    joined = await client.post(environments, json={"name": "gsm8k", "group_size": 2}, headers=own)
    assert joined.status_code == 201
    mine = joined.json()

    async def statuses(of: Mapping[str, Any]) -> list[int]:
        place, member = f"{environments}/{of['id']}", of["member"]
        replies = [
            await client.post(f"{place}/heartbeat", json={"member": member}, headers=own),
            await client.get(f"{place}/credits", headers=own),
            await client.get("/runs/math-1/atropos/status-env", params={"env_id": of["id"]}, headers=own),
            await client.post(
                "/v1/runs/math-1/groups", json=group(f"g{of['id']}") | {"environment": of["id"]}, headers=own
            ),
            await client.post("/runs/math-1/atropos/disconnect-env", json={"env_id": of["id"]}, headers=own),
            await client.delete(place, params={"member": member}, headers=own),
        ]
        return [reply.status_code for reply in replies]

    assert await statuses(other) == [403] * 6
    assert await statuses(mine) == [200, 200, 200, 201, 200, 204]
    assert (await client.post("/v1/runs/math-1/groups", json=group("g"), headers=own)).status_code == 403


async def test_an_environment_with_a_name_does_not_multiply_its_minimum(start: Start, tokens: Tokens) -> None:
    """Each client of Atropos is an environment of its own, but all of one token together are one."""
    operator = bearer(await tokens.make("operator"))
    own = bearer(await tokens.make("environment", "math-*", environment="gsm8k"))
    client = await start()
    await client.post("/v1/runs", json=RUN, headers=operator)
    await client.post("/v1/runs/math-1/batches", json={}, headers=operator)
    asked = {"desired_name": "gsm8k", "max_token_length": 512, "weight": 1.0, "group_size": 2}

    async def registered(headers: dict[str, str]) -> str:
        body = asked | {"min_batch_allocation": 0.75}
        reply = await client.post("/runs/math-1/atropos/register-env", json=body, headers=headers)
        return str(reply.json()["wandb_name"])

    names = [await registered(own), await registered(own), await registered(operator)]
    assert names == ["gsm8k_0", "gsm8k_1", "gsm8k_2"]
    status = (await client.get("/v1/runs/math-1/status", headers=operator)).json()
    promised = [one["share_promised"] for one in status["environments"]]
    assert promised == [0.75, 0.25, 0.75], "others are free to ask for more"


async def test_an_environment_with_a_name_sends_fragments_of_its_own_workers(start: Start, tokens: Tokens) -> None:
    operator = bearer(await tokens.make("operator"))
    client = await start()
    await client.post("/v1/runs", json=RUN, headers=operator)
    assert (await client.put("/v1/runs/math-1/replay", json={}, headers=operator)).status_code == 200
    own = bearer(await tokens.make("environment", "math-*", environment="gsm8k"))

    async def sent(worker: str, headers: dict[str, str]) -> int:
        tensors = {"a": {"dtype": "U8", "shape": [1], "data": "AQ=="}}
        body = {"worker": worker, "number": 0, "policy_version": 0, "tensors": tensors}
        reply = await client.post("/v1/runs/math-1/replay/fragments", json=body, headers=headers)
        assert reply.status_code in (201, 403), reply.text
        return reply.status_code

    assert [await sent(worker, own) for worker in ("gsm8k", "gsm8k/0", "gsm8k/node-7:3")] == [201] * 3
    assert [await sent(worker, own) for worker in ("code", "gsm8k-0", "gsm8", "GSM8K/0", "code/gsm8k")] == [403] * 5
    assert await sent("code", operator) == 201


async def test_lists_show_own_runs(start: Start, tokens: Tokens) -> None:
    operator = bearer(await tokens.make("operator"))
    client = await start()
    for name in ("math-1", "code"):
        await client.post("/v1/runs", json={"name": name, "batch_size": 4}, headers=operator)
    viewer = bearer(await tokens.make("viewer", "math-*"))
    assert [run["name"] for run in (await client.get("/v1/runs", headers=viewer)).json()["runs"]] == ["math-1"]
    shown = (await client.get("/metrics", headers=viewer)).text
    assert 'run="math-1"' in shown
    assert 'run="code"' not in shown
    everything = bearer(await tokens.make("metrics"))
    assert 'run="code"' in (await client.get("/metrics", headers=everything)).text
    foreign = await client.get("/v1/runs/code", headers=viewer)
    missing = await client.get("/v1/runs/none", headers=operator)
    assert foreign.status_code == missing.status_code == 404
    assert foreign.text == missing.text.replace("none", "code")


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ([], 401, "no credentials"),
        ([("Authorization", "Bearer")], 401, "no token"),
        ([("Authorization", "Bearer x"), ("Authorization", "Bearer y")], 401, "more than one"),
        ([("Authorization", "Digest x")], 401, "neither Bearer nor Basic"),
        ([("Authorization", "Basic ###")], 401, "base64"),
        ([("Authorization", "Basic " + base64.b64encode(b":").decode())], 401, "no token"),
        ([("Authorization", "Bearer lch_env_secret")], 401, "not a token of this service"),
        ([("Authorization", "Bearer lch_env_0f3a5c7e9b1d_" + "a" * 43)], 401, "unknown"),
        ([("Authorization", "Bearer " + "a" * 17000)], 431, "over 16384 bytes"),
        ([("Authorization", "Bearer \xff\xfe")], 401, "not a token of this service"),
    ],
)
async def test_bad_credentials_get_a_reason_and_no_echo(
    start: Start, tokens: Tokens, headers: list[tuple[str, str]], status: int, reason: str
) -> None:
    await tokens.make("operator")
    client = await start()
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    reply = await client.get("/v1/runs", headers=sent)
    assert reply.status_code == status
    assert reason in reply.json()["detail"]
    assert "secret" not in reply.text
    assert "aaaa" not in reply.text


async def test_expired_and_revoked_tokens_are_refused_with_a_reason(start: Start, tokens: Tokens) -> None:
    await tokens.make("operator")
    client = await start()
    short = await tokens.make("operator", expires_s=0.001)
    reply = await client.get("/v1/runs", headers=bearer(short))
    assert (reply.status_code, reply.json()["detail"]) == (401, "the token has expired")
    gone = await tokens.make("operator")
    await tokens.administration.revoke(id_of(gone))
    reply = await client.get("/v1/runs", headers=bearer(gone))
    assert (reply.status_code, reply.json()["detail"]) == (401, "the token was revoked")


async def test_the_file_of_the_administrator_is_the_first_token(start: Start, tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("a" * 32 + "\n")
    client = await start(admin_token_file=file)
    assert (await client.get("/v1/runs")).status_code == 401
    assert (await client.get("/v1/runs", headers=bearer("b" * 32))).status_code == 401
    assert (await client.get("/v1/runs", headers=bearer("a" * 32))).status_code == 200


async def test_a_request_without_credentials_is_refused_at_once_while_redis_is_stopped(
    own_server: EmbeddedRedis, tmp_path: Path
) -> None:
    """Held for `LACHESIS_STORE_PATIENCE_S`, such requests would fill the connections."""
    file = tmp_path / "token"
    file.write_text("a" * 32)
    async with running_service(own_server.url, admin_token_file=file, store_patience_s=5) as client:
        own_server.stop()

        async def waits_for_redis() -> bool:
            try:
                await client.get("/openapi.json", headers=bearer("a" * 32), timeout=0.5)
            except httpx.ReadTimeout:
                return True
            return False

        await wait_until(waits_for_redis)  # what the process knows is too old then
        for headers in ({}, {"Authorization": "Digest x"}):
            assert (await client.get("/v1/runs", headers=headers)).status_code == 401


async def test_an_insecure_service_asks_nobody_even_with_tokens(start: Start, tokens: Tokens) -> None:
    await tokens.make("operator")
    client = await start(insecure=True)
    assert (await client.get("/v1/runs")).status_code == 200


def test_a_secret_shows_in_no_text() -> None:
    assert "abc" not in f"{GivenCredentials(b'abc')!r} {GivenCredentials(b'abc')}"


# Changes that other processes make


async def status_of(client: httpx.AsyncClient, token: str | None) -> int:
    headers = {} if token is None else bearer(token)
    return (await client.get("/v1/runs", headers=headers)).status_code


async def eventually(client: httpx.AsyncClient, token: str | None, status: int) -> None:
    """Wait until requests get this status: it changes in another process."""

    async def is_answered() -> bool:
        return await status_of(client, token) == status

    await wait_until(is_answered)


async def test_a_running_open_service_closes_with_the_first_token(client: httpx.AsyncClient, tokens: Tokens) -> None:
    assert await status_of(client, None) == 200
    operator = await tokens.make("operator")
    await eventually(client, None, 401)
    assert await status_of(client, operator) == 200


async def test_a_closed_service_stays_closed_when_all_tokens_are_revoked(start: Start, tokens: Tokens) -> None:
    operator = await tokens.make("operator")
    client = await start()
    await tokens.administration.revoke(id_of(operator))
    await eventually(client, operator, 401)
    assert await status_of(client, None) == 401
    assert await status_of(await start(), None) == 401


async def test_a_revocation_holds_in_every_process(start: Start, tokens: Tokens) -> None:
    operator, trainer = await tokens.make("operator"), await tokens.make("trainer", "*")
    first, second = await start(), await start()
    for client in (first, second):  # both remember the token
        assert await status_of(client, trainer) == 200
    place = f"/v1/tokens/{id_of(trainer)}"
    for _ in range(2):
        assert (await first.delete(place, headers=bearer(operator))).status_code == 204
    await eventually(first, trainer, 401)
    await eventually(second, trainer, 401)


async def test_one_connection_takes_other_credentials_and_loses_revoked_ones(start: Start, tokens: Tokens) -> None:
    operator, viewer = await tokens.make("operator"), await tokens.make("viewer", "*")
    client = await start()  # it keeps its connection
    for token, role in ((operator, "operator"), (viewer, "viewer"), (viewer, "viewer"), (operator, "operator")):
        assert (await client.get("/v1/identity", headers=bearer(token))).json()["role"] == role
    assert await status_of(client, None) == 401
    assert (await client.delete(f"/v1/tokens/{id_of(viewer)}", headers=bearer(operator))).status_code == 204
    await eventually(client, viewer, 401)
    assert await status_of(client, operator) == 200


async def test_two_secrets_are_valid_until_the_old_one_ends(start: Start, tokens: Tokens) -> None:
    operator, old = await tokens.make("operator"), await tokens.make("trainer", "*")
    client = await start()
    place = f"/v1/tokens/{id_of(old)}/rotate"
    rotated = await client.post(place, headers=bearer(operator))
    assert rotated.status_code == 200
    new = rotated.json()["token"]
    assert rotated.json()["rotation_ends_s"] == pytest.approx(3600, abs=60)
    await eventually(client, new, 200)
    assert await status_of(client, old) == 200
    newest = (await client.post(place, json={"overlap_s": 0}, headers=bearer(operator))).json()["token"]
    await eventually(client, new, 401)
    assert [await status_of(client, one) for one in (old, newest)] == [401, 200]


async def test_the_last_use_is_noted(start: Start, tokens: Tokens) -> None:
    operator, trainer = await tokens.make("operator"), await tokens.make("trainer", "*")
    client = await start()

    async def used() -> set[str]:
        listed = (await client.get("/v1/tokens", headers=bearer(operator))).json()["tokens"]
        return {one["id"] for one in listed if one["last_used_age_s"] is not None}

    async def own_use_is_noted() -> bool:
        return id_of(operator) in await used()

    await wait_until(own_use_is_noted)
    assert id_of(trainer) not in await used()


# `/v1/tokens`


async def test_tokens_are_created_listed_and_revoked_over_http(client: httpx.AsyncClient) -> None:
    made = await client.post("/v1/tokens", json={"role": "operator", "name": "me"})
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    operator = made.json()["token"]
    await eventually(client, None, 401)
    asked = {"role": "environment", "runs": ["math-*"], "environment": "gsm8k", "expires_s": 3600}
    other = (await client.post("/v1/tokens", json=asked, headers=bearer(operator))).json()
    listed = await client.get("/v1/tokens", headers=bearer(operator))
    assert operator not in listed.text
    assert other["token"] not in listed.text
    assert {one["id"]: one["state"] for one in listed.json()["tokens"]} == dict.fromkeys(
        (made.json()["id"], other["id"]), "active"
    )
    (shown,) = (one for one in listed.json()["tokens"] if one["id"] == other["id"])
    assert {name: shown[name] for name in ("role", "runs", "environment")} == {
        "role": "environment",
        "runs": ["math-*"],
        "environment": "gsm8k",
    }
    assert 0 < shown["expires_s"] <= 3600
    assert (await client.delete(f"/v1/tokens/{other['id']}", headers=bearer(operator))).status_code == 204
    listed = await client.get("/v1/tokens", headers=bearer(operator))
    assert {one["state"] for one in listed.json()["tokens"] if one["id"] == other["id"]} == {"revoked"}
    again = await client.post(f"/v1/tokens/{other['id']}/rotate", headers=bearer(operator))
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"role": "environment"}, "needs runs"),
        ({"role": "trainer", "runs": ["*"], "environment": "x"}, "takes no environment"),
        ({"role": "trainer", "runs": ["*"], "contents": True}, "takes no contents=true"),
        ({"role": "boss", "runs": ["*"]}, "role"),
        ({"role": "trainer", "runs": ["a/b"]}, "runs"),
        ({"role": "trainer", "runs": ["*"], "expires_s": 0}, "expires_s"),
        ({"role": "trainer", "runs": ["*"], "expire_s": 1}, "expires_s"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused(
    client: httpx.AsyncClient, asked: dict[str, Any], complaint: str
) -> None:
    reply = await client.post("/v1/tokens", json=asked)
    assert reply.status_code == 422
    assert complaint in reply.text
    assert (await client.get("/v1/tokens")).json() == {"tokens": []}


async def test_an_unknown_token_cannot_be_revoked(client: httpx.AsyncClient) -> None:
    reply = await client.delete("/v1/tokens/0f3a5c7e9b1d")
    assert (reply.status_code, reply.json()["code"]) == (404, "token_not_found")
    assert (await client.delete("/v1/tokens/x")).status_code == 422


# Requests that wait


async def test_a_long_poll_ends_when_its_token_is_revoked(start: Start, tokens: Tokens) -> None:
    operator, trainer = await tokens.make("operator"), await tokens.make("trainer", "*")
    client = await start()
    await client.post("/v1/runs", json=RUN, headers=bearer(operator))
    await client.put("/v1/runs/math-1/replay", json={}, headers=bearer(operator))
    calls = (("/v1/runs/math-1/batches", {}), ("/v1/runs/math-1/replay/samples", {"num_chunks": 1}))
    waiting = [
        asyncio.create_task(client.post(path, params={"wait_s": 600}, json=body, headers=bearer(trainer)))
        for path, body in calls
    ]
    still = asyncio.create_task(
        client.post("/v1/runs/math-1/batches", params={"wait_s": 600}, json={}, headers=bearer(operator))
    )

    async def both_wait() -> bool:
        shown = (await client.get("/metrics", headers=bearer(operator))).text
        batches = re.search(r"^lachesis_long_polls_waiting\S* 2", shown, re.M)
        return bool(batches and re.search(r'^lachesis_replay_requests_waiting\S*side="sample"\S* 1', shown, re.M))

    await wait_until(both_wait)
    assert not any(one.done() for one in waiting)
    await tokens.administration.revoke(id_of(trainer))
    async with asyncio.timeout(60):
        replies = await asyncio.gather(*waiting)
    assert [(reply.status_code, reply.json()["code"]) for reply in replies] == [(401, "unauthorized")] * 2
    assert not still.done()
    still.cancel()


# What is shown


async def test_the_status_says_who_may_use_the_service(start: Start, tokens: Tokens) -> None:
    assert (await (await start()).get("/status")).json()["access"] == "loopback"
    insecure = await start(insecure=True)
    assert (await insecure.get("/status")).json()["access"] == "insecure"
    page = await insecure.get("/", headers={"Accept": "text/html"})
    assert "LACHESIS_INSECURE" in page.text
    operator = await tokens.make("operator")
    reply = await (await start()).get("/status", headers=bearer(operator))
    assert reply.json()["access"] == "authenticated"


@pytest.mark.parametrize("address", ["10.0.0.7", "[2001:db8::1]"])
@pytest.mark.parametrize(
    ("settings", "status"), [({}, 403), ({"published_on": "127.0.0.1"}, 200), ({"insecure": True}, 200)]
)
async def test_an_open_service_answers_on_no_address_that_others_can_reach(
    redis_url: str, redis_client: Redis, address: str, settings: dict[str, Any], status: int
) -> None:
    """As under `uvicorn app.main:app --host 0.0.0.0`."""
    app = create_app(ServiceSettings(redis_url=SecretStr(redis_url), **settings))
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "state": state}, receive, send)

        transport = httpx.ASGITransport(app=with_state)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{address}:8000") as client:
            reply = await client.get("/v1/runs")
            assert (await client.get("/healthz")).status_code == 200
    assert reply.status_code == status
    if status == 403:
        assert reply.json()["code"] == "closed_by_default"
        assert "python -m app token create --role operator" in reply.json()["detail"]
        assert "LACHESIS_INSECURE=1" in reply.json()["detail"]
