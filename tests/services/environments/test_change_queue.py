"""Environments that come at once do not make each other start again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from app.core.runs.settings import Policy
from app.services.environments.change_queue import ChangeQueues
from tests.services.conftest import RUN, Process, config, join


async def test_many_environments_that_come_at_once_cost_a_few_commands_each(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await services.runs.administration.create(RUN, config(2), Policy())

    async def scripts_of(*names: str) -> int:
        await redis_client.config_resetstat()
        await asyncio.gather(*(join(services, name) for name in names))
        return int((await redis_client.info("commandstats"))["cmdstat_evalsha"]["calls"])

    alone = await scripts_of("first")
    assert await scripts_of(*(f"e{number}" for number in range(50))) <= 50 * (alone + 2)


async def test_a_change_waits_for_its_turn_and_starts_again() -> None:
    changes, order = ChangeQueues(), []

    async def change(name: str) -> None:
        async with changes.attempts("change", RUN) as attempts:
            while attempts.again():
                if await attempts.waited():
                    order.append(f"{name} waited")
                    continue
                await asyncio.sleep(0)
                order.append(name)
                return

    await asyncio.gather(*(change(name) for name in "abc"))
    assert order == ["a", "b waited", "b", "c waited", "c"]


async def test_a_cancelled_change_gives_its_turn_to_the_next() -> None:
    changes, never = ChangeQueues(), asyncio.Event()

    async def change(until: asyncio.Event | None) -> bool:
        async with changes.attempts("change", RUN) as attempts:
            waited = await attempts.waited()
            if until:
                await until.wait()
            return waited

    first = asyncio.create_task(change(never))
    await asyncio.sleep(0)
    waiting, last = asyncio.create_task(change(None)), asyncio.create_task(change(None))
    await asyncio.sleep(0)
    waiting.cancel()
    first.cancel()
    assert await last
    with suppress(asyncio.CancelledError):
        await first
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_change_goes_on_without_its_turn_after_a_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.environments.change_queue._LONGEST_WAIT_S", 0.01)
    changes = ChangeQueues()
    async with changes.attempts("change", RUN) as long, changes.attempts("change", RUN) as other:
        assert [await long.waited(), await other.waited(), await other.waited()] == [False, True, False]
    async with changes.attempts("change", RUN) as next_one:
        assert not await next_one.waited()
