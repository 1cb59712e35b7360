"""Listeners of many runs."""

import asyncio
from contextlib import AsyncExitStack, aclosing

from app.store.redis.keys import RunKeys
from app.store.redis.notifications import listen
from tests.store.conftest import Store

RUNS = 120  # more than the connections that redis-py opens by default


async def test_each_of_many_runs_with_waiting_requests_hears_its_own_news(store: Store) -> None:
    runs = [f"run-{number}" for number in range(RUNS)]
    async with AsyncExitStack() as stack:
        listeners = [await stack.enter_async_context(aclosing(listen(store.connection, run))) for run in runs]
        await asyncio.gather(*map(anext, listeners))

        heard = [await store.redis.publish(RunKeys(run).run, "changed") for run in runs]

    assert heard == [1] * RUNS
