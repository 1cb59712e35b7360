"""Connections count for the token and the run of their last requests."""

import re
from contextlib import AsyncExitStack

import httpx

from tests.api.access.conftest import Tokens, bearer, id_of
from tests.api.atropos_calls import register
from tests.api.conftest import Start
from tests.scenarios.native_calls import RUN, change_run, make_run, status
from tests.waiting import wait_until


async def test_a_token_has_so_many_connections_from_whatever_addresses(start: Start, tokens: Tokens) -> None:
    operator, shared = bearer(await tokens.make("operator")), await tokens.make("viewer", "*")
    client: httpx.AsyncClient = await start(max_connections_per_token=2)

    async def connections() -> int:
        listed = (await client.get("/v1/tokens", headers=operator)).json()["tokens"]
        return {token["id"]: int(token["connections"]) for token in listed}[id_of(shared)]

    async with AsyncExitStack() as stack:

        async def another(address: str) -> httpx.AsyncClient:
            transport = httpx.AsyncHTTPTransport(local_address=address)
            return await stack.enter_async_context(httpx.AsyncClient(base_url=client.base_url, transport=transport))

        first, second, third = [await another(f"127.0.0.{n}") for n in (2, 3, 4)]
        for one in (first, second, first, second):
            assert (await one.get("/v1/runs", headers=bearer(shared))).status_code == 200
        assert await connections() == 2
        assert (await third.get("/healthz")).status_code == 200, "this needs no token"
        reply = await third.get("/v1/runs", headers=bearer(shared))
        assert (reply.status_code, reply.json()["code"]) == (429, "too_many_connections")
        assert "LACHESIS_MAX_CONNECTIONS_PER_TOKEN" in reply.json()["detail"]
        assert (reply.headers["retry-after"], reply.headers["connection"]) == ("5", "close")
        assert await connections() == 2
        assert (await third.get("/v1/runs", headers=operator)).status_code == 200, "another token"
        assert (await first.get("/v1/runs", headers=bearer(shared))).status_code == 200, "it had its place before"
        text = (await client.get("/metrics", headers=operator)).text
        assert re.search(r'^lachesis_connections_refused_total{.*limit="token".*} 1', text, re.MULTILINE)
        await second.aclose()

        async def served() -> bool:
            return (await third.get("/v1/runs", headers=bearer(shared))).status_code == 200

        await wait_until(served)


async def test_a_run_has_so_many_connections(client: httpx.AsyncClient) -> None:
    await make_run(client, max_connections=2)
    await make_run(client, name="other")

    async with AsyncExitStack() as stack:

        async def another() -> httpx.AsyncClient:
            return await stack.enter_async_context(httpx.AsyncClient(base_url=client.base_url))

        first, second, third = [await another() for _ in range(3)]
        for one in (first, second, first, second):
            assert (await one.get(RUN)).status_code == 200
        assert (await third.get("/v1/runs")).status_code == 200, "a request in no run"
        assert (await third.get("/v1/runs/other")).status_code == 200, "another run"
        reply = await third.get(f"{RUN}/status")
        assert (reply.status_code, reply.json()["code"]) == (429, "too_many_connections")
        assert "the run has max_connections open" in reply.json()["detail"]
        assert (reply.headers["retry-after"], reply.headers["connection"]) == ("5", "close")
        assert (await first.get("/v1/runs")).status_code == 200
        assert (await status(first))["connections"] == 2, "it has kept its place"
        text = (await client.get("/metrics")).text
        assert re.search(r'^lachesis_connections_refused_total{.*limit="run".*} 1', text, re.MULTILINE)
        await change_run(third, max_connections=3)
        assert (await third.get(RUN)).status_code == 200, "a request that changes the run counts for none"
        assert (await status(first))["connections"] == 3
        assert (await second.get("/v1/runs/other")).status_code == 200
        assert (await status(first))["connections"] == 2
        await third.aclose()

        async def one_is_left() -> bool:
            return bool((await status(first))["connections"] == 1)

        await wait_until(one_is_left)


async def test_the_run_of_atropos_has_the_limit_too(client: httpx.AsyncClient) -> None:
    await register(client)
    assert (await client.patch("/v1/runs/default", json={"max_connections": 1})).status_code == 200
    assert (await client.get("/status")).json()["connections"] == 1
    for path in ("/v1/runs/default", "/status"):
        async with httpx.AsyncClient(base_url=client.base_url) as other:
            assert (await other.get(path)).status_code == 429
