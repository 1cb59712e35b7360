"""A curriculum of twelve items."""

from collections.abc import AsyncIterator

import pytest

from lachesis import AsyncCurriculum, Settings
from tests.clients.curriculum.items import KEYS


@pytest.fixture
async def curriculum(run: Settings) -> AsyncIterator[AsyncCurriculum]:
    """A curriculum of twelve items."""
    async with AsyncCurriculum("sums", run) as curriculum:
        await curriculum.set_up()
        await curriculum.register(KEYS)
        yield curriculum
