"""Everything at once, over connections that break all the time."""

import asyncio
import random
from collections import Counter
from contextlib import aclosing

import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Settings
from lachesis.errors import Unreachable
from tests.clients.conftest import settings_of
from tests.clients.proxy import CuttingProxy, Direction
from tests.clients.run import counts, group

GROUPS = 100
CUTS = 60
DIRECTIONS: list[Direction] = ["request", "reply"]
LONGEST = 5000  # bytes that may pass before a cut: more than most requests and replies have


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(2))
async def test_every_group_is_trained_on_exactly_once(run: Settings, proxy: CuttingProxy, seed: int) -> None:
    """Submissions, requests for batches, and their ends are cut in the middle, here and there, again and again."""
    chance = random.Random(seed)
    settings = settings_of(proxy, retry_budget_s=60)
    trained: Counter[str] = Counter()
    ids: list[str] = []

    async def submit() -> None:
        async with AsyncEnvironment("math", settings, buffer_groups=8, heartbeat_s=0.05) as environment:
            for position in range(GROUPS):
                name = await environment.submit(group(*range(position % 50 + 1)))
                ids.append(name)

    async def train() -> None:
        async with AsyncTrainer(settings) as trainer, aclosing(trainer.batches(prefetch=2, wait_s=60)) as batches:
            async for batch in batches:
                await batch.ack()
                trained.update(one.id for one in batch.groups)
                if trained.total() >= GROUPS:
                    return

    proxy.keep_cutting((chance.choice(DIRECTIONS), chance.randrange(LONGEST)) for _ in range(CUTS))
    async with asyncio.timeout(150):
        await asyncio.gather(submit(), train())
    assert proxy.cuts >= 10
    assert trained == Counter(ids)
    async with AsyncTrainer(settings_of(proxy, url=f"http://127.0.0.1:{proxy.upstream}")) as trainer:
        assert await counts(trainer) == {"queued": 0, "leased": 0, "delivered": GROUPS}


async def test_without_repetition_the_same_story_does_not_end_well(run: Settings, proxy: CuttingProxy) -> None:
    """So the cuts do cut: a client that sends each request once is thrown out by the first of them."""
    async with AsyncTrainer(settings_of(proxy, retry_budget_s=0)) as trainer:
        proxy.cut("reply", 100)
        with pytest.raises(Unreachable):
            await trainer.status()
