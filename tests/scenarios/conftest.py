"""A running service for the scenarios."""

from collections.abc import AsyncIterator

import httpx
import pytest
from redis.asyncio import Redis

from tests.api.conftest import running_service


@pytest.fixture
async def client(redis_url: str, redis_client: Redis) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service with default settings and an empty store."""
    async with running_service(redis_url) as started:
        yield started
