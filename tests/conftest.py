"""One real Redis for the whole session; every test starts with it empty."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from redis.asyncio import Redis

from app.store.server.embedded import EmbeddedRedis
from tests import properties
from tests.acl_user import restricted_url, unrestricted_url
from tests.clock import LoopClock


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples where slow tests are left out, as in `make test-fast`; accept Ctrl-C."""
    if not config.getoption("hypothesis_profile", None):
        settings.load_profile(properties.FAST if "not slow" in config.option.markexpr else properties.FULL)
    # A script's job in the background comes with Ctrl-C ignored, and hands that on to what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def log_level() -> None:
    """Reset the log level before each test: an application sets its own for the whole process."""
    logging.getLogger("lachesis").setLevel(logging.NOTSET)


@pytest.fixture
async def loop_clock(monkeypatch: pytest.MonkeyPatch) -> LoopClock:
    """The clock of the test's event loop, to be put forward."""
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    monkeypatch.setattr(loop, "time", clock.time)
    return clock


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server like the one users get: embedded, every write fsynced."""
    data_dir: Path = tmp_path_factory.mktemp("redis")
    with EmbeddedRedis.start(data_dir) as server:
        yield restricted_url(server.url) if "TEST_AS_ACL_USER" in os.environ else server.url


@contextlib.asynccontextmanager
async def emptied(redis_url: str) -> AsyncIterator[Redis]:
    """Empty the server, before and after. The client may do everything."""
    async with Redis.from_url(unrestricted_url(redis_url)) as client:
        await client.flushall()
        yield client
        await client.flushall()


@pytest.fixture
async def redis_client(redis_url: str) -> AsyncIterator[Redis]:
    """A client of the emptied server, who may do everything. Later tests find nothing, not even a closed service."""
    async with emptied(redis_url) as client:
        yield client


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A server of the test's own: to be filled, stopped or killed."""
    with EmbeddedRedis.start(tmp_path_factory.mktemp("own")) as embedded:
        yield embedded


@pytest.fixture
async def own_redis(own_server: EmbeddedRedis) -> AsyncIterator[Redis]:
    """A client of the test's own server."""
    client = Redis.from_url(own_server.url)
    yield client
    await client.aclose()
