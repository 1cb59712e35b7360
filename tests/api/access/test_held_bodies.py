"""Credentials that end while the client holds back the body of its request."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.api.access.conftest import Tokens, bearer, id_of
from tests.api.conftest import Start
from tests.scenarios.native_calls import group
from tests.waiting import wait_until

RUN = {"name": "math-1", "batch_size": 4}
CURRICULUM = "/v1/runs/math-1/curricula/copy"


class HeldRequest:
    """A request whose headers, and whose body without its last byte, have been sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, last: bytes) -> None:
        self._reader, self._writer, self._last = reader, writer, last

    async def finish(self) -> tuple[int, dict[str, Any]]:
        """Send the last byte. Return the status and the body of the answer."""
        self._writer.write(self._last)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split()[0])
        return int(head.split()[1]), json.loads(await self._reader.readexactly(length))


@asynccontextmanager
async def held(
    client: httpx.AsyncClient, request: str, body: bytes, headers: Mapping[str, str]
) -> AsyncIterator[HeldRequest]:
    """Begin a request. The service answers 100 when it has accepted the headers and waits for the body."""
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    given = {"Host": "localhost", "Content-Length": str(len(body)), "Expect": "100-continue"} | dict(headers)
    lines = [f"{request} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(body[:-1])
    try:
        yield HeldRequest(reader, writer, body[-1:])
    finally:
        writer.close()


async def with_a_run(start: Start, headers: Mapping[str, str]) -> tuple[httpx.AsyncClient, int, bytes]:
    """Start a service with a run, an environment and a curriculum. Return the environment's id and a saved state."""
    client = await start()
    await client.post("/v1/runs", json=RUN, headers=headers)
    joined = await client.post("/v1/runs/math-1/environments", json={"name": "e", "group_size": 2}, headers=headers)
    made = await client.put("/v1/runs/math-1/curricula/math", json={}, headers=headers)
    assert made.is_success, made.text
    saved = await client.get("/v1/runs/math-1/curricula/math/state", headers=headers)
    return client, joined.json()["id"], saved.content


async def seen(client: httpx.AsyncClient, headers: Mapping[str, str]) -> list[Any]:
    """Return all that the held requests of these tests would change."""
    tokens = (await client.get("/v1/tokens", headers=headers)).json()["tokens"]
    status = (await client.get("/v1/runs/math-1", headers=headers)).json()
    copy = await client.get(CURRICULUM, headers=headers)
    groups = (await client.get("/v1/runs/math-1/status", headers=headers)).json()
    return [[token["id"] for token in tokens], status["max_staleness"], copy.status_code, groups["queue_size"]]


@pytest.mark.parametrize(
    ("request_line", "kind"),
    [
        ("POST /v1/tokens", "token"),
        ("PATCH /v1/runs/math-1", "run"),
        ("POST /v1/runs/math-1/groups", "group"),
        (f"PUT {CURRICULUM}/state", "state"),
    ],
)
async def test_a_token_that_is_revoked_before_the_body_has_arrived_changes_nothing(
    start: Start, tokens: Tokens, request_line: str, kind: str
) -> None:
    keeper, revoked = bearer(await tokens.make("operator")), await tokens.make("operator")
    client, environment, state = await with_a_run(start, keeper)
    bodies = {
        "token": b'{"role": "operator"}',
        "run": b'{"max_staleness": 7}',
        "group": json.dumps(group("g1") | {"environment": environment}).encode(),
        "state": state,
    }
    sent_as = "application/jsonl" if kind == "state" else "application/json"
    headers = bearer(revoked) | {"Content-Type": sent_as}
    before = await seen(client, keeper)

    async def refused() -> bool:
        return (await client.get("/v1/runs", headers=bearer(revoked))).status_code == 401

    async with held(client, request_line, bodies[kind], headers) as request:
        await tokens.administration.revoke(id_of(revoked))
        await wait_until(refused)
        status, problem = await request.finish()
    assert (status, problem["code"]) == (401, "unauthorized")
    assert await seen(client, keeper) == before
    async with held(client, request_line, bodies[kind], keeper | {"Content-Type": sent_as}) as request:
        status, _ = await request.finish()
    assert status in (200, 201)
    assert await seen(client, keeper) != before


async def test_a_request_that_began_before_the_service_closed_does_nothing(start: Start, tokens: Tokens) -> None:
    client = await start()

    async def closed() -> bool:
        return (await client.get("/v1/runs")).status_code == 401

    async with held(client, "POST /v1/runs", json.dumps(RUN).encode(), {"Content-Type": "application/json"}) as request:
        operator = await tokens.make("operator")
        await wait_until(closed)
        status, problem = await request.finish()
    assert (status, problem["code"]) == (401, "unauthorized")
    assert (await client.get("/v1/runs", headers=bearer(operator))).json()["runs"] == []
