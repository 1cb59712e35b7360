"""A trainer's process deletes groups that wait, whatever happens to its connections."""

import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Settings, Trainer
from lachesis.errors import EnvironmentNotFound, GroupNotFound, GroupNotWaiting, InvalidField, RunNotFound
from lachesis.wire.groups import MAX_LOOKED_AT
from tests.clients.proxy import CuttingProxy
from tests.clients.run import counts, group, submitted
from tests.clients.test_sync import in_thread


async def test_a_group_is_deleted_once_although_the_answer_was_lost(run: Settings, proxy: CuttingProxy) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        bad, *_ = await submitted(environment, [group(1), group(2), group(3)])
        proxy.cut("reply", 0)
        await trainer.delete_group(bad)
        assert proxy.cuts == 1
        assert (await trainer.find_group(bad)).reason == "deleted"
        with pytest.raises(GroupNotFound):
            await trainer.delete_group("unknown")
        batch = await trainer.take()
        assert batch is not None
        with pytest.raises(GroupNotWaiting, match=batch.info.batch):
            await trainer.delete_group(batch.groups[0].id)
        await batch.ack()
        assert await counts(trainer) == {"queued": 0, "leased": 0, "delivered": 2}


async def test_all_groups_that_a_filter_finds_are_deleted_however_many(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1, 2) for _ in range(MAX_LOOKED_AT + 1)])
        with pytest.raises(InvalidField, match="environment, size or older_than_version"):
            await trainer.delete_groups()
        assert await trainer.delete_groups(environment="none") == 0
        assert await trainer.delete_groups(size=1) == MAX_LOOKED_AT + 1
        assert (await trainer.status()).dropped == {"deleted": MAX_LOOKED_AT + 1}


async def test_groups_are_deleted_by_the_criteria_of_lists(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(*range(n)) for n in range(1, 7)])
        listed = (await trainer.list_groups(limit=100)).groups
        scores = sorted(one.mean_score for one in listed if one.mean_score is not None)
        assert len(scores) == 6
        with pytest.raises(EnvironmentNotFound):
            await trainer.delete_groups(environment="physics")
        assert await trainer.delete_groups(environment="math", dropped="deleted") == 0
        assert await trainer.delete_groups(environment="math", received_to_s=1.0) == 0
        low = {"environment": "math", "state": "queued", "score_max": scores[1], "received_from_s": 1.0}
        found = await trainer.list_groups(**low)  # type: ignore[arg-type]
        assert await trainer.delete_groups(**low) == len(found.groups) >= 2  # type: ignore[arg-type]
        assert {(await trainer.find_group(one.id)).reason for one in found.groups} == {"deleted"}
        assert (await trainer.list_groups(state="queued", score_max=scores[1])).groups == []
        with pytest.raises(InvalidField, match="is an unknown criterion; known are dropped"):
            await trainer.delete_groups(size=1, enviroment="math")  # type: ignore[call-arg]
        left = (await trainer.status()).groups.queued
        with pytest.raises(InvalidField, match="item: is None: give a value, or leave the criterion out"):
            await trainer.delete_groups(environment="math", item=None)
        assert (await trainer.status()).groups.queued == left > 0
        assert len((await trainer.list_groups(state="queued", item=None)).groups) == left, "a list may name it"
        assert await trainer.delete_groups(size=1) == 6 - len(found.groups)


async def test_the_run_that_is_gone_when_a_request_is_repeated_is_an_error(
    settings: Settings, proxy: CuttingProxy
) -> None:
    """The answer does not count the groups again: the run that had them is gone."""
    async with AsyncTrainer(settings) as trainer:
        proxy.cut("request", 0)
        with pytest.raises(RunNotFound):
            await trainer.delete_groups(size=1)


async def test_code_without_an_event_loop_deletes_groups_too(run: Settings) -> None:
    async with AsyncEnvironment("math", run) as environment:
        bad, *_ = await submitted(environment, [group(1), group(2)])

    def story() -> None:
        with Trainer(run) as trainer:
            trainer.delete_group(bad)
            assert trainer.delete_groups(size=1) == 1

    await in_thread(story)
