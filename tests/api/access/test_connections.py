"""Connections count for the token of their last request."""

import re
from contextlib import AsyncExitStack

import httpx

from tests.api.access.conftest import Tokens, bearer, id_of
from tests.api.conftest import Start
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
