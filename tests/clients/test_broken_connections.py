"""Everything at once, over connections that break all the time."""

import asyncio
import random
from collections import Counter
from contextlib import aclosing

import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Settings
from lachesis.errors import Unreachable
from tests.clients.conftest import settings_of
from tests.clients.proxy import CuttingProxy
from tests.clients.run import counts, group

GROUPS = 100
CUTS = 60


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(2))
async def test_every_group_is_trained_on_exactly_once(run: Settings, proxy: CuttingProxy, seed: int) -> None:
    """Submissions, requests for batches, and their ends are cut in the middle, here and there, again and again."""
    chance = random.Random(seed)
    settings = settings_of(proxy, retry_budget_s=60)
    trained: Counter[str] = Counter()
    ids: list[str] = []

    async def cut() -> None:
        """By what has passed, not by time: on a busy machine no request would come through."""
        while proxy.cuts < CUTS:
            before = proxy.cuts
            proxy.cut(chance.choice(["request", "reply"]), chance.randrange(3000))
            while proxy.cuts == before:  # noqa: ASYNC110 - the proxy only counts
                await asyncio.sleep(0.005)

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

    cutting = asyncio.create_task(cut())
    async with asyncio.timeout(150):
        await asyncio.gather(submit(), train())
    cutting.cancel()
    assert proxy.cuts > 5
    assert trained == Counter(ids)
    async with AsyncTrainer(settings_of(proxy, url=f"http://127.0.0.1:{proxy.upstream}")) as trainer:
        assert await counts(trainer) == {"queued": 0, "leased": 0, "delivered": GROUPS}


async def test_without_repetition_the_same_story_does_not_end_well(run: Settings, proxy: CuttingProxy) -> None:
    """So the cuts do cut: a client that sends each request once is thrown out by the first of them."""
    async with AsyncTrainer(settings_of(proxy, retry_budget_s=0)) as trainer:
        proxy.cut("reply", 100)
        with pytest.raises(Unreachable):
            await trainer.status()
