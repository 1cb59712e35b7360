"""What a loop prefetches is trained on, or given back."""

import asyncio
import gc

import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Rank, Settings
from lachesis._transport.run_calls import Taken
from tests.clients.conftest import settings_of
from tests.clients.proxy import CuttingProxy
from tests.clients.run import counts, group, leased, submitted
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.parametrize("rank", [None, Rank(0, 1)])
async def test_prefetched_batches_whose_leases_were_lost_are_replaced_unless_ranks_share_them(
    run: Settings, proxy: CuttingProxy, caplog: pytest.LogCaptureFixture, rank: Rank | None
) -> None:
    """The trainer is cut off for longer than its leases; another one trains on its batches."""
    direct = settings_of(proxy, url=f"http://127.0.0.1:{proxy.upstream}")
    port = proxy.upstream
    async with (
        AsyncTrainer(run) as trainer,
        AsyncTrainer(direct) as another,
        AsyncEnvironment("math", direct) as environment,
    ):
        lost = await submitted(environment, [group(position) for position in range(1, 5)])
        batches = trainer.batches(prefetch=1, wait_s=60, lease_s=0.5, rank=rank)
        await anext(batches)
        await wait_until(lambda: leased(another, 4))
        proxy.upstream = None
        await proxy.drop_all()
        for _ in range(2):
            theirs = await another.take(wait_s=20, rank=rank)
            assert theirs is not None
            await theirs.ack()
        proxy.upstream = port
        await wait_until(lambda: "batches_held=0" in repr(trainer))
        new = await submitted(environment, [group(5), group(6)])
        replaced = rank is None
        assert [one.id for one in (await anext(batches)).groups] == (new if replaced else lost[2:])
        said = "run math: left out a prefetched batch, because its lease was lost"
        assert caplog.text.count(said) == replaced
        await batches.aclose()


async def test_prefetched_batches_that_became_too_old_are_replaced(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await trainer.change_run(max_staleness=1)
        await trainer.set_policy_version(5)
        old = await submitted(environment, [group(position, policy_version=4) for position in range(1, 5)])
        batches = trainer.batches(prefetch=1, wait_s=5)
        first = await anext(batches)
        await wait_until(lambda: leased(trainer, 4))
        new = await submitted(environment, [group(position, policy_version=6) for position in range(5, 7)])
        await trainer.set_policy_version(6)
        await first.ack()
        second = await anext(batches)
        assert [one.id for one in first.groups] == old[:2]
        assert [one.id for one in second.groups] == new
        await second.ack()
        await batches.aclose()
        assert (await trainer.status()).dropped["stale"] == 2


async def test_the_loop_gives_back_old_batches_that_a_cancelled_call_has_left(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await trainer.change_run(max_staleness=1)
        await trainer.set_policy_version(5)
        await submitted(environment, [group(position, policy_version=4) for position in range(1, 9)])
        batches = trainer.batches(prefetch=3, wait_s=5)
        await (await anext(batches)).ack()
        await wait_until(lambda: leased(trainer, 6))
        setting = asyncio.create_task(trainer.set_policy_version(6))
        await wait_until(lambda: "batches_held=3" not in repr(trainer), pause_s=0)
        setting.cancel()
        await asyncio.wait([setting])
        assert setting.cancelled()
        await batches.aclose()
        assert (await counts(trainer))["leased"] <= 2, "the batch whose request was cancelled waits for its deadline"


async def test_a_batch_leaves_the_memory_while_the_loop_waits_for_the_next(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        steps = []

        async def train() -> None:
            async for batch in trainer.batches(prefetch=1):
                steps.append(batch.step)
                await batch.ack()
                del batch

        training = asyncio.create_task(train())
        await wait_until(lambda: len(steps) == 1 and not _taken_in_memory())
        await submitted(environment, [group(3), group(4)])
        await wait_until(lambda: len(steps) == 2)
        training.cancel()


def _taken_in_memory() -> list[Taken]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Taken)]
