"""What a look at a run finds."""

import asyncio
import time
from collections.abc import Callable

from app.core.history.causes import HELD
from app.core.history.charts import BLOCKED, LOOKED_S
from app.services.batches.request import BatchRequest
from app.services.stores import Stores
from tests.services.conftest import RUN, Process
from tests.services.history.history_runs import group, make_run, sampler_of


async def test_a_trainer_holds_a_batch_only_while_it_does(process: Callable[..., Process]) -> None:
    """Ten seconds pass between two looks. In them, a trainer holds a batch for a moment, and takes another one."""
    services, _ = process()
    math, clock_s = await make_run(services), 100.0
    sampler = sampler_of(services, Stores.on(services.connection), clock=lambda: clock_s)
    await sampler.sample(RUN, replay=False)
    began_s = time.monotonic()
    for name in "abcdefgh":
        await services.groups.native.submit(RUN, [group(name, math, 0.0, 1.0)])
    taken = (await services.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch
    assert taken is not None
    await asyncio.sleep(0.005)
    await services.batches.leases.acknowledge(RUN, taken.lease.batch_id, taken.lease.lease_id)
    clock_s += 10.0
    first, _ = await sampler.sample(RUN, replay=False)
    assert (await services.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch is not None
    await asyncio.sleep(0.005)
    clock_s += 10.0
    second, _ = await sampler.sample(RUN, replay=False)
    for seen in (first, second):
        assert 0 < seen.run.counts[BLOCKED + HELD] <= time.monotonic() - began_s
        assert seen.run.counts[LOOKED_S] == 10.0
