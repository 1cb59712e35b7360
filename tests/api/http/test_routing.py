"""The shortcut to some routes answers and counts as the router does. Each error is answered once."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from fastapi import Request, Response
from fastapi.routing import iter_route_contexts
from redis.asyncio import Redis
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from app.api.http.access.refusals import Refusals
from app.api.http.problems import Problems
from app.api.http.routing import DirectRoute, Shortcut, requires
from app.core.access.permissions import Permission
from app.main import create_app
from app.settings import ServiceSettings
from app.store.redis.keys import RUNS
from lachesis.wire import errors
from tests.api.native_groups import BINARY
from tests.scenarios.native_calls import RUN, group, make_run

Call = tuple[str, str, dict[str, str], bytes]
GROUPS = f"{RUN}/groups"
GOOD = json.dumps(group("g")).encode()
JSON = {"Content-Type": "application/json"}
HEARTBEATS = ("0/heartbeat", "7/heartbeat", "x/heartbeat", "-1/heartbeat?name=e&name=e", "0/heartbeat?x=1")
PACES = ("", "?env_id=0", "?env_id=", "?env_id=-1", "?env_id=x", "?env_id=0&env_id=1", "?env_id=0&more=1")
CALLS: tuple[Call, ...] = (
    *((method, GROUPS, {}, b"") for method in ("GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE")),
    *((method, "/scored_data", {}, b"") for method in ("GET", "HEAD", "OPTIONS", "PUT")),
    ("POST", GROUPS, JSON, GOOD),
    ("POST", GROUPS, JSON, GOOD),
    ("POST", GROUPS + "/", JSON, GOOD),
    ("POST", GROUPS + "?wait_s=3", JSON, GOOD),
    ("POST", GROUPS, JSON, b'{"id": '),
    ("POST", GROUPS, JSON, b'{"id": 3}'),
    ("POST", GROUPS, BINARY, b"no blob"),
    ("POST", GROUPS, BINARY, b""),
    ("POST", GROUPS, {"Content-Type": "text/plain"}, b"x"),
    ("POST", GROUPS, {"Content-Encoding": "br"}, b"x"),
    ("POST", GROUPS, {"Content-Encoding": "gzip"}, b"x"),
    ("POST", GROUPS, {"Content-Length": "9" * 12}, b"x"),
    ("POST", "/v1/runs/none/groups", JSON, GOOD),
    ("POST", "/v1/runs/a%2Fb/groups", JSON, GOOD),
    ("POST", "/v1/runs/%0A/groups", JSON, GOOD),
    ("POST", "/scored_data", JSON, b'{"tokens": [[1]], "masks": [[1]], "scores": [0.5]}'),
    ("POST", "/scored_data", JSON, b"no"),
    ("POST", "/scored_data?x=1", JSON, b'{"tokens": 1}'),
    ("POST", "/scored_data_list", JSON, b"[]"),
    ("POST", "/scored_data_list", JSON, b"{}"),
    ("POST", "/runs/other/atropos/scored_data", JSON, b"no"),
    *(("POST", f"{RUN}/environments/{path}", JSON, b'{"member": "w"}') for path in HEARTBEATS),
    ("POST", "/v1/runs/-x/environments/y/heartbeat", JSON, b'{"member": "w"}'),
    ("GET", f"{RUN}/environments/0/heartbeat", {}, b""),
    *(("GET", f"/status-env{query}", {}, b"") for query in PACES),
    ("GET", "/status-env", JSON, b'{"env_id": 0}'),
    ("GET", "/status-env?env_id=3", JSON, b'{"env_id": 0}'),
    ("GET", "/status-env?env_id=-3", JSON, b'{"env_id": 0}'),
    ("GET", "/status-env", JSON, b'{"env_id": true}'),
    ("GET", "/status-env", JSON, b"no"),
    ("POST", "/status-env?env_id=0", {}, b""),
    ("GET", "/runs/bench/atropos/status-env?env_id=0", {}, b""),
    ("GET", "/runs/-x/atropos/status-env?env_id=0", {}, b""),
)


async def answers(redis_url: str, redis: Redis, *, shortcut: bool) -> tuple[list[Any], dict[Any, int]]:
    """What the calls are answered, on an empty store, and how that is counted."""
    await redis.flushall()
    app = create_app(ServiceSettings(redis_url=redis_url))  # type: ignore[arg-type]
    if not shortcut:
        app.user_middleware = [one for one in app.user_middleware if one.cls is not Shortcut]
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "state": state}, receive, send)

        transport = httpx.ASGITransport(app=with_state)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await make_run(client)
            await client.post(f"{RUN}/environments", json={"name": "e", "member": "w", "group_size": 2})
            replies = [
                await client.request(method, path, headers=named, content=body) for method, path, named, body in CALLS
            ]
        counted = dict(state["services"].requests.counts())
    return [(reply.status_code, reply.headers.multi_items(), reply.content) for reply in replies], counted


async def test_a_shortcut_answers_and_counts_as_the_router_does(redis_url: str, redis_client: Redis) -> None:
    seen, counted = await answers(redis_url, redis_client, shortcut=True)
    assert (seen, counted) == await answers(redis_url, redis_client, shortcut=False)
    assert {status for status, _, _ in seen} >= {200, 201, 400, 404, 405, 413, 415, 422}


@pytest.mark.parametrize("name", ["-x", "%00", "%0A", "run%0A", "x" * 65, "%C3%A9"])
async def test_an_invalid_run_name_is_refused_by_every_direct_route(
    client: httpx.AsyncClient, redis_client: Redis, name: str
) -> None:
    """No dependency checks it here, and all maintenance stops at a run whose keys cannot be named."""
    calls = {f"/runs/{name}/atropos/scored_data": b'{"tokens": [[1]], "masks": [[1]], "scores": [0.5]}'}
    calls |= {f"/v1/runs/{name}/groups": GOOD, f"/v1/runs/{name}/batches": b"{}"}
    calls |= {f"/runs/{name}/atropos/scored_data_list": b"[]", f"/v1/runs/{name}/batches/abc/ack": b'{"lease": "x"}'}
    calls |= {f"/v1/runs/{name}/environments/0/heartbeat": b'{"member": "w"}'}
    refused = (await client.get(f"/v1/runs/{name}")).json()
    assert (refused["status"], refused["errors"][0]["loc"]) == (422, ["path", "run"])
    for path, body in calls.items():
        assert (await client.post(path, content=body, headers=JSON)).json() == refused
    assert (await client.get(f"/runs/{name}/atropos/status-env?env_id=0")).json() == refused
    assert not await redis_client.zcard(RUNS)


@pytest.mark.parametrize("path", [f"{RUN}/batches/XYZ", f"{RUN}/batches/%0A", "/v1/runs/-x/batches/XYZ"])
async def test_an_invalid_batch_id_is_refused_by_every_operation(client: httpx.AsyncClient, path: str) -> None:
    refused = (await client.delete(path)).json()
    assert (refused["status"], refused["errors"][-1]["loc"]) == (422, ["path", "batch"])
    for verb in ("ack", "nack", "extend"):
        assert (await client.post(f"{path}/{verb}", json={"lease": "x"})).json() == refused


async def call(endpoint: Callable[[Request], Awaitable[Response]]) -> tuple[list[Message], BaseException | None]:
    """What is sent for a request that a direct route's endpoint answers, and what is raised to the server."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def nothing(*_: object) -> Message:
        raise AssertionError

    scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": [], "server": ("x", 80)}
    route = DirectRoute("/x", requires(Permission.OPEN)(endpoint), methods=["POST"])
    app = Problems(Shortcut(nothing, [route]), Refusals(20.0))  # type: ignore[arg-type]
    (raised,) = await asyncio.gather(app(scope, nothing, send), return_exceptions=True)
    return sent, raised


@pytest.mark.parametrize(
    ("error", "status", "named"),
    [
        (errors.GroupNotFound("g"), 404, {}),
        (errors.QueueFull("full"), 429, {b"retry-after": b"1"}),
        (errors.StoreFull("full"), 507, {b"retry-after": b"10"}),
        (errors.BodyTooLarge("large"), 413, {b"connection": b"close"}),
        (ClientDisconnect(), 400, {}),
        (RuntimeError("a bug"), 500, {}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_errors_become_problems_and_bugs_are_raised_too(
    error: Exception, status: int, named: dict[bytes, bytes]
) -> None:
    async def failing(_: Request) -> Response:
        raise error

    (start, body), raised = await call(failing)
    assert start["status"] == status
    headers = dict(start["headers"])
    assert headers[b"content-type"] == b"application/problem+json"
    assert headers.items() >= named.items()
    assert HTTPStatus(status).phrase.encode() in body["body"]
    assert raised is (error if status == 500 else None)


async def test_an_error_after_the_start_sends_no_second_reply() -> None:
    """The error reaches the server, which ends the connection."""

    class BrokenOff(Response):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise errors.StoreUnavailable("away")

    async def endpoint(_: Request) -> Response:
        return BrokenOff()

    sent, raised = await call(endpoint)
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert isinstance(raised, errors.StoreUnavailable)


def test_a_direct_route_is_taken_past_the_middleware_of_fastapi() -> None:
    layer: Any = create_app(ServiceSettings()).build_middleware_stack()
    passed = [layer]
    while not isinstance(layer, Shortcut):
        layer = layer._app
        passed.append(layer)
    assert {type(one).__module__.partition(".")[0] for one in passed} == {"app"}


def test_every_direct_route_is_taken_past_the_router() -> None:
    """FastAPI keeps an included router as one route: its routes must be looked for inside."""
    app = create_app(ServiceSettings())
    (routes,) = (one.kwargs["routes"] for one in app.user_middleware if one.cls is Shortcut)
    direct = [one for one in iter_route_contexts(app.routes) if isinstance(one.original_route, DirectRoute)]
    taken = {one.path for one in iter_route_contexts(routes)}  # type: ignore[arg-type]
    assert {one.path for one in direct} - taken == {"/v1/shards/plan"}
    shortcut = Shortcut(app, routes)  # type: ignore[arg-type]
    assert shortcut.paths == taken
