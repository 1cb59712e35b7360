"""The front of docker-compose.yml: the Caddy version of its image, as a process, before HTTP servers that record.

Docker's DNS is stood in for by one that answers with the addresses a test names. Not covered: the Caddy image itself
and Docker's network.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.packaging.conftest import FIRST, SECOND, Front, linux_only
from tests.packaging.tree import BIN, check
from tests.waiting import wait_until

pytestmark = [linux_only, pytest.mark.long]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def api(front: Front, address: str, handler: Handler) -> AsyncIterator[None]:
    """Stand an HTTP server where one API container would be."""
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, auto_decompress=False, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, address, front.api_port).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def mirror(request: web.Request) -> web.Response:
    """Say what arrived."""
    body = await request.read()
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "bytes": len(body),
            "body": body[:100].decode("latin-1"),
        }
    )


def test_the_front_is_formatted_and_valid_to_caddy() -> None:
    check(BIN / "caddy", "fmt", "--diff", "docker/Caddyfile")
    check(BIN / "caddy", "validate", "--config", "docker/Caddyfile")


async def test_path_prefix_auth_and_body_arrive_as_sent(front: Front) -> None:
    """Atropos environments send a JSON body with `GET /status-env`; base URLs carry prefixes and user:password@."""
    async with api(front, FIRST, mirror), api(front, SECOND, mirror):
        url = f"{front.url}/runs/a%2Fb/atropos/status-env?env_id=3"
        basic = "Basic dXNlcjpwYXNz"
        reply = await front.session.get(url, json={"env_id": 3}, headers={"Authorization": basic})
        seen = await reply.json()
    assert seen["path"] == "/runs/a%2Fb/atropos/status-env?env_id=3"
    assert seen["body"] == '{"env_id": 3}'
    assert seen["headers"]["authorization"] == basic
    assert seen["headers"]["host"] == front.url.removeprefix("http://")


async def test_gzip_is_asked_for_only_where_the_client_asks(front: Front) -> None:
    async with api(front, FIRST, mirror), api(front, SECOND, mirror):
        plain = await (await front.session.get(front.url, skip_auto_headers=["Accept-Encoding"])).json()
        zipped = await (await front.session.get(front.url, headers={"Accept-Encoding": "gzip"})).json()
    assert "accept-encoding" not in plain["headers"]
    assert zipped["headers"]["accept-encoding"] == "gzip"


async def test_a_large_body_streams_through_without_being_held_back(front: Front) -> None:
    """The API must see the first bytes while the last ones are not sent yet: it is the API that bounds bodies."""
    first_bytes, total = asyncio.Event(), 64 * 2**20

    async def count(request: web.Request) -> web.Response:
        received = 0
        async for chunk in request.content.iter_any():
            received += len(chunk)
            first_bytes.set()
        return web.json_response(received)

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 2**20
        await asyncio.wait_for(first_bytes.wait(), 60)
        for _ in range(63):
            yield b"x" * 2**20

    async with api(front, FIRST, count), api(front, SECOND, count):
        reply = await front.session.post(front.url, data=body())
        assert await reply.json() == total


async def test_no_request_fails_while_one_of_two_containers_is_gone(front: Front) -> None:
    async with api(front, SECOND, mirror):  # nothing listens at FIRST, which DNS still names
        for number in range(30):
            body = bytes([number]) * 200_000
            reply = await front.session.post(front.url, data=body)
            assert (await reply.json())["bytes"] == len(body), reply.status
            assert (await front.session.get(front.url)).status == 200


async def test_a_post_that_was_sent_is_never_sent_twice_and_a_get_is(front: Front) -> None:
    """A POST whose API died half-way may have been stored: only its client knows whether it may be repeated."""
    seen: list[str] = []

    async def die(request: web.Request) -> web.Response:
        await request.read()
        seen.append(request.method)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    front.names.addresses = (FIRST,)
    async with api(front, FIRST, die):
        posted = await front.session.post(front.url, data=b"x")
        assert (posted.status, (await posted.json())["code"]) == (502, "no_api_process")
        assert seen == ["POST"]
    seen.clear()
    front.names.addresses = (FIRST, SECOND)
    async with api(front, FIRST, die), api(front, SECOND, mirror):
        async with asyncio.timeout(60):
            while not seen:
                assert (await front.session.get(front.url)).status == 200


async def test_a_container_that_starts_later_gets_requests(front: Front) -> None:
    front.names.addresses = (FIRST,)
    arrived = asyncio.Event()

    async def notice(request: web.Request) -> web.Response:
        arrived.set()
        return web.Response()

    async with api(front, FIRST, mirror):
        assert (await front.session.get(front.url)).status == 200
        async with api(front, SECOND, notice):
            front.names.addresses = (FIRST, SECOND)
            async with asyncio.timeout(60):
                while not arrived.is_set():
                    assert (await front.session.get(front.url)).status == 200


async def test_without_a_container_a_request_waits_then_gets_502(front: Front) -> None:
    reply = await front.session.get(front.url)
    assert (reply.status, (await reply.json())["code"]) == (502, "no_api_process")
    assert reply.headers["Retry-After"] == "1"

    asked = front.names.asked
    waiting = asyncio.create_task(front.session.post(front.url, data=b"x" * 200_000))
    # Only a request makes it ask, once a second: the second time, the first container it found has refused.
    await wait_until(lambda: front.names.asked >= asked + 2)
    async with api(front, FIRST, mirror), api(front, SECOND, mirror):
        answered = await waiting
        assert (await answered.json())["bytes"] == 200_000
