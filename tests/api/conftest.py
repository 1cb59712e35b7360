"""A real service on a free port, over the session's real Redis."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import SecretStr
from redis.asyncio import Redis

from app.api.protocol import make_protocol
from app.main import create_app
from app.settings import Settings

Start = Callable[..., Awaitable[httpx.AsyncClient]]


@contextlib.asynccontextmanager
async def running_service(redis_url: str, **overrides: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve on a free loopback port with these settings, until the block ends."""
    settings = Settings(redis_url=SecretStr(redis_url), **overrides)
    config = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        access_log=False,
        http=make_protocol(settings.header_timeout_s),
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            assert not task.done(), task.exception()
            await asyncio.sleep(0.01)
        port = listener.getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            try:
                yield client
            finally:
                server.should_exit = True
                await task


@pytest.fixture
async def start(redis_url: str, redis_client: Redis) -> AsyncIterator[Start]:
    """Start a service with settings of the test's own: ``client = await start(relax_after_s=0)``."""
    async with contextlib.AsyncExitStack() as stack:

        async def _start(**overrides: Any) -> httpx.AsyncClient:
            return await stack.enter_async_context(running_service(redis_url, **overrides))

        yield _start


@pytest.fixture
async def client(start: Start) -> httpx.AsyncClient:
    """A client of a service with default settings and an empty store."""
    return await start()
