"""The audit trail against the real service."""

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from redis.asyncio import Redis

from app.api.http.routing import GuardedRoute
from app.main import create_app
from app.settings import ServiceSettings
from app.store.access.audit import AuditStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import ServiceKeys
from app.store.server.embedded import EmbeddedRedis
from tests.api.access.conftest import Tokens, bearer
from tests.api.atropos_calls import registration
from tests.api.conftest import Start, running_service
from tests.lossy_line import lossy_line
from tests.scenarios.native_calls import group
from tests.waiting import wait_until

AUDIT = "/v1/audit"
RUN = {"name": "math-1", "batch_size": 4}
FEW = 20


async def entries(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    reply = await client.get(AUDIT, params=query)
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["entries"]
    return found


def logged_entries(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.name == "lachesis.audit"]


async def test_a_change_is_recorded_with_who_what_where_and_its_result(start: Start, tokens: Tokens) -> None:
    operator = await tokens.make("operator", name="ann")
    client = await start()
    client.headers.update(bearer(operator))
    await client.post("/v1/runs", json=RUN)
    await client.patch("/v1/runs/math-1", json={"max_staleness": 7})
    await client.delete("/v1/runs/math-1")
    deleted, changed, created = await entries(client)
    assert [entry["status"] for entry in (created, changed, deleted)] == [201, 200, 204]
    assert {entry["run"] for entry in (created, changed, deleted)} == {"math-1"}
    assert created["path"] == "/v1/runs"
    assert (changed["method"], changed["path"]) == ("PATCH", "/v1/runs/math-1")
    (change,) = changed["changes"]
    assert (change["event"], change["changes"]) == ("run changed", {"max_staleness": 7})
    assert deleted["changes"][0]["event"] == "run deleted"
    assert (deleted["identity"], deleted["role"], deleted["caller"]) == ("ann", "operator", "127.0.0.1")
    assert deleted["kind"] == "token"
    assert operator not in str(await entries(client))


async def test_a_refused_request_that_changed_nothing_is_in_the_log_alone(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A small token could fill the trail with such requests, until those of others are gone."""
    caplog.set_level("INFO", "lachesis.audit")
    await client.post("/v1/runs", json=RUN)
    assert (await client.patch("/v1/runs/math-1", json={"max_staleness": -7})).status_code == 422
    assert (await client.delete("/v1/runs/none")).status_code == 404
    assert [entry["status"] for entry in await entries(client)] == [201]
    logged = logged_entries(caplog)
    assert [(facts["status"], facts.get("code")) for facts in logged] == [
        (201, None),
        (422, "invalid_field"),
        (404, "run_not_found"),
    ]


async def test_a_client_that_leaves_before_its_body_arrived_has_made_the_error(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lachesis.audit")
    with socket.create_connection((client.base_url.host, client.base_url.port)) as leaving:
        leaving.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        leaving.sendall(b'Content-Length: 100\r\n\r\n{"name"')
    await wait_until(lambda: bool(logged_entries(caplog)))
    (logged,) = logged_entries(caplog)
    assert (logged["status"], logged["code"]) == (400, "malformed_body")
    assert await entries(client) == []


async def test_what_a_sender_says_is_cut_as_sent_and_without_tokens(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lachesis.audit")
    secret = "lch_ops_0f3a5c7e9b1d_" + "S" * 43
    headers = {"User-Agent": "a" * 5000, "X-Forwarded-For": f"{secret}, {'b' * 5000}"}
    created = await client.post("/v1/runs", json=RUN | {"name": "m"}, headers=headers)
    assert created.status_code == 201
    assert (await client.delete(f"/v1/runs/%6d?token={secret}", headers=headers)).status_code == 422
    assert (await client.delete("/v1/runs/%6d", headers=headers)).status_code == 204
    deleted, _ = await entries(client)
    assert (deleted["path"], deleted["run"], deleted["kind"]) == ("/v1/runs/%6d", "m", "open")
    assert deleted["agent"] == "a" * 200
    assert deleted["forwarded_for"] == ("lch_…, " + "b" * 5000)[:200]
    logged = logged_entries(caplog)
    assert logged[1]["path"] == "/v1/runs/%6d?token=lch_…"
    assert "SSS" not in str(logged)


async def test_requests_of_workers_and_trainers_that_hit_others_are_recorded(start: Start, tokens: Tokens) -> None:
    client = await start()
    client.headers.update(bearer(await tokens.make("operator")))
    register = {"wandb_group": "g", "wandb_project": "p", "batch_size": 4, "max_token_len": 64, "starting_step": 0}
    register |= {"checkpoint_dir": "", "save_checkpoint_interval": 0, "num_steps": 10}
    assert (await client.post("/register", json=register)).status_code == 200
    await client.post("/v1/runs", json=RUN)
    environments = "/v1/runs/math-1/environments"
    joined = (await client.post(environments, json={"name": "e", "group_size": 2})).json()
    place = f"{environments}/{joined['id']}"
    assert (await client.delete(place, params={"member": joined["member"]})).status_code == 204
    await client.post(environments, json={"name": "e", "group_size": 2})
    assert (await client.delete(place)).status_code == 204
    found = [(entry["method"], entry["path"], entry["run"]) for entry in await entries(client)]
    expected = [("DELETE", place, "math-1"), ("POST", "/v1/runs", "math-1"), ("POST", "/register", "default")]
    assert found == expected
    assert (await client.post("/disconnect-env", json={"env_id": 0})).status_code == 200
    newest, *others = [(entry["method"], entry["path"], entry["run"]) for entry in await entries(client)]
    assert (newest, others) == (("POST", "/disconnect-env", "default"), expected)


async def test_what_is_removed_while_the_store_is_full_is_recorded(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    async with running_service(own_server.url) as client:
        assert (await client.post("/v1/runs", json=RUN)).status_code == 201
        await own_redis.config_set("maxmemory", 1)
        assert (await client.post("/v1/runs/math-1/groups", json=group("g1"))).status_code == 507
        assert (await client.delete("/v1/runs/math-1")).status_code == 204
        made = await client.post("/v1/tokens", json={"role": "operator"})
        assert made.status_code == 201
        client.headers.update(bearer(made.json()["token"]))
        found = [(entry["method"], entry["status"]) for entry in await entries(client)]
    assert found == [("POST", 201), ("DELETE", 204), ("POST", 201)]


async def test_submissions_reads_and_what_a_role_may_not_do_are_not_recorded(start: Start, tokens: Tokens) -> None:
    operator, trainer = bearer(await tokens.make("operator")), bearer(await tokens.make("trainer", "math-*"))
    client = await start()
    await client.post("/v1/runs", json=RUN, headers=operator)
    environment = (
        await client.post("/v1/runs/math-1/environments", json={"name": "e", "group_size": 2}, headers=operator)
    ).json()
    sent = await client.post(
        "/v1/runs/math-1/groups", json=group("g1") | {"environment": environment["id"]}, headers=operator
    )
    assert sent.status_code == 201
    await client.get("/v1/runs/math-1", headers=operator)
    assert (await client.delete("/v1/runs/math-1", headers=trainer)).status_code == 403
    assert (await client.delete("/v1/runs/code", headers=trainer)).status_code == 404
    client.headers.update(operator)
    assert [entry["path"] for entry in await entries(client)] == ["/v1/runs"]


async def test_each_operator_sees_own_runs_and_only_operators_see_any(start: Start, tokens: Tokens) -> None:
    every, math = bearer(await tokens.make("operator")), bearer(await tokens.make("operator", "math-*"))
    client = await start()
    for name in ("math-1", "code"):
        await client.post("/v1/runs", json=RUN | {"name": name}, headers=every)
    await client.post("/v1/tokens", json={"role": "metrics"}, headers=every)

    async def seen(headers: dict[str, str], **query: str) -> list[str | None]:
        reply = await client.get(AUDIT, headers=headers, params=query)
        return [entry["run"] for entry in reply.json()["entries"]]

    assert [run for run in await seen(every) if run] == ["code", "math-1"]
    assert await seen(math) == ["math-1"]
    assert await seen(every, run="code") == ["code"]
    assert await seen(math, run="code") == []
    for role in ("trainer", "viewer", "environment"):
        token = bearer(await tokens.make(role, "*"))
        assert (await client.get(AUDIT, headers=token)).status_code == 403


async def test_pages_reach_every_entry_once(client: httpx.AsyncClient) -> None:
    for number in range(FEW):
        await client.post("/v1/runs", json=RUN | {"name": f"run-{number}"})
    found: list[str] = []
    before: dict[str, str] = {}
    while True:
        page = (await client.get(AUDIT, params={"limit": 7} | before)).json()
        found += [entry["run"] for entry in page["entries"]]
        if page["next_before"] is None:
            break
        before = {"before": page["next_before"]}
    assert found == [f"run-{number}" for number in reversed(range(FEW))]


@pytest.mark.parametrize("before", ["0-0", "000-00", "0-1", "1-0", "007-01"])
async def test_nothing_is_older_than_the_smallest_ids(client: httpx.AsyncClient, before: str) -> None:
    await client.post("/v1/runs", json=RUN)
    page = await client.get(AUDIT, params={"before": before})
    assert (page.status_code, page.json()) == (200, {"entries": [], "next_before": None})


@pytest.mark.parametrize("before", ["9" * 15 + "-0", "9" * 15 + "-" + "9" * 10])
async def test_everything_is_older_than_the_largest_ids(client: httpx.AsyncClient, before: str) -> None:
    await client.post("/v1/runs", json=RUN)
    assert [entry["run"] for entry in await entries(client, before=before)] == ["math-1"]


async def test_the_trail_is_bounded(redis_url: str, redis_client: Redis) -> None:
    connection = RedisClient(redis_url, 5.0)
    for number in range(300):
        await AuditStore(connection).add({}, most=10, own=1000, sender="ann", action=f"{number}")
    kept = await redis_client.xlen(ServiceKeys().audit)
    assert 10 <= kept < 300  # Redis cuts whole nodes of 100 entries
    await connection.aclose()


async def test_a_sender_that_repeats_itself_displaces_nobody(start: Start, tokens: Tokens) -> None:
    """A hijacked token could otherwise send cheap changes until the entries of others are gone."""
    ann, eve = bearer(await tokens.make("operator", name="ann")), bearer(await tokens.make("operator", "*-1"))
    client = await start(audit_entries=2000)  # so each sender has 20 entries of its own in an hour
    for name in ("math-1", "code-1"):
        assert (await client.post("/v1/runs", json=RUN | {"name": name}, headers=ann)).status_code == 201
    for number in range(30):
        for name in ("math-1", "code-1"):
            change = {"max_staleness": number}
            assert (await client.patch(f"/v1/runs/{name}", json=change, headers=eve)).status_code == 200
    assert (await client.delete("/v1/runs/code-1", headers=eve)).status_code == 204
    assert (await client.patch("/v1/runs/math-1", json={"max_staleness": 99}, headers=ann)).status_code == 200
    client.headers.update(ann)
    found = [(entry["method"], entry["run"], entry["count"]) for entry in await entries(client)]
    together = [("PATCH", "math-1", 1), ("DELETE", "code-1", 1), ("PATCH", "code-1", 20), ("PATCH", "math-1", 20)]
    alone = [("PATCH", "code-1", 1), ("PATCH", "math-1", 1)] * 10
    assert found == together + alone + [("POST", "code-1", 1), ("POST", "math-1", 1)]
    assert (await entries(client, run="math-1"))[1]["changes"][0]["changes"] == {"max_staleness": 29}


async def test_policy_versions_and_checkpoints_of_a_trainer_are_one_entry_each(start: Start, tokens: Tokens) -> None:
    """A version of 1e9 makes every group stale, which removes it. A checkpoint ends the way back to earlier batches."""
    operator, trainer = bearer(await tokens.make("operator")), bearer(await tokens.make("trainer", "math-*"))
    client = await start()
    await client.post("/v1/runs", json=RUN, headers=operator)
    for version in (1, 2, 1_000_000_000):
        set_to = {"policy_version": version}
        assert (await client.put("/v1/runs/math-1/policy-version", json=set_to, headers=trainer)).status_code == 200
    for _ in range(2):
        saved = await client.post("/v1/runs/math-1/checkpoints", json={"step": 0}, headers=trainer)
        assert saved.status_code == 200, saved.text
    client.headers.update(operator)
    saved_entry, version_entry, _ = await entries(client)
    assert (saved_entry["path"], saved_entry["count"]) == ("/v1/runs/math-1/checkpoints", 2)
    assert (version_entry["role"], version_entry["count"]) == ("trainer", 3)
    (change,) = version_entry["changes"]
    assert (change["before"], change["policy_version"]) == (2, 1_000_000_000)


async def test_changes_of_replay_buffers_and_curricula_say_what_changed(client: httpx.AsyncClient) -> None:
    await client.post("/v1/runs", json=RUN)
    run = "/v1/runs/math-1"
    assert (await client.put(f"{run}/replay", json={"max_reuse": 2})).status_code == 200
    assert (await client.patch(f"{run}/replay", json={"max_reuse": 3})).status_code == 200
    assert (await client.put(f"{run}/curricula/c", json={"n_bins": 5})).status_code == 200
    assert (await client.patch(f"{run}/curricula/c", json={"n_bins": 6})).status_code == 200
    assert (await client.post(f"{run}/curricula/c/items", json={"items": [{"key": "k"}]})).status_code == 200
    assert (await client.patch(f"{run}/curricula/c/items/k", json={"prior": 0.5})).status_code == 200
    found = [change for entry in await entries(client) for change in reversed(entry["changes"])][::-1]
    made, buffer, changed, curriculum, rebinned, items, item = found
    assert [one["event"] for one in found] == [
        "run created",
        "replay buffer created",
        "replay buffer changed",
        "curriculum created",
        "curriculum changed",
        "curriculum items registered",
        "curriculum item changed",
    ]
    assert (buffer["changes"]["max_reuse"], changed["changes"]) == (2, {"max_reuse": 3})
    assert (curriculum["changes"]["n_bins"], rebinned["changes"]) == (5, {"n_bins": 6})
    assert (items["items"], items["new"], item["item"]) == (1, 1, "k")
    assert {one["run"] for one in found} == {made["run"]}


async def test_registrations_of_trainers_say_which_settings_changed(client: httpx.AsyncClient) -> None:
    first = registration(4)
    for sent in (first, first, first | {"num_steps": 5, "checkpoint_dir": "elsewhere"}):
        assert (await client.post("/register", json=sent)).status_code == 200
    changed, same, created = [entry["changes"] for entry in await entries(client)]
    by_trainer = [{"event": "trainer registered", "run": "default", "batch_size": 4, "config": "new"}]
    run = {"run": "default"}
    assert created == [run | {"event": "run created", "changes": first}, *by_trainer]
    assert same == [by_trainer[0] | {"config": "same"}]
    new = {"num_steps": 5, "checkpoint_dir": "elsewhere"}
    assert changed == [run | {"event": "run changed", "changes": new}, *by_trainer]


async def test_entries_of_tokens_say_all_that_they_may_do_and_no_secret(client: httpx.AsyncClient) -> None:
    limits = {"max_requests_per_s": 5.0, "max_bytes_per_s": 6.0, "max_groups_per_s": 7.0}
    limits |= {"max_queued_groups": 8, "max_queued_bytes": 9}
    may = {"name": "gpu-7", "role": "environment", "runs": ["math-*"], "environment": "gsm8k"} | limits
    others = [{"role": "viewer", "runs": ["*"], "contents": True}, {"role": "operator"}]
    operator, *made = [
        (await client.post("/v1/tokens", json=asked)).json()
        for asked in (others[1], may | {"expires_s": 3600}, others[0])
    ]
    client.headers.update(bearer(operator["token"]))
    rotated = (await client.post(f"/v1/tokens/{made[0]['id']}/rotate", json={"overlap_s": 60})).json()
    found = await entries(client)
    by_rotation, of_viewer, of_worker, of_operator = [change for entry in found for change in entry["changes"]]
    assert of_operator == {"event": "token created", "token": operator["id"], "name": "", "runs": ["*"]} | others[1]
    assert of_viewer == {"event": "token created", "token": made[1]["id"], "name": ""} | others[0]
    ends_at_s = of_worker.pop("expires_at_s")
    assert 0 < ends_at_s - found[2]["at_s"] <= 3600
    assert of_worker == {"event": "token created", "token": made[0]["id"]} | may
    assert by_rotation == of_worker | {"event": "token rotated", "expires_at_s": ends_at_s}
    assert [one for one in (operator, rotated, *made) if one["token"].split("_", 3)[3] in str(found)] == []


async def test_joins_and_requests_that_change_an_environment_are_recorded(start: Start, tokens: Tokens) -> None:
    """A token for no single environment may change every environment of its runs."""
    operator = bearer(await tokens.make("operator"))
    hijacked = bearer(await tokens.make("environment", "math-*", name="hijacked"))
    client = await start()
    client.headers.update(operator)
    await client.post("/v1/runs", json=RUN)
    environments = "/v1/runs/math-1/environments"
    joins = {"name": "e", "group_size": 2, "weight": 1, "min_share": 0.5}
    assert (await client.post(environments, json=joins)).status_code == 201
    other = joins | {"weight": 9, "min_share": None}
    assert (await client.post(environments, json=other, headers=hijacked)).status_code == 409
    joined = await client.post(environments, json=other | {"change_settings": True}, headers=hijacked)
    assert joined.status_code == 200
    patched = await client.patch(f"{environments}/0", json={"weight": 9, "max_share": 0.5})
    assert patched.status_code == 200
    by_operator, by_worker, created = await entries(client)
    assert (created["path"], by_worker["path"], by_worker["identity"]) == ("/v1/runs", environments, "hijacked")
    environment = {"event": "environment changed", "run": "math-1", "environment": 0, "name": "e"}
    assert by_worker["changes"][0] == environment | {"changes": {"weight": 9.0, "min_share": None}}
    assert by_operator["changes"] == [environment | {"changes": {"max_share": 0.5}}]


async def test_a_reader_of_some_runs_learns_no_ids_of_foreign_entries(
    start: Start, tokens: Tokens, redis_client: Redis
) -> None:
    """An id has the time at which somebody else worked. More foreign entries are there than one request looks at."""
    every, math = bearer(await tokens.make("operator")), bearer(await tokens.make("operator", "math-*"))
    client = await start(audit_entries=1_000_000)
    for name in ("math-1", "code"):
        await client.post("/v1/runs", json=RUN | {"name": name}, headers=every)
    ((_, foreign),) = await redis_client.xrevrange(ServiceKeys().audit, count=1)
    async with redis_client.pipeline() as copies:
        for _ in range(1200):
            copies.xadd(ServiceKeys().audit, foreign)
        await copies.execute()
    pages: list[dict[str, Any]] = []
    while not pages or pages[-1]["next_before"]:
        before = {"before": pages[-1]["next_before"]} if pages else {}
        pages.append((await client.get(AUDIT, headers=math, params={"limit": 1} | before)).json())
    own = [entry["id"] for page in pages for entry in page["entries"]]
    assert {page["next_before"] for page in pages} <= {*own, None}
    assert len(own) == 1


async def test_a_trail_that_cannot_be_written_undoes_nothing_and_is_logged(
    client: httpx.AsyncClient, redis_client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await redis_client.set(ServiceKeys().audit, "not a stream")
    assert (await client.post("/v1/runs", json=RUN)).status_code == 201
    assert "audit" in [record.message for record in caplog.records if record.name == "lachesis.audit"]
    assert "the audit trail lacks the entry above" in caplog.text


async def test_a_request_that_redis_does_not_answer_waits_for_it_only_once(
    redis_url: str, redis_client: Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entry waited for Redis, too. So the client had given up before the answer came."""
    async with (
        lossy_line(redis_url, tmp_path / "redis.sock") as (line, url),
        running_service(url, store_patience_s=1) as client,
    ):
        caplog.clear()
        line.mistake(b"")
        assert (await client.post("/v1/runs", json=RUN)).status_code == 503
    (entry,) = [record for record in caplog.records if record.name == "lachesis.audit"]
    assert entry.fields["code"] == "store_unavailable"  # type: ignore[attr-defined]
    assert "the audit trail lacks" not in caplog.text


async def test_wrong_parameters_are_refused_by_name(client: httpx.AsyncClient) -> None:
    for query in ({"limit": 0}, {"before": "yesterday"}, {"run": "../x"}, {"since": "1"}):
        reply = await client.get(AUDIT, params=query)  # type: ignore[arg-type]
        assert reply.status_code == 422
        assert reply.json()["errors"][0]["loc"][-1] == next(iter(query))


def test_every_request_that_an_operator_makes_to_change_something_is_recorded() -> None:
    routes = [context.original_route for context in iter_route_contexts(create_app(ServiceSettings()).routes)]
    recorded = {f"{m} {r.path}" for r in routes if isinstance(r, GuardedRoute) and r.audited for m in r.methods or ()}
    assert recorded >= {"PATCH /v1/runs/{run}", "DELETE /v1/runs/{run}", "POST /v1/runs/{run}/rewind"}
    assert recorded >= {"POST /register", "PUT /v1/runs/{run}/replay/session"}
    assert not any("/groups" in path and path.startswith("POST") for path in recorded)
