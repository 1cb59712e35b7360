"""Debts of relaxed batches stay exact while several trainers take batches and give them back."""

import asyncio
from collections.abc import Callable, Mapping

from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest
from app.store.redis import scripts
from tests.lossy_line import LossyLine
from tests.services.conftest import RUN, Process, config, encoded, join, marks
from tests.waiting import wait_until

NEW_CONFIG = config(4).model_copy(update={"wandb_group": "anew"})


async def debts(services: Services) -> Mapping[int, int]:
    return (await services.runs.atropos.view(RUN)).debts


async def test_a_batch_given_back_before_a_commit_is_not_repaid(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str]
) -> None:
    """The commit was planned on the debts that the other batch had left."""
    line, url = lossy
    services, _ = process(url)
    other, _ = process()
    await services.runs.administration.create(RUN, config(4), Policy(relax_after_s=0.0))
    for number, name in enumerate(("math", "code", "logic")):
        sender = (await join(services, name, group_size=4, min_share=0.25)).environment
        await services.groups.native.submit(RUN, [encoded(4, number, sender)._replace(given_id=name)])
    first = await other.batches.dispatch.take(RUN, BatchRequest())
    assert marks(first) == [0]
    assert await debts(services) == {1: 1, 2: 1}
    line.hold(scripts.load("commit_batch").digest.encode())
    taking = asyncio.create_task(services.batches.dispatch.take(RUN, BatchRequest()))
    await wait_until(lambda: line.holds)
    assert first.batch is not None
    await other.batches.leases.give_back(RUN, first.batch.lease.batch_id, first.batch.lease.lease_id, "too late")
    assert await debts(other) == {}
    line.heal()
    await line.deliver_late()
    assert marks(await taking) == [0]
    assert await debts(services) == {1: 1, 2: 1}


async def test_a_batch_from_before_another_configuration_repays_nothing(process: Callable[..., Process]) -> None:
    """Its debts were forgotten with the former configuration."""
    services, _ = process()
    await services.runs.administration.create(RUN, config(4), Policy(relax_after_s=0.0))
    for number, name in enumerate(("math", "code")):
        sender = (await join(services, name, group_size=4, min_share=0.25)).environment
        await services.groups.native.submit(RUN, [encoded(4, number, sender)._replace(given_id=name)])
    old = (await services.batches.dispatch.take(RUN, BatchRequest())).batch
    assert old is not None
    assert await debts(services) == {1: 1}
    await services.runs.atropos.register(RUN, NEW_CONFIG)
    await services.batches.leases.give_back(RUN, old.lease.batch_id, old.lease.lease_id, None)
    assert await debts(services) == {}
