"""Garbage goes in slices, of which each may be the last that a process lives to send."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from app.store.groups.garbage import GarbageStore
from app.store.redis.client import RedisClient
from app.store.redis.pipeline import Command
from tests.store.conftest import KEYS, RUN, Store, encoded

MORE_THAN_A_SLICE = 1100


class Died(Exception):
    """The process is no more."""


class Mortal(RedisClient):
    """Sends so many commands before its process dies."""

    commands_left: int

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        sent, self.commands_left = commands[: self.commands_left], self.commands_left - len(commands)
        replies = await super().pipeline(sent) if sent else []
        if self.commands_left < 0:
            raise Died
        return replies


async def _garbage(store: Store) -> int:
    """Leave the payloads of a run that was reset: some had been delivered, the others were marked as a whole."""
    ids = [f"g{number}" for number in range(2 * MORE_THAN_A_SLICE)]
    await store.admit(*(encoded() for _ in ids), ids=ids)
    lease = await store.take(*ids[:MORE_THAN_A_SLICE])
    assert await store.acknowledge(lease) == 1
    await store.runs.reset(RUN, "token")
    return len(ids)


async def _known_garbage(store: Store) -> set[str]:
    known = {name.decode() for name in await store.redis.zrange(KEYS.unreferenced, 0, -1)}
    for token in await store.redis.smembers(KEYS.marked_hashes):  # type: ignore[misc]
        marked = await store.redis.hkeys(KEYS.marked_hash(token.decode()))  # type: ignore[misc]
        known |= {name.decode() for name in marked}
    return known


async def test_a_sweep_cut_off_at_any_command_is_finished_by_the_next(store: Store, redis_url: str) -> None:
    await _garbage(store)
    commands, finished = 0, False
    async with aclosing(Mortal(redis_url, 20.0)) as mortal:
        while not finished:
            commands += 1
            mortal.commands_left = commands
            try:
                await GarbageStore(mortal).delete_marked(RUN)
                finished = True
            except Died:
                assert await store.payloads() <= await _known_garbage(store)
    assert commands > 6
    assert await store.runs.forget(RUN)
    assert [key async for key in store.redis.scan_iter("*")] == []


async def test_the_second_of_two_sweeps_in_one_process_finds_nothing(store: Store) -> None:
    """As when a run is removed, and maintenance comes by."""
    garbage = await _garbage(store)
    first, second = await asyncio.gather(store.garbage.delete_marked(RUN), store.garbage.delete_marked(RUN))
    assert first >= garbage
    assert second == 0
    assert await store.payloads() == set()
