"""A replay buffer has at most `MOST_WORKERS` workers."""

import asyncio
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.store.replay.store import MOST_WORKERS
from lachesis.wire.errors import RunFull
from tests.services.conftest import RUN, Process
from tests.services.replay.moves import KEYS, Buffer, buffer_of

WORKERS, FRAGMENTS = KEYS.replay_part("workers"), KEYS.replay_part("fragments")


@pytest.fixture
async def crowded(process: Callable[..., Process], redis_client: Redis) -> Buffer:
    """A buffer that may have one more worker. Worker ``old`` has sent a fragment, and so have copies of it."""
    buffer = await buffer_of(process(), redis_client)
    await buffer.process[0].runs.administration.change(RUN, {"dedup_window_s": 0.0})
    await buffer.put(0, worker="old")
    record = await redis_client.hget(WORKERS, "old")
    copies = {f"copy-{number}": record for number in range(MOST_WORKERS - 2)}
    await redis_client.hset(WORKERS, mapping=copies)
    return buffer


async def test_a_full_buffer_takes_fragments_of_workers_that_it_knows(crowded: Buffer) -> None:
    await crowded.put(0, worker="last")
    held = await crowded.redis.hlen(FRAGMENTS)
    with pytest.raises(RunFull, match=f"has {MOST_WORKERS} workers, and worker new is new"):
        await crowded.insert(0, worker="new")
    assert await crowded.redis.hlen(FRAGMENTS) == held, "nothing of it is stored"
    assert await crowded.redis.hlen(WORKERS) == MOST_WORKERS
    for worker in ("old", "last"):
        assert await crowded.put(0, 1, worker=worker) == ["repeated", "stored"]


async def test_of_new_workers_at_the_same_time_those_enter_that_have_room(
    crowded: Buffer, process: Callable[..., Process]
) -> None:
    others = [Buffer(process(), crowded.redis) for _ in range(3)]
    sent = (other.put(0, worker=f"new-{number}") for number, other in enumerate(others))
    outcomes = await asyncio.gather(*sent, return_exceptions=True)
    assert outcomes.count(["stored"]) == 1
    assert sum(isinstance(outcome, RunFull) for outcome in outcomes) == 2
    assert await crowded.redis.hlen(WORKERS) == MOST_WORKERS


async def test_a_silent_worker_makes_room_for_a_new_one(crowded: Buffer) -> None:
    await crowded.put(0, worker="last")
    await crowded.pass_time(120_000)
    assert await crowded.put(0, worker="new") == ["stored"]


async def test_maintenance_of_a_worker_that_left_a_full_buffer_does_nothing(crowded: Buffer) -> None:
    await crowded.put(0, worker="last")
    await crowded.process[0].replay.insertion.maintain(RUN, "forgotten")
    assert await crowded.redis.hlen(WORKERS) == MOST_WORKERS
