"""Refusals of senders that get many are held back, and nothing else is."""

import asyncio
import gc
import heapq
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.http.access.refusals import BURST_S, LONGEST_WAIT_S, Refusals
from app.api.http.connection.client_connection import CLIENT_CONNECTION, ClientConnection
from app.api.http.problems import FRAMEWORK_ERRORS, Problems
from app.core.access.gcra import ThrottleRate, throttle
from lachesis.wire.errors import InvalidField
from tests.api.access.conftest import Tokens, bearer, tokens
from tests.api.conftest import Start
from tests.api.log_capture import LogLines
from tests.waiting import wait_until

__all__ = ["tokens"]  # a fixture
MANY = "many refused requests"
ALWAYS = 0.01  # a second: the first refusal waits already


async def test_a_refusal_waits_until_the_server_or_the_client_ends_it() -> None:
    for ended in ("shut_down", "break_off"):
        connection = ClientConnection(lambda: None, lambda: 0, lambda: None)
        scope = {"path": "/", "headers": [], "client": ("10.0.0.7", 1), CLIENT_CONNECTION: connection}
        held = asyncio.create_task(Refusals(ALWAYS).throttle(scope))
        await asyncio.sleep(0)
        assert not held.done()
        if ended == "shut_down":
            connection.shut_down()
        else:
            connection.break_off(asyncio.get_running_loop())
        await held


async def test_the_log_of_a_refusal_has_a_long_path_cut(log_lines: LogLines) -> None:
    connection = ClientConnection(lambda: None, lambda: 0, lambda: None)
    scope = {"path": "/" + "x" * 9000, "headers": [], "client": ("10.0.0.7", 1), CLIENT_CONNECTION: connection}
    held = asyncio.create_task(Refusals(ALWAYS).throttle(scope))
    await wait_until(lambda: bool(log_lines.of(MANY)))
    held.cancel()
    assert log_lines.of(MANY)[0]["path"] == "/" + "x" * 199


@pytest.mark.parametrize(("connections", "most_a_second"), [(1, 20), (400, 20), (1000, 50)])
def test_many_connections_of_a_sender_share_one_pace(connections: int, most_a_second: int) -> None:
    """Each sends the next wrong request when it has the answer to its last one."""
    pace, seconds = ThrottleRate(20, BURST_S, LONGEST_WAIT_S), 60
    free_at_s, refused, due = 0.0, 0, [0.0] * connections
    while (now_s := heapq.heappop(due)) < seconds:
        free_at_s, wait_s = throttle(free_at_s, now_s, pace)
        refused += 1
        heapq.heappush(due, now_s + wait_s)
    assert refused <= connections + 20 * (BURST_S + LONGEST_WAIT_S) + most_a_second * seconds


class Body:
    pass


def refusing(read: Callable[[], Awaitable[Body]], refusals: Refusals) -> ASGIApp:
    """A route that reads a body and refuses it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read()
        raise InvalidField("is wrong", ("scores",)) from ValueError(body)

    return Problems(app, refusals)


def refused_by_fastapi(read: Callable[[], Awaitable[Body]], refusals: Refusals) -> ASGIApp:
    """A route whose body is read before FastAPI refuses a parameter."""

    async def answer(body: Annotated[Any, Depends(read)], count: int) -> None:
        raise AssertionError("the parameter is missing")

    app = FastAPI(exception_handlers=FRAMEWORK_ERRORS, middleware=[Middleware(Problems, refusals=refusals)])
    app.post("/", response_model=None)(answer)
    return app


@pytest.mark.parametrize("make", [refusing, refused_by_fastapi])
async def test_a_refusal_that_waits_holds_nothing_of_its_request(
    make: Callable[[Callable[[], Awaitable[Body]], Refusals], ASGIApp],
) -> None:
    refused: list[weakref.ref[Body]] = []
    waits = asyncio.Event()

    async def read() -> Body:
        body = Body()
        refused.append(weakref.ref(body))
        return body

    async def send(message: Message) -> None:
        raise AssertionError(f"{message} was not held back")

    class Waiting(Refusals):
        async def throttle(self, scope: Scope) -> None:
            waits.set()
            await super().throttle(scope)

    connection = ClientConnection(lambda: None, lambda: 0, lambda: None)
    scope = {
        "type": "http",
        "path": "/",
        "method": "POST",
        "query_string": b"",
        "headers": [],
        CLIENT_CONNECTION: connection,
    }
    gc.disable()  # it would free what holds itself, some time later
    try:
        held = asyncio.ensure_future(make(read, Waiting(ALWAYS))(scope, asyncio.Event().wait, send))
        async with asyncio.timeout(20):
            await waits.wait()
        assert [body() for body in refused] == [None]
        held.cancel()
    finally:
        gc.enable()


async def test_every_kind_of_refusal_counts_and_no_other_answer_does(start: Start, log_lines: LogLines) -> None:
    async def is_logged(times: int) -> bool:
        return len(log_lines.of(MANY)) == times

    for method, path, body in (
        ("GET", "/nowhere", None),
        ("PUT", "/v1/runs", None),
        ("POST", "/v1/runs", {}),
        ("GET", "/v1/runs?limit=x", None),
        ("POST", "/v1/runs/none/groups", {"id": "x"}),
        ("GET", "/v1/runs/none", None),
    ):
        client = await start(max_refusals_per_s=ALWAYS)
        for honest in ("/v1/runs", "/healthz"):
            assert (await client.get(honest)).status_code == 200
        told = len(log_lines.of(MANY))
        waiting = asyncio.create_task(client.request(method, path, json=body))
        await wait_until(partial(is_logged, told + 1))
        assert log_lines.of(MANY)[told]["path"] == path.partition("?")[0]
        waiting.cancel()


async def test_each_identity_has_its_own_room(start: Start, tokens: Tokens, log_lines: LogLines) -> None:
    """Workers behind one proxy have one address."""
    first, second = [bearer(await tokens.make("viewer", "math-*")) for _ in range(2)]
    client = await start(max_refusals_per_s=2)  # five at once

    async def refused(headers: dict[str, str], times: int) -> None:
        for _ in range(times):
            assert (await client.get("/v1/runs/none", headers=headers)).status_code == 404

    await refused(first, 5)
    await refused(second, 5)
    assert log_lines.of(MANY) == []
    await asyncio.gather(*(refused(first, 1) for _ in range(10)))
    assert log_lines.of(MANY)[0]["token"] == first["Authorization"].split("_")[2]
