"""Use cases over the session's real Redis, as several API processes would have them."""

from collections.abc import AsyncIterator, Callable

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from app.api.deps import Services
from app.main import wire
from app.services.maintenance import Maintenance
from app.settings import Settings
from app.store.connection import Connection

Process = tuple[Services, Maintenance]


@pytest.fixture
async def process(redis_url: str, redis_client: Redis) -> AsyncIterator[Callable[..., Process]]:
    """Wire one more API process's worth of use cases: ``services, maintenance = process(relax_after_s=0)``."""
    connections: list[Connection] = []

    def start(**overrides: object) -> Process:
        settings = Settings(redis_url=SecretStr(redis_url), **overrides)  # type: ignore[arg-type]
        connections.append(Connection(redis_url, settings.store_patience_s))
        return wire(settings, connections[-1], "tested")

    yield start
    for connection in connections:
        await connection.aclose()
