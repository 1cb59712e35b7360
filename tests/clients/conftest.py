"""A real service behind a proxy that can break connections."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from lachesis import AsyncTrainer, Settings
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


@pytest.fixture
async def run(settings: Settings) -> Settings:
    """The same, with a run whose batches have two sequences."""
    async with AsyncTrainer(settings) as trainer:
        await trainer.create_run(batch_size=2)
    return settings


def settings_of(proxy: CuttingProxy, **changed: Any) -> Settings:
    """The same with other values."""
    return Settings(**{"url": proxy.url, "run": "math", "timeout_s": 10, "retry_budget_s": 10, **changed})
