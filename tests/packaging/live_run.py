"""Fixtures for an interpreter without the server: a run of the service at LACHESIS_URL, which runs elsewhere."""

from collections.abc import AsyncIterator

import pytest

from lachesis import AsyncTrainer, Settings


@pytest.fixture
def settings() -> Settings:
    """How to reach the service."""
    return Settings.from_env(run="math")


@pytest.fixture
async def run(settings: Settings) -> AsyncIterator[Settings]:
    """The same, with a new run whose batches have two sequences."""
    async with AsyncTrainer(settings) as trainer:
        await trainer.create_run(batch_size=2)
        yield settings
        await trainer.delete_run()
