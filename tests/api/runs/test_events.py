"""What the log says of runs: one line each, and none for polls."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from tests.api.atropos_calls import group, post, register, register_env
from tests.api.conftest import Start
from tests.api.http.conformance import OPERATIONS, Operation, operation_of
from tests.api.http.test_openapi_answers import live_through_a_run
from tests.api.log_capture import LogLines
from tests.scenarios.native_calls import RUN, change_run, end, make_run, submit, taken
from tests.waiting import wait_until

CALLER = {"caller": "127.0.0.1", "agent": "a client"}


def expired(client: httpx.AsyncClient, state: str) -> Callable[[], Awaitable[bool]]:
    """Return whether a lease of the run has come to a state."""

    async def has() -> bool:
        status = (await client.get(f"{RUN}/status")).json()
        return any(lease["state"] == state for lease in status["leases"])

    return has


async def test_a_run_leaves_a_line_when_it_is_made_changed_and_removed(
    client: httpx.AsyncClient, log_lines: LogLines
) -> None:
    client.headers["user-agent"] = "a client"
    await make_run(client, max_staleness=2, max_age_s=None)
    again = await client.post("/v1/runs", json={"name": "run", "batch_size": 4})
    assert again.status_code == 200
    await change_run(client, batch_size=8)
    (await client.delete(RUN)).raise_for_status()
    named = {"batch_size": 4, "max_staleness": 2, "max_age_s": None}
    assert log_lines.of("run created") == [{"run": "run", "batch_size": 4, "changes": named, **CALLER}]
    assert log_lines.of("run changed") == [{"run": "run", "changes": {"batch_size": 8}, **CALLER}]
    assert log_lines.of("run deleted") == [{"run": "run", **CALLER}]


async def test_what_clients_of_atropos_do_leaves_a_line(client: httpx.AsyncClient, log_lines: LogLines) -> None:
    client.headers["user-agent"] = "a client"
    await register(client)
    await register(client)
    environment = {"run": "default", "environment": 0, "name": "math\n_0"}
    assert (await register_env(client, "math\n"))["env_id"] == 0
    assert (await client.post("/disconnect-env", json={"env_id": 0})).json() == {"status": "success"}
    (await client.get("/reset_data", headers={"x-forwarded-for": "10.0.0.7"})).raise_for_status()
    assert log_lines.of("trainer registered") == [
        {"run": "default", "batch_size": 8, "config": config, **CALLER} for config in ("new", "same")
    ]
    assert log_lines.of("environment joined") == [environment | CALLER]
    assert log_lines.of("environment left") == [environment | CALLER]
    assert log_lines.of("run reset") == [{"run": "default", **CALLER, "forwarded_for": "10.0.0.7"}]


DESTRUCTIVE = {
    ("POST", "/v1/runs/{run}/rewind"),
    ("PUT", "/v1/runs/{run}/replay/session"),
    ("POST", "/v1/runs/{run}/replay/restore"),
    ("PUT", "/v1/runs/{run}/curricula/{curriculum}/state"),
    *(operation for operation in OPERATIONS if operation[0] == "DELETE" and "{run}" in operation[1]),
}


async def test_every_destructive_call_leaves_a_line_with_its_caller_and_target(
    client: httpx.AsyncClient, redis_client: Redis, log_lines: LogLines
) -> None:
    client.headers["user-agent"] = "a client"
    lines: dict[Operation, list[dict[str, Any]]] = {}
    before = 0

    async def note(reply: httpx.Response) -> None:
        nonlocal before
        events = [line for line in log_lines.all if line["logger"] == "lachesis.events"]
        operation = operation_of(reply.request.method, reply.request.url.path)
        if operation in DESTRUCTIVE and reply.is_success:
            lines[operation] = events[before:]
        before = len(events)

    client.event_hooks["response"].append(note)
    await live_through_a_run(client, redis_client)
    assert lines.keys() == DESTRUCTIVE
    for operation, own in lines.items():
        assert own, operation
        targets = [part for part in ("batch", "group", "environment", "curriculum") if f"{{{part}}}" in operation[1]]
        for line in own:  # several where several members leave
            assert line["run"] == "math-rl"
            assert CALLER.items() <= line.items()
            assert all(target in line for target in targets), operation


async def test_tokens_leave_lines_of_the_audit_trail_with_their_caller_and_target(
    client: httpx.AsyncClient, redis_client: Redis, log_lines: LogLines
) -> None:
    """Each is about a token and not about a run, so it is no event of a run."""
    client.headers["user-agent"] = "a client"
    await live_through_a_run(client, redis_client)
    lines = [line for line in log_lines.of("audit") if line["path"].startswith("/v1/tokens")]
    changes = [change for line in lines for change in line["changes"]]
    operator, token = changes[0]["token"], changes[1]["token"]
    assert [(change["event"], change["token"]) for change in changes] == [
        ("token created", operator),
        ("token created", token),
        ("token rotated", token),
        ("token revoked", token),
    ]
    assert (lines[-1]["method"], lines[-1]["path"]) == ("DELETE", f"/v1/tokens/{token}")
    assert all(CALLER.items() <= line.items() for line in lines)
    assert {line.get("token") for line in lines} <= {None, operator}, (
        "who asked; None: before the process asks for tokens"
    )


async def test_polls_and_submissions_leave_no_line(client: httpx.AsyncClient, log_lines: LogLines) -> None:
    await register(client)
    await register_env(client)
    run = "/v1/runs/default"
    (await client.put(f"{run}/replay", json={})).raise_for_status()
    (await client.post(f"{run}/environments", json={"name": "code", "member": "m"})).raise_for_status()
    before = log_lines.all
    for _ in range(3):
        await post(client, group(2, env_id=0))
        (await client.post(f"{run}/batches?wait_s=0.01")).raise_for_status()
        (await client.post(f"{run}/replay/samples?wait_s=0.01", json={"num_chunks": 1})).raise_for_status()
        (await client.post(f"{run}/environments/1/heartbeat", json={"member": "m"})).raise_for_status()
        for path in ("/batch", "/status", "/status-env?env_id=0", "/v1/runs/default/batches/explain"):
            (await client.get(path)).raise_for_status()
    assert log_lines.all == before


async def test_every_end_of_a_batch_is_an_event(client: httpx.AsyncClient, log_lines: LogLines) -> None:
    client.headers["user-agent"] = "a client"
    await make_run(client, max_deliveries=2)
    await submit(client, "a", "b")
    given = await taken(client)
    (await end(client, given, "nack", reason="no\nroom")).raise_for_status()
    assert log_lines.of("batch given back") == [
        {"run": "run", "batch": given["batch"], "step": 1, "reason": "no\nroom", **CALLER}
    ]
    first = await taken(client, lease_s=0.1)
    named = {"run": "run", "batch": first["batch"], "step": 2, "delivery_count": 2}
    second = await taken(client, wait_s=10, lease_s=0.1, trainer="t")
    assert second["batch"] == first["batch"]
    assert log_lines.of("batch redelivered") == [named | {"trainer": "t"} | CALLER]
    await wait_until(expired(client, "quarantined"))
    assert log_lines.of("batch quarantined") == [named], "the service did it by itself"
    (await client.delete(f"{RUN}/batches/{first['batch']}")).raise_for_status()
    assert log_lines.of("batch discarded") == [{"run": "run", "batch": first["batch"], "step": 2, **CALLER}]


async def test_a_line_names_the_trainer_that_got_the_batch_not_another_that_waits(
    client: httpx.AsyncClient, redis_client: Redis, log_lines: LogLines
) -> None:
    """One task of the process asks for all who wait."""
    await make_run(client)
    await submit(client, "a", "b")
    held = await taken(client)
    waiting: list[asyncio.Task[httpx.Response]] = []
    for agent in ("first", "second"):
        poll = client.post(f"{RUN}/batches?wait_s=60", headers={"user-agent": agent})
        waiting.append(asyncio.create_task(poll))

        async def waits() -> bool:
            text = (await client.get("/metrics")).text
            return re.findall(r"^lachesis_long_polls_waiting.* (\S+)$", text, re.M) == [f"{len(waiting)}.0"]

        await wait_until(waits)
    await submit(client, "c", "d")
    assert (await waiting[0]).status_code == 201
    await redis_client.hincrby(RunKeys("run").run, "clock_ms", 1000 * 1000)  # type: ignore[misc]
    again = await waiting[1]
    assert again.json()["batch"] == held["batch"]
    (line,) = log_lines.of("batch redelivered")
    assert line["agent"] == "second"


async def test_a_batch_that_does_not_keep_every_minimum_leaves_a_line(start: Start, log_lines: LogLines) -> None:
    client = await start(relax_after_s=0)
    await register(client)
    for name, size in (("a", 6), ("b", 2)):
        await register_env(client, name, group_size=size, minimum=0.5)
    await post(client, group(6, env_id=0))
    await post(client, group(2, env_id=1))
    batch = (await client.get("/batch")).json()["batch"]
    assert batch is not None
    (line,) = log_lines.of("batch relaxed")
    assert (line["run"], line["step"], line["owed_sequences"]) == ("default", 1, {"1": 2})


async def test_groups_that_an_operator_deletes_leave_a_line(client: httpx.AsyncClient, log_lines: LogLines) -> None:
    client.headers["user-agent"] = "a client"
    await make_run(client)
    await submit(client, "a", "b", "c")
    (await client.delete(f"{RUN}/groups/a")).raise_for_status()
    (await client.delete(f"{RUN}/groups", params={"size": 2})).raise_for_status()
    (await client.delete(f"{RUN}/groups", params={"size": 2})).raise_for_status()
    assert log_lines.of("group deleted") == [{"run": "run", "group": "a", **CALLER}]
    assert log_lines.of("groups deleted") == [{"run": "run", "groups": 2, "size": 2, **CALLER}]
