"""Tokens for tests, made as the command line makes them: beside the service."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from app.services.access.tokens import NewToken, TokenAdministration
from app.store.access.rate_limits import LimitStore
from app.store.access.store import AccessStore
from app.store.redis.client import RedisClient


class Tokens:
    """Makes tokens."""

    def __init__(self, redis_url: str) -> None:
        self.connection = RedisClient(redis_url, 5.0)
        self.administration = TokenAdministration(AccessStore(self.connection), LimitStore(self.connection))

    async def make(self, role: Any, *runs: str, expires_s: float | None = None, **scope: Any) -> str:
        _, text = await self.administration.create(NewToken(role, runs, **scope), expires_s)
        return text


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def id_of(token: str) -> str:
    return token.split("_")[2]


@pytest.fixture
async def tokens(redis_url: str, redis_client: Redis) -> AsyncIterator[Tokens]:
    made = Tokens(redis_url)
    yield made
    await made.connection.aclose()
