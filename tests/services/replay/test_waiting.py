"""Requests that wait: for chunks to sample, and for room to insert."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from app.core.replay.rate_limiter import LimiterBlock
from app.main import build_services
from app.services.replay.request import ReplaySample, ReplaySampleRequest
from app.settings import ServiceSettings
from app.store.redis.client import RedisClient
from app.store.redis.pipeline import Command
from lachesis.wire.errors import (
    ReplayBlocked,
)
from lachesis.wire.replay import RateLimiter
from lachesis.wire.states import SAMPLEABLE
from tests.script_names import name_of
from tests.services.conftest import RUN, Process
from tests.services.replay.moves import KEYS, Buffer, fragment, swept
from tests.waiting import wait_until


def one_to_one(max_diff: float) -> RateLimiter:
    """A sample for each insert; samples may be one ahead, inserts so many."""
    return RateLimiter(samples_per_insert=1.0, min_diff=-1.0, max_diff=max_diff)


async def test_who_waits_is_woken_by_what_arrives_and_stops_when_told(buffer: Buffer) -> None:
    samples = buffer.process[0].replay.samples
    stop = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(samples.take(RUN, ReplaySampleRequest(num_fragments=4), 20, stop))
    giving_up = asyncio.create_task(samples.take(RUN, ReplaySampleRequest(num_chunks=5), 20, stop))
    await wait_until(lambda: samples.queue.waiting == 2)
    await buffer.put(0, 1)
    await buffer.put(2, 3)
    async with asyncio.timeout(60):
        sample = await waiting
        assert isinstance(sample, ReplaySample)
        assert len(sample.records) == 4
        stop.set_result(None)
        blocked = await giving_up
    assert isinstance(blocked, LimiterBlock)
    assert blocked.blocked_on == "chunks"
    assert 3 <= blocked.missing <= 5, "as of its last attempt, which may be before either chunk"


async def test_inserts_wait_for_samples_and_are_refused_if_there_are_none(buffer: Buffer) -> None:
    insertion = buffer.process[0].replay.insertion
    await buffer.configure(fragments_per_chunk=1, limiter=one_to_one(2.0))
    await buffer.put(0, 1)
    with pytest.raises(ReplayBlocked, match="max_diff"):
        await insertion.insert(RUN, [fragment(2)])
    state = await buffer.process[0].replay.buffers.state(RUN)
    assert (state.limiter_error, state.samples_blocked) == (2.0, None)
    assert state.inserts_blocked is not None
    waiting = asyncio.create_task(insertion.insert(RUN, [fragment(2)], 90))
    await wait_until(lambda: insertion.queue.waiting == 1)
    await buffer.take(1)
    async with asyncio.timeout(60):
        assert [receipt.outcome for receipt in await waiting] == ["stored"]
    await swept(buffer)


async def test_a_worker_that_is_held_back_for_hours_is_not_silent(buffer: Buffer) -> None:
    await buffer.configure(limiter=one_to_one(2.0), fragment_ttl_s=300.0)
    assert await buffer.put(0, 1, 2, 3, 4) == ["stored"] * 5
    for _ in range(50):
        with pytest.raises(ReplayBlocked):
            await buffer.put(5)
        await buffer.pass_time(100_000)
    await buffer.take(1)
    assert await buffer.put(5) == ["stored"]
    books = await swept(buffer)
    assert (books.at(SAMPLEABLE), books.total("dropped:expired"), books.total("gaps")) == ([0, 2, 4], 0, 0)


async def test_no_fragment_passes_the_limiter_after_hours_of_waiting(buffer: Buffer) -> None:
    """The buffer forgets a worker that is silent for an hour. Its fragments would then wait for earlier numbers."""
    await buffer.configure(fragments_per_chunk=1, limiter=one_to_one(2.0))
    assert await buffer.put(0, 1) == ["stored"] * 2
    for _ in range(50):
        with pytest.raises(ReplayBlocked):
            await buffer.put(2)
        await buffer.pass_time(100_000)
    assert (await swept(buffer)).total("waiting_fragments") == 0


async def test_samples_are_served_in_order_and_smaller_ones_before_one_that_is_blocked(buffer: Buffer) -> None:
    samples, served = buffer.process[0].replay.samples, list[str]()

    async def wait(name: str, chunks: int) -> None:
        found = await samples.take(RUN, ReplaySampleRequest(num_chunks=chunks, trainer=name), 90)
        assert isinstance(found, ReplaySample)
        served.append(name)

    waiting = []
    for name, chunks in (("large", 3), ("first", 1), ("second", 1)):
        waiting.append(asyncio.create_task(wait(name, chunks)))
        await wait_until(lambda: samples.queue.waiting == len(waiting))
    blocked = await samples.take(RUN, ReplaySampleRequest(num_chunks=5))
    assert isinstance(blocked, LimiterBlock)
    assert blocked.missing == 5, "the reason is its own"
    await buffer.put(0, 1)
    await wait_until(lambda: served == ["first", "second"])
    await buffer.put(2, 3, 4, 5)
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
    assert (served[-1], samples.queue.blocked, samples.queue.waiting) == ("large", 4, 0)


async def test_a_repeated_request_gets_its_sample_though_the_request_ahead_of_it_is_blocked(
    process: Callable[..., Process], buffer: Buffer
) -> None:
    """Its other attempt went to another process, and took the last chunk."""
    samples, other = buffer.process[0].replay.samples, process()[0].replay.samples
    waiting = []
    for request in (ReplaySampleRequest(num_chunks=3), ReplaySampleRequest(num_chunks=2, request_id="step-1")):
        waiting.append(asyncio.create_task(samples.take(RUN, request, 90)))
        await wait_until(lambda: samples.queue.waiting == len(waiting))
    await buffer.put(0, 1)
    found = await other.take(RUN, ReplaySampleRequest(num_chunks=1, request_id="step-1"), 90)
    async with asyncio.timeout(60):
        again = await waiting[1]
    assert isinstance(found, ReplaySample)
    assert isinstance(again, ReplaySample)
    assert again.lease.lease_id == found.lease.lease_id
    await buffer.put(2, 3, 4, 5)
    await waiting[0]


async def test_a_repeated_insert_is_answered_with_the_first_behind_a_blocked_one(
    buffer: Buffer,
) -> None:
    insertion = buffer.process[0].replay.insertion
    await buffer.configure(fragments_per_chunk=1, limiter=one_to_one(4.0))
    await buffer.put(0, 1, 2, 3)
    waiting = []
    for worker, count in (("large", 3), ("small", 1), ("small", 1)):
        fragments = [fragment(number, worker=worker) for number in range(count)]
        waiting.append(asyncio.create_task(insertion.insert(RUN, fragments, 90)))
        await wait_until(lambda: insertion.queue.waiting == len(waiting))
    await buffer.take(1)
    async with asyncio.timeout(60):
        outcomes = [receipts[0].outcome for receipts in await asyncio.gather(*waiting[1:])]
    assert sorted(outcomes) == ["repeated", "stored"]
    assert not waiting[0].done()
    await buffer.take(4)
    await waiting[0]


class Held(RedisClient):
    """A connection that waits before it takes a sample, and counts looks at workers and at the buffer alone."""

    taking = False
    looks = 0
    views = 0

    def __init__(self, url: str) -> None:
        super().__init__(url, 5.0)
        self.gate = asyncio.Event()

    async def run(self, command: Command) -> Any:
        if name_of(command) == "take_sample":
            self.taking = True
            await self.gate.wait()
        return await super().run(command)

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        if ("HGETALL", KEYS.replay) in commands:
            looks = any(command[:2] == ("HGET", KEYS.replay_part("workers")) for command in commands)
            self.looks += looks
            self.views += not looks
        return await super().pipeline(commands)


async def test_a_sample_for_a_request_that_has_gone_away_is_given_back(buffer: Buffer, redis_url: str) -> None:
    connection = Held(redis_url)
    samples = build_services(ServiceSettings(redis_url=SecretStr(redis_url)), connection, "tested").replay.samples
    stop = asyncio.get_running_loop().create_future()
    gone = asyncio.create_task(samples.take(RUN, ReplaySampleRequest(num_chunks=1, request_id="gone"), 30, stop))
    await wait_until(lambda: samples.queue.waiting == 1)
    await buffer.put(0, 1)
    await wait_until(lambda: connection.taking)
    stop.set_result(None)
    await wait_until(lambda: samples.queue.waiting == 0)
    connection.gate.set()
    async with asyncio.timeout(60):
        assert isinstance(await gone, LimiterBlock)
    books = await swept(buffer)
    assert (books.samples, books.at("sampleable")) == ({}, [0])
    await connection.aclose()


async def test_inserts_wait_in_order_and_those_that_complete_no_chunk_do_not_wait(buffer: Buffer) -> None:
    insertion = buffer.process[0].replay.insertion
    await buffer.configure(limiter=one_to_one(2.0))
    await buffer.put(0, 1, 2, 3)
    served: list[str] = []

    async def wait(worker: str) -> None:
        await insertion.insert(RUN, [fragment(0, worker=worker), fragment(1, worker=worker)], 90)
        served.append(worker)

    waiting = []
    for worker in ("first", "second", "third"):
        waiting.append(asyncio.create_task(wait(worker)))
        await wait_until(lambda: insertion.queue.waiting == len(waiting))
    assert await buffer.put(0, worker="half") == ["stored"]
    with pytest.raises(ReplayBlocked, match="inserting 1"):
        await buffer.put(1, worker="half")
    for _ in range(3):
        await buffer.take(1)
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
    assert served == ["first", "second", "third"]
    await swept(buffer)


@pytest.mark.parametrize("news", ["a sample", "a new session", "another limit"])
async def test_an_unblocked_insert_is_served_behind_a_blocked_one(buffer: Buffer, news: str) -> None:
    """What it would have inserted when it came says nothing about now."""
    insertion = buffer.process[0].replay.insertion
    await buffer.configure(fragments_per_chunk=1, limiter=one_to_one(4.0))
    await buffer.put(0, 1, 2, 3)
    waiting = []
    for worker, numbers in (("large", (0, 1)), ("small", (0,))):
        fragments = [fragment(number, worker=worker) for number in numbers]
        waiting.append(asyncio.create_task(insertion.insert(RUN, fragments, 90)))
        await wait_until(lambda: insertion.queue.waiting == len(waiting))
    match news:
        case "a sample":
            await buffer.take(1)
        case "a new session":
            await buffer.process[0].replay.buffers.set_session(RUN, 1)
        case "another limit":
            await buffer.configure(limiter=one_to_one(5.0))
    async with asyncio.timeout(60):
        outcome = [receipt.outcome for receipt in await waiting[1]]
        assert outcome == (["old_session"] if news == "a new session" else ["stored"])
        if news != "a new session":
            assert not waiting[0].done()
            await buffer.take(2)
        await waiting[0]
    await swept(buffer)


async def test_any_number_of_waiting_inserts_costs_one_look_per_worker_and_change(
    buffer: Buffer, redis_url: str
) -> None:
    connection = Held(redis_url)
    insertion = build_services(ServiceSettings(redis_url=SecretStr(redis_url)), connection, "tested").replay.insertion
    await buffer.configure(fragments_per_chunk=1, limiter=one_to_one(4.0))
    await buffer.put(0, 1, 2, 3)
    waiting, stop = [], asyncio.get_running_loop().create_future()
    for number in range(12):
        many = [fragment(position, worker=f"w{number}") for position in range(3)]
        waiting.append(asyncio.create_task(insertion.insert(RUN, many, 60, stop)))
        await wait_until(lambda: insertion.queue.waiting == len(waiting))
    looks, views = connection.looks, connection.views
    await buffer.take(1)
    await wait_until(lambda: connection.views >= views + 3)
    assert connection.looks - looks <= connection.views - views + 1
    stop.set_result(None)
    assert {type(found) for found in await asyncio.gather(*waiting, return_exceptions=True)} == {ReplayBlocked}
    await connection.aclose()
