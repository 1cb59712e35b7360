"""The buffer of most tests of this folder."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from tests.services.conftest import Process
from tests.services.replay.moves import Buffer, buffer_of


@pytest.fixture
async def buffer(process: Callable[..., Process], redis_client: Redis) -> Buffer:
    """A buffer of chunks of two fragments."""
    return await buffer_of(process(), redis_client, fragments_per_chunk=2)
