"""What the tests of the SDK need in an interpreter without the server: a run of the service at LACHESIS_URL.

Properties are tried on a tenth of their examples: what a version lacks shows on each.
"""

from collections.abc import AsyncIterator

import hypothesis
import pytest

from lachesis import AsyncTrainer, Settings
from tests import properties

hypothesis.settings.load_profile(properties.FAST)


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
