"""The history of a run has nothing of another run of its name."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.core.history.series import OTHERS
from app.services.batches.request import BatchRequest
from app.store.redis.keys import RunKeys
from lachesis.wire.errors import RunNotFound
from tests.services.conftest import RUN, Process
from tests.services.history.history_runs import group, keep, make_run, read, total

KEYS = RunKeys(RUN)


async def test_a_run_that_is_reset_or_deleted_has_no_history(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    math = await make_run(services)
    await services.groups.native.submit(RUN, [group("a", math, 0.0, 1.0)])
    await keep(services)
    assert await redis_client.exists(KEYS.series(10))
    await services.groups.native.submit(RUN, [group("b", math, 0.0, 1.0)])
    await services.runs.administration.delete(RUN)
    await keep(services, maintains=False)
    assert await redis_client.keys("*series*") == []
    assert services.history.writer.counted() == []
    with pytest.raises(RunNotFound):
        await read(services)


async def test_a_run_that_is_made_again_counts_nothing_of_the_deleted_one(process: Callable[..., Process]) -> None:
    """No process writes what it had counted of the deleted run. One of them has groups of the new one, too."""
    (one, _), (two, _) = process(), process()
    old = await make_run(one)
    await one.groups.native.submit(RUN, [group("a", old, 0.0, 1.0), group("b", old, 0.0, 1.0)])
    await two.groups.native.submit(RUN, [group("c", old, 0.0, 1.0), group("d", old, 0.0, 1.0)])
    for services in (one, two):
        assert (await services.batches.dispatch.take(RUN, BatchRequest())).batch is not None
    await one.runs.administration.delete(RUN)
    new = await make_run(one)
    await two.groups.native.submit(RUN, [group("e", new, 0.0, 1.0)])
    await keep(one)
    await keep(two, maintains=False)

    found = await read(one)
    assert total(found.environments["math"]["groups_in"]) == 1
    assert total(found.environments["math"]["groups_out"]) == total(found.run["batches"]) == 0


async def test_groups_that_came_before_a_run_was_made_are_in_its_history(process: Callable[..., Process]) -> None:
    services, _ = process()
    await services.groups.atropos.submit(RUN, [group("a", None, 0.0, 1.0)])
    await make_run(services)
    await services.groups.atropos.submit(RUN, [group("b", None, 0.0, 1.0)])
    await keep(services)
    assert total((await read(services)).environments[OTHERS]["groups_in"]) == 2
