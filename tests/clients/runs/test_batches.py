"""A trainer's process lists the latest batches and looks at one."""

import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Settings, Trainer
from lachesis.errors import BatchNotFound, InvalidField
from tests.clients.proxy import CuttingProxy
from tests.clients.run import group, submitted
from tests.clients.test_sync import in_thread


async def test_pages_have_every_batch_although_answers_are_lost(run: Settings, proxy: CuttingProxy) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(n) for n in range(1, 7)])
        taken = []
        for _ in range(3):
            batch = await trainer.take()
            assert batch is not None
            taken.append(batch.info.batch)
            await batch.ack()
        proxy.cut("reply", 0)
        page = await trainer.list_batches(limit=2)
        assert proxy.cuts == 1
        assert page.cursor is not None
        rest = await trainer.list_batches(limit=2, cursor=page.cursor)
        assert [one.batch for one in page.batches + rest.batches] == taken[::-1]
        assert rest.cursor is None
        assert {one.state for one in page.batches} == {"kept"}
        assert (await trainer.list_batches(from_s=0, to_s=1)).batches == []
        assert len((await trainer.list_batches(from_s=1)).batches) == 3
        with pytest.raises(InvalidField, match="before"):
            await trainer.list_batches(from_s=2, to_s=1)
        with pytest.raises(InvalidField, match="limit"):
            await trainer.list_batches(limit=129)


async def test_code_without_an_event_loop_looks_at_a_batch_too(run: Settings) -> None:
    async with AsyncEnvironment("math", run) as environment:
        sent = await submitted(environment, [group(1), group(2)])

    def story() -> None:
        with Trainer(run, name="gpu-7") as trainer:
            assert trainer.list_batches().batches == []
            batch = trainer.take()
            assert batch is not None
            found = trainer.find_batch(batch.info.batch)
            assert (found.batch, found.step, found.state, found.trainer) == (
                batch.info.batch,
                batch.step,
                "held",
                "gpu-7",
            )
            assert [one.id for one in found.contents or ()] == sent
            assert trainer.list_batches().batches[0].size == 2
            with pytest.raises(BatchNotFound):
                trainer.find_batch("0" * 12)

    await in_thread(story)
