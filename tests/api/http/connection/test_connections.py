"""Open connections are limited, in all, for each address, token and run; a refused one gets an answer."""

import asyncio
import json
import re
import socket
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.http.connection.connections import OpenConnection, OpenConnections
from lachesis.errors import TooManyConnections
from tests.api.conftest import Start
from tests.waiting import wait_until

PING = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@given(
    limits=st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3)),
    of_run=st.none() | st.integers(1, 3),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("enter"), st.sampled_from("abc"), st.none()),
            st.tuples(st.just("belong"), st.integers(0, 5), st.sampled_from("xyz")),
            st.tuples(st.just("run"), st.integers(0, 5), st.sampled_from("rst")),
            st.tuples(st.just("leave"), st.integers(0, 5), st.none()),
        ),
        max_size=60,
    ),
)
def test_as_many_are_open_as_the_limits_allow(
    limits: tuple[int, int, int], of_run: int | None, steps: list[tuple[str, Any, str | None]]
) -> None:
    most, of_address, of_account = limits
    connections, there, refused = OpenConnections(*limits), list[tuple[OpenConnection, str, str | None]](), 0
    runs: dict[OpenConnection, str] = {}
    for step, what, account in steps:
        if step == "enter":
            entered = connections.enter(what)
            from_here = sum(address == what for _, address, _ in there)
            if not isinstance(entered, OpenConnection):
                assert entered == ("total" if len(there) >= most else "address")
                assert len(there) >= most or from_here >= of_address
                refused += 1
            else:
                assert len(there) < most
                assert from_here < of_address
                there.append((entered, what, None))
        elif what < len(there):
            connection, address, before = there.pop(what)
            if step == "leave":
                connection.leave()
                runs.pop(connection, None)
                continue
            if step == "run":
                there.insert(what, (connection, address, before))
                if account == runs.get(connection):
                    continue
                others = sum(one == account for one in runs.values())
                try:
                    connection.enter_run(str(account), of_run)
                    assert of_run is None or others < of_run
                    runs[connection] = str(account)
                except TooManyConnections:
                    assert of_run is not None
                    assert others >= of_run
                    refused += 1
                assert connection.run == runs.get(connection)
                continue
            others = sum(one == account for _, _, one in there)
            try:
                connection.belong_to(str(account))
                assert others < of_account
                there.insert(what, (connection, address, account))
            except TooManyConnections:
                assert before != account
                assert others >= of_account
                there.insert(what, (connection, address, before))
                refused += 1
    (_, _, counted), *by_limit = connections.samples()
    assert (counted, sum(count for _, _, count in by_limit)) == (len(there), refused)
    for account in "xyz":
        assert connections.of_account(account) == sum(one == account for _, _, one in there)
    for run in "rst":
        assert connections.of_run(run) == sum(one == run for one in runs.values())


def connect(client: httpx.AsyncClient, address: str) -> socket.socket:
    connection = socket.create_connection((client.base_url.host, client.base_url.port or 0), 10, (address, 0))
    connection.sendall(PING)
    return connection


def answer(connection: socket.socket) -> bytes:
    return connection.recv(1 << 16)


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        ({"max_connections": 3}, "LACHESIS_MAX_CONNECTIONS "),
        ({"max_connections_per_address": 2}, "LACHESIS_MAX_CONNECTIONS_PER_ADDRESS "),
    ],
)
async def test_a_connection_over_a_limit_gets_429_until_another_ends(
    start: Start, limits: dict[str, int], setting: str
) -> None:
    client: httpx.AsyncClient = await start(**limits)
    assert (await client.get("/metrics")).status_code == 200  # this connection, from 127.0.0.1, stays open
    with ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(connect(client, "127.0.0.2"))
            assert (await asyncio.to_thread(answer, connection)).startswith(b"HTTP/1.1 200")
        with connect(client, "127.0.0.2") as refused:
            head, _, body = (await asyncio.to_thread(answer, refused)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429")
        assert b"\r\nretry-after: 5\r\n" in head
        problem = json.loads(body)
        assert problem["code"] == "too_many_connections"
        assert setting in problem["detail"]
        counted = r"^lachesis_connections_refused_total{.*limit=\"(\w+)\".*} (.*)$"
        refused_by = dict(re.findall(counted, (await client.get("/metrics")).text, re.MULTILINE))
        by_total = "max_connections" in limits
        assert {limit: float(count) for limit, count in refused_by.items()} == {
            "total": by_total,
            "address": not by_total,
            "token": False,
            "run": False,
        }
        connection.close()

        async def served_again() -> bool:
            with connect(client, "127.0.0.2") as another:
                return (await asyncio.to_thread(answer, another)).startswith(b"HTTP/1.1 200")

        await wait_until(served_again)


async def test_a_client_of_httpx_sees_the_refusal(start: Start) -> None:
    client: httpx.AsyncClient = await start(max_connections=1)
    await client.get("/healthz")
    async with httpx.AsyncClient(base_url=client.base_url) as other:
        reply = await other.post("/register", json={"batch_size": 8})
    assert (reply.status_code, reply.json()["code"]) == (429, "too_many_connections")
