"""The native API over HTTP: each endpoint's statuses, repetitions, and every error there is."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.logs import TextLines
from app.store.redis.keys import PREFIX
from lachesis.wire import errors
from tests.api.native_groups import BINARY, in_binary
from tests.scenarios.native_calls import trainers_wait

RUN = {"name": "r", "batch_size": 2}
GROUP: dict[str, Any] = {"tokens": [[1], [2]], "masks": [[1], [2]], "scores": [0.5, 1.0]}
Call = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


async def made(client: httpx.AsyncClient, **settings: Any) -> None:
    """Make the run."""
    assert (await client.post("/v1/runs", json=RUN | settings)).status_code == 201


async def sent(client: httpx.AsyncClient, **keys: Any) -> dict[str, Any]:
    """Submit a group that makes a batch; returns its receipt."""
    reply = await client.post("/v1/runs/r/groups", json=GROUP | keys)
    assert reply.status_code == 201, reply.text
    receipt: dict[str, Any] = reply.json()["groups"][0]
    return receipt


async def taken(client: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    """Take a batch."""
    reply = await client.post("/v1/runs/r/batches", json=asked)
    assert reply.status_code == 201, reply.text
    batch: dict[str, Any] = reply.json()
    return batch


async def end(client: httpx.AsyncClient, batch: dict[str, Any], how: str = "ack", **more: Any) -> httpx.Response:
    return await client.post(f"/v1/runs/r/batches/{batch['batch']}/{how}", json={"lease": batch["lease"]} | more)


# Every error


async def _run_exists(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    return await client.post("/v1/runs", json=RUN | {"batch_size": 3})


async def _run_archived(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await client.patch("/v1/runs/r", json={"archived": True})
    return await client.post("/v1/runs/r/groups", json=GROUP)


async def _intake_paused(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await client.patch("/v1/runs/r", json={"intake_paused": True})
    return await client.post("/v1/runs/r/groups", json=GROUP)


async def _group_exists(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await sent(client, id="g")
    return await client.post("/v1/runs/r/groups", json=GROUP | {"id": "g", "item": "other"})


async def _lease_lost(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await sent(client)
    return await end(client, await taken(client) | {"lease": "another"})


async def _batch_in_use(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await sent(client)
    return await client.delete(f"/v1/runs/r/batches/{(await taken(client))['batch']}")


async def _group_not_waiting(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await sent(client, id="g")
    await taken(client)
    return await client.delete("/v1/runs/r/groups/g")


async def _member_not_found(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await client.post("/v1/runs/r/environments", json={"name": "math"})
    return await client.post("/v1/runs/r/environments/0/heartbeat", json={"member": "stranger"})


async def _environment_settings_differ(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await client.post("/v1/runs/r/environments", json={"name": "math"})
    return await client.post("/v1/runs/r/environments", json={"name": "math", "group_size": 2})


async def _ranks_disagree(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await sent(client)
    await client.post("/v1/runs/r/batches?rank=0&world_size=2")
    return await client.post("/v1/runs/r/batches?rank=1&world_size=3")


async def _rewind_impossible(client: httpx.AsyncClient) -> httpx.Response:
    await made(client, keep_batches=0)
    await sent(client)
    await end(client, await taken(client))
    return await client.post("/v1/runs/r/rewind", json={"step": 0})


async def _sequence_too_long(client: httpx.AsyncClient) -> httpx.Response:
    await made(client, max_sequence_tokens=1)
    return await client.post("/v1/runs/r/groups", json=GROUP | {"tokens": [[1, 2]] * 2, "masks": [[1, 2]] * 2})


async def _run_rewound(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await client.post("/v1/runs/r/rewind", json={"step": 0})
    return await client.post("/v1/runs/r/batches", json={"rewinds": 0})


async def _queue_full(client: httpx.AsyncClient) -> httpx.Response:
    await made(client, max_queued_groups=1)
    await sent(client)
    reply = await client.post("/v1/runs/r/groups", json=GROUP)
    assert int(reply.headers["retry-after"]) >= 1
    return reply


async def _snapshot_not_found(client: httpx.AsyncClient) -> httpx.Response:
    await made(client)
    await client.put("/v1/runs/r/replay", json={})
    return await client.post("/v1/runs/r/replay/restore", json={"name": "a"})


async def _in(client: httpx.AsyncClient, method: str, path: str, **sent: Any) -> httpx.Response:
    await made(client)
    return await client.request(method, f"/v1/runs/r{path}", **sent)


CASES: dict[type[errors.ServiceError], Call] = {
    errors.MalformedBody: lambda client: _in(client, "POST", "/groups", content=b"{"),
    errors.MethodNotAllowed: lambda client: _in(client, "PUT", ""),
    errors.BodyTooLarge: lambda client: _in(client, "PATCH", "", content=b" " * 2**21),
    errors.UnsupportedEncoding: lambda client: _in(
        client, "POST", "/groups", content=b"{}", headers={"Content-Encoding": "br"}
    ),
    errors.UnsupportedMediaType: lambda client: _in(
        client, "POST", "/groups", content=b"{}", headers={"Content-Type": "text/plain"}
    ),
    errors.NotAcceptable: lambda client: _in(client, "POST", "/batches", headers={"Accept": "text/html"}),
    errors.InvalidField: lambda client: _in(client, "PATCH", "", json={"batch_size": 0}),
    errors.CrossSiteRequest: lambda client: _in(client, "GET", "", headers={"Sec-Fetch-Site": "cross-site"}),
    errors.ForeignHost: lambda client: _in(client, "GET", "", headers={"Host": "evil.example"}),
    errors.DatasetNotFound: lambda client: client.post("/v1/shards/plan", json={"ranks": 2, "path": "d"}),
    errors.RunNotFound: lambda client: client.get("/v1/runs/r"),
    errors.EnvironmentNotFound: lambda client: _in(client, "POST", "/groups", json=GROUP | {"environment": 7}),
    errors.MemberNotFound: _member_not_found,
    errors.EnvironmentSettingsDiffer: _environment_settings_differ,
    errors.GroupNotFound: lambda client: _in(client, "GET", "/groups/g"),
    errors.BatchNotFound: lambda client: _in(client, "DELETE", "/batches/ab"),
    errors.ReplayNotFound: lambda client: _in(client, "GET", "/replay"),
    errors.SnapshotNotFound: _snapshot_not_found,
    errors.TokenNotFound: lambda client: client.delete("/v1/tokens/0f3a5c7e9b1d"),
    errors.CurriculumNotFound: lambda client: _in(client, "GET", "/curricula/c"),
    errors.RunExists: _run_exists,
    errors.RunArchived: _run_archived,
    errors.IntakePaused: _intake_paused,
    errors.GroupExists: _group_exists,
    errors.GroupNotWaiting: _group_not_waiting,
    errors.LeaseLost: _lease_lost,
    errors.BatchInUse: _batch_in_use,
    errors.SequenceTooLong: _sequence_too_long,
    errors.RewindImpossible: _rewind_impossible,
    errors.RunRewound: _run_rewound,
    errors.RanksDisagree: _ranks_disagree,
    errors.StepMismatch: lambda client: _in(client, "POST", "/batches?rank=0&world_size=2&step=7"),
    errors.QueueFull: _queue_full,
}
ELSEWHERE = {
    errors.InvalidDataset: "test_shards.py: takes a folder of datasets",
    errors.FragmentNotFound: "test_replay.py: takes a buffer",
    errors.SampleNotFound: "test_replay.py",
    errors.ItemNotFound: "test_curricula.py",
    errors.FragmentExists: "test_replay.py",
    errors.ReplayBlocked: "test_replay.py",
    errors.NotAnAtroposRun: "test_browser_guard.py: on the Atropos surface",
    errors.IssuerUnavailable: "test_jwt.py: takes an issuer",
    errors.RateLimited: "test_rate_limits.py: takes limits",
    errors.Unauthorized: "test_tokens.py: takes a token",
    errors.PermissionDenied: "test_matrix.py: takes a token",
    errors.ClosedByDefault: "test_tokens.py: takes another address",
    errors.TooManyConnections: "test_connections.py: takes a connection",
    errors.GroupGone: "test_content.py",
    errors.AnnotationsFull: "takes 256 MiB of annotations",
    errors.TooManyReads: "test_content.py: takes a client that does not read",
    errors.RunFull: "test_accounting.py: takes very many environments",
    errors.TooManyNewEnvironments: "test_new_environment_limit.py: takes a setting",
    errors.RequestTimeout: "test_body.py: takes time",
    errors.BadRequest: "test_server_protocol.py: takes a connection",
    errors.HeadersTooLarge: "test_server_protocol.py",
    errors.TooManyRuns: "test_new_runs.py: takes a thousand runs",
    errors.RunInUse: "takes a flood of groups",
    errors.TooManyConflicts: "test_compare_and_swap.py",
    errors.StoreUnavailable: "test_store_trouble.py: takes a Redis that is hurt",
    errors.StoreFull: "test_store_trouble.py",
    errors.StoreRefused: "test_store_trouble.py",
    errors.UnreadableRecord: "test_broken_runs.py",
    errors.StoreMisconfigured: "test_serve.py: the service does not start",
    errors.MaintenanceEnded: "test_broken_runs.py: takes a process whose maintenance ended",
    errors.ServiceStopping: "test_serve.py: takes a process that ends",
    errors.InternalError: "test_direct_route.py: a bug",
}
ABSTRACT = {errors.InvalidInput, errors.Forbidden, errors.NotFound, errors.Conflict}


def test_every_error_has_a_case_or_one_elsewhere() -> None:
    assert CASES.keys() | ELSEWHERE.keys() | ABSTRACT == set(errors.BY_CODE.values())
    assert not CASES.keys() & ELSEWHERE.keys()


@pytest.mark.parametrize("error", CASES, ids=lambda error: error.code)
async def test_an_error_is_a_problem_with_its_status_and_code(
    client: httpx.AsyncClient, error: type[errors.ServiceError]
) -> None:
    reply = await CASES[error](client)
    problem = reply.json()
    assert (reply.status_code, problem["status"], problem["code"]) == (error.status, error.status, error.code)
    assert reply.headers["content-type"] == "application/problem+json"
    assert problem["detail"]


# What is done twice is done once


async def test_runs_are_listed_page_by_page(client: httpx.AsyncClient) -> None:
    for name in ("c", "a", "e", "b", "d"):
        (await client.post("/v1/runs", json=RUN | {"name": name})).raise_for_status()
    pages, after = [], ""
    while after is not None:
        page = (await client.get("/v1/runs", params={"limit": 2, "after": after})).json()
        pages.append([run["name"] for run in page["runs"]])
        after = page["next_after"]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert (await client.get("/v1/runs")).json()["next_after"] is None
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after": "x" * 65}, {"from": "a"}):
        assert (await client.get("/v1/runs", params=wrong)).status_code == 422


async def test_a_run_is_made_once(client: httpx.AsyncClient) -> None:
    replies = [await client.post("/v1/runs", json=RUN) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [201, 200]
    assert {reply.headers["location"] for reply in replies} == {"/v1/runs/r"}
    assert replies[0].json() == replies[1].json() == (await client.get("/v1/runs/r")).json()
    assert [run["name"] for run in (await client.get("/v1/runs")).json()["runs"]] == ["r"]
    other = await client.post("/v1/runs", json=RUN | {"batch_size": 3, "max_staleness": 4})
    assert ": batch_size is 2, max_staleness is null" in other.json()["detail"]


async def test_an_environment_joins_once_and_leaves_as_often_as_it_likes(client: httpx.AsyncClient) -> None:
    await made(client)
    join = {"name": "math\n数\x7f", "min_share": 0.5}
    replies = [await client.post("/v1/runs/r/environments", json=join) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [201, 200]
    assert {reply.headers["location"] for reply in replies} == {"/v1/runs/r/environments/0"}
    place = replies[0].headers["location"]
    assert (await client.get(place)).json()["name"] == join["name"]
    assert (await client.post("/v1/runs/r/batches")).headers["lachesis-waiting"], "whatever it is called"
    assert [(await client.delete(place)).status_code for _ in range(2)] == [204, 204]
    assert (await client.get(place)).json()["connected"] is False
    assert (await client.post("/v1/runs/r/environments", json=join)).json()["connected"] is True


async def test_an_id_in_a_group_is_that_of_the_environment_which_its_sender_means(client: httpx.AsyncClient) -> None:
    """It was another one if the run was created again."""
    await made(client)
    for name in ("math", "code"):
        (await client.post("/v1/runs/r/environments", json={"name": name})).raise_for_status()
    places = [{"id": "a", "environment": 0}, {"id": "b", "environment": 1}, {"id": "c"}]
    answers = [await client.post("/v1/runs/r/groups?environment=math", json=GROUP | place) for place in places]
    assert [answer.status_code for answer in answers] == [201, 404, 201]
    assert answers[1].json()["detail"] == "environment 1, which group b names, is not 'math'"


async def test_a_group_sent_twice_gets_its_first_answer_whatever_has_changed(client: httpx.AsyncClient) -> None:
    await made(client, max_staleness=0)
    blob = in_binary(GROUP | {"id": "b", "policy_version": 0})
    first = await client.post("/v1/runs/r/groups", content=blob, headers=BINARY)
    assert "idempotent-replay" not in first.headers
    assert (await sent(client, id="a", policy_version=0))["status"] == "accepted"
    await client.put("/v1/runs/r/policy-version", json={"policy_version": 1})
    assert (await sent(client, id="a", policy_version=0))["status"] == "accepted"
    again = await client.post("/v1/runs/r/groups", content=blob, headers=BINARY)
    assert (again.json(), again.headers["idempotent-replay"]) == (first.json(), "true")
    assert (await sent(client, id="late", policy_version=0))["status"] == "stale"
    await client.patch("/v1/runs/r", json={"max_staleness": None})
    assert (await sent(client, id="late", policy_version=0))["status"] == "stale"
    assert (await client.get("/v1/runs/r/status")).json()["groups"]["accepted"] == 3


@pytest.mark.parametrize(("how", "state", "queued"), [("ack", "acknowledged", 0), ("nack", "given_back", 1)])
async def test_a_batch_ends_once_and_says_so_each_time(
    client: httpx.AsyncClient, how: str, state: str, queued: int
) -> None:
    await made(client)
    await sent(client)
    batch = await taken(client)
    replies = [await end(client, batch, how) for _ in range(2)]
    assert [(reply.status_code, reply.json()["state"]) for reply in replies] == [(200, state)] * 2
    other = {"ack": "nack", "nack": "ack"}[how]
    assert (await end(client, batch, other)).json()["code"] == "lease_lost"
    assert (await end(client, batch, "extend")).json()["code"] == "lease_lost"
    assert (await client.get("/v1/runs/r/status")).json()["groups"]["queued"] == queued


async def test_nobody_can_write_lines_into_the_log(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "lachesis")
    await made(client)
    await client.post("/v1/runs/r/batches?wait_s=0.01", json={"trainer": "me\nERROR: all is lost"})
    await sent(client)
    assert (await end(client, await taken(client), "nack", reason="tired\nERROR: all is lost")).status_code == 200
    lines = [TextLines().format(record) for record in caplog.records]
    assert sum("all is lost" in line for line in lines) == 2
    assert not [line for line in lines if "\n" in line]


async def test_a_run_that_is_removed_leaves_no_key_and_touches_no_other(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    await made(client)
    await client.post("/v1/runs", json=RUN | {"name": "other"})
    assert (await client.post("/v1/runs/other/groups", json=GROUP)).status_code == 201
    for number in range(4):
        await sent(client, id=f"g{number}", policy_version=0)
    await client.post("/v1/runs/r/environments", json={"name": "math"})
    await end(client, await taken(client))
    await end(client, await taken(client), "nack")
    await taken(client)
    assert [(await client.delete("/v1/runs/r")).status_code for _ in range(2)] == [204, 404]
    left = {key.decode() async for key in redis_client.scan_iter("*")}
    assert not {key for key in left if "{r}" in key or f"{PREFIX}:payload:r:" in key}
    assert (await client.post("/v1/runs/other/batches")).status_code == 201


async def test_ids_of_groups_and_batches_are_not_taken_for_each_other(client: httpx.AsyncClient) -> None:
    await made(client)
    assert (await client.post("/runs/r/atropos/scored_data", json=GROUP)).status_code == 200
    batch = await taken(client)
    group = batch["groups"][0]["id"]
    await end(client, batch)
    assert (await client.get(f"/v1/runs/r/groups/{group}")).json()["state"] == "delivered"
    assert (await client.get(f"/v1/runs/r/groups/{batch['batch']}")).json()["code"] == "group_not_found"
    assert (await end(client, batch | {"batch": group})).json()["code"] == "batch_not_found"


# Changes


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"max_staleness": None, "max_age_s": 0.5}, 200),
        ({"batch_size": None}, 422),
        ({"archived": None}, 422),
        ({"lease_s": 0}, 422),
        ({"lease_s": 1e999}, 422),
        ({"lease_s": "NaN"}, 422),
        ({"max_age_s": -1}, 422),
        ({"max_queued_groups": 2**53}, 422),
        ({"future_versions": "ignore"}, 422),
        ({"name": "s"}, 422),
        ({"colour": 1}, 422),
        ([], 422),
    ],
    ids=str,
)
async def test_a_change_of_a_run_changes_what_it_names_or_nothing(
    client: httpx.AsyncClient, change: Any, status: int
) -> None:
    await made(client, max_staleness=3)
    before = (await client.get("/v1/runs/r")).json()
    text = str(change).replace("'", '"').replace("None", "null").replace("inf", "1e999")
    reply = await client.patch("/v1/runs/r", content=text)
    assert reply.status_code == status, reply.text
    assert (await client.get("/v1/runs/r")).json() == before | (change if status == 200 else {})


@pytest.mark.parametrize(
    ("change", "status"),
    [({"min_share": 0.5}, 200), ({"max_share": None}, 200), ({"weight": None}, 422), ({"name": "x"}, 422)],
    ids=str,
)
async def test_a_change_of_an_environment_changes_what_it_names_or_nothing(
    client: httpx.AsyncClient, change: dict[str, Any], status: int
) -> None:
    await made(client)
    await client.post("/v1/runs/r/environments", json={"name": "math", "weight": 2.0, "max_share": 0.75})
    reply = await client.patch("/v1/runs/r/environments/0", json=change)
    assert reply.status_code == status
    shown = (await client.get("/v1/runs/r/environments/0")).json()
    assert shown["weight"] == 2.0
    assert shown["share_promised"] == (0.5 if "min_share" in change else 0.0)
    assert shown["share_limit"] == (None if "max_share" in change else 0.75)


# Paths and queries nobody should send

HOSTILE = ("%2e%2e", "a%2fb", "%00", "a%0a", "%C3%A9", "a" * 65, "a%20b", "%ff", "-a", "{x}")
NUMBERS = ("-1", "1e3", "nan", "9" * 30, str(2**53), "%D9%A3", "0x1")


PATHS = (
    *(f"/v1/runs/{name}{rest}" for name in HOSTILE for rest in ("", "/status", "/groups/g", "/environments/0")),
    *(f"/v1/runs/r/environments/{number}" for number in NUMBERS),
    *(f"/v1/runs/r/groups/{name}" for name in HOSTILE),
    *(f"/v1/runs/r/batches/explain?batch_size={number}" for number in NUMBERS),
    *(f"/v1/runs/r/batches/explain?relax_after_s={number}" for number in ("nan", "inf", "-1", "1e308")),
    *(f"/v1/runs/r/environments/{number}/credits" for number in NUMBERS),
)


async def test_an_unknown_path_or_query_is_the_callers_fault(client: httpx.AsyncClient) -> None:
    await made(client)
    await client.post("/v1/runs/r/environments", json={"name": "math"})
    replies = {path: await client.get(path) for path in PATHS}
    answers = {path: (reply.status_code, reply.json()["code"]) for path, reply in replies.items()}
    allowed = {(422, "invalid_field"), (404, "not_found")}
    assert not {path: answer for path, answer in answers.items() if answer not in allowed}


@pytest.mark.parametrize("wait_s", ["-0.1", "600.1", "nan", "-nan", "inf", "1e999", "soon"])
async def test_a_wait_is_of_up_to_ten_minutes(client: httpx.AsyncClient, wait_s: str) -> None:
    await made(client)
    assert (await client.post(f"/v1/runs/r/batches?wait_s={wait_s}")).json()["code"] == "invalid_field"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/runs", "GET, POST"),
        ("/v1/runs/r", "DELETE, GET, PATCH"),
        ("/v1/runs/r/batches", "GET, POST"),
        ("/v1/runs/r/environments/0", "DELETE, GET, PATCH"),
        ("/v1/runs/r/policy-version", "PUT"),
    ],
)
async def test_another_method_is_answered_with_all_that_there_are(
    client: httpx.AsyncClient, path: str, allowed: str
) -> None:
    reply = await client.options(path)
    assert (reply.status_code, reply.json()["code"]) == (405, "method_not_allowed")
    assert reply.headers["allow"] == allowed


# Waiting while things change


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [("archive", 409, "run_archived"), ("delete", 404, "run_not_found"), ("resize", 201, None), ("nothing", 204, None)],
)
async def test_who_waits_hears_at_once_of_what_ends_the_wait(
    client: httpx.AsyncClient, change: str, status: int, code: str | None
) -> None:
    await made(client, batch_size=3)
    await sent(client)
    waiting = asyncio.create_task(client.post("/v1/runs/r/batches?wait_s=" + ("0.4" if change == "nothing" else "20")))
    if change != "nothing":
        await trainers_wait(client, 1)
    match change:
        case "archive":
            await client.patch("/v1/runs/r", json={"archived": True})
        case "delete":
            await client.delete("/v1/runs/r")
        case "resize":
            await client.patch("/v1/runs/r", json={"batch_size": 2})
    async with asyncio.timeout(60):
        reply = await waiting
    assert reply.status_code == status
    assert code is None or reply.json()["code"] == code
