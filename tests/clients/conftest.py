"""A real service behind a proxy that can break connections."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from lachesis import Settings
from tests.api.conftest import running_service
from tests.clients.proxy import CuttingProxy


@pytest.fixture
async def proxy(redis_url: str, redis_client: Redis) -> AsyncIterator[CuttingProxy]:
    """A proxy before a service with an empty store."""
    async with running_service(redis_url) as client, CuttingProxy(client.base_url.port) as proxy:
        yield proxy


@pytest.fixture
def settings(proxy: CuttingProxy) -> Settings:
    """How to reach the service through the proxy."""
    return settings_of(proxy)


def settings_of(proxy: CuttingProxy, **changed: Any) -> Settings:
    """The same with other values."""
    return Settings(**{"url": proxy.url, "run": "math", "timeout_s": 10, "retry_budget_s": 10, **changed})
