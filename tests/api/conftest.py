"""A real service on a free port, over the session's real Redis."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr
from redis.asyncio import Redis
from starlette.types import ASGIApp

from app.api.http.connection.certificates import TlsContexts, TlsFiles
from app.api.http.connection.protocol_factory import make_protocol
from app.main import create_app
from app.settings import ServiceSettings
from tests.api.http.conformance import check_reply
from tests.api.log_capture import LogLines, captured_log

USUAL = {"max_refusals_per_s": 1e9, "max_new_environments_per_minute": 10_000}
"""Limits that no test meets by chance: tests send wrong requests, and bring environments, all the time."""

Start = Callable[..., Awaitable[httpx.AsyncClient]]


@contextlib.asynccontextmanager
async def running_service(redis_url: str, **overrides: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve on a free loopback port with these settings, until the block ends. Answers must be as documented."""
    settings = _settings(redis_url, **overrides)
    files = TlsFiles.of(settings)
    config = uvicorn.Config(
        create_app(settings) if overrides else _usual_app(redis_url),
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        http=make_protocol(settings.header_timeout_s, None if files is None else TlsContexts(files)),
        timeout_graceful_shutdown=2,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serving(config, listener):
            url = f"{'http' if files is None else 'https'}://127.0.0.1:{listener.getsockname()[1]}"
            # To load the certificates would take 25 ms a test. Tests of TLS verify with clients of their own.
            hooks = {"response": [_conforms]}
            async with httpx.AsyncClient(base_url=url, timeout=30, verify=False, event_hooks=hooks) as client:
                yield client


def _settings(redis_url: str, **overrides: Any) -> ServiceSettings:
    return ServiceSettings(redis_url=SecretStr(redis_url), **USUAL | overrides)


@functools.cache
def _usual_app(redis_url: str) -> FastAPI:
    """Build the application once for all services with these settings: 0.2 s each. Each start wires it again."""
    return create_app(_settings(redis_url))


async def _conforms(reply: httpx.Response) -> None:
    await reply.aread()
    check_reply(reply)


@contextlib.asynccontextmanager
async def served_to_one(app: ASGIApp) -> AsyncIterator[socket.socket]:
    """Serve an application to a client that has sent one request. Return its socket: it reads nothing by itself."""
    config = uvicorn.Config(app, http=make_protocol(5.0), lifespan="off", log_level="warning")
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        async with serving(config, listener):
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
            client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            yield client


@contextlib.asynccontextmanager
async def serving(config: uvicorn.Config, listener: socket.socket) -> AsyncIterator[None]:
    """Run uvicorn on this event loop. Its own loop looks ten times a second whether to end: 0.2 s a test."""
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup([listener])
    await server.on_tick(0)  # sets the headers of every reply
    clock = asyncio.create_task(_tell_the_time(server))
    try:
        yield
    finally:
        clock.cancel()
        for listening in server.servers:
            listening.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
        async with asyncio.timeout(config.timeout_graceful_shutdown):
            await asyncio.gather(*server.server_state.tasks)
        await server.lifespan.shutdown()


async def _tell_the_time(server: uvicorn.Server) -> None:
    """Renew the header ``Date`` each second, as uvicorn's own loop does."""
    while True:
        await asyncio.sleep(1)
        await server.on_tick(0)


@contextlib.asynccontextmanager
async def starting(redis_url: str) -> AsyncIterator[Start]:
    """Start services, and stop them when the block ends."""
    async with contextlib.AsyncExitStack() as stack:

        async def _start(**overrides: Any) -> httpx.AsyncClient:
            return await stack.enter_async_context(running_service(redis_url, **overrides))

        yield _start


@pytest.fixture
async def start(redis_url: str, redis_client: Redis) -> AsyncIterator[Start]:
    """Start a service with settings of the test's own: ``client = await start(relax_after_s=0)``."""
    async with starting(redis_url) as start:
        yield start


@pytest.fixture
async def client(start: Start) -> httpx.AsyncClient:
    """A client of a service with default settings and an empty store."""
    return await start()


@pytest.fixture
def log_lines() -> Iterator[LogLines]:
    """What services of this test log."""
    with captured_log() as lines:
        yield lines
