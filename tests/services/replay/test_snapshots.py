"""Snapshots of the replay buffer: what is restored is what was, and nothing is freed before its last snapshot."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, get_args

import pytest
from redis.asyncio import Redis

from app.services.replay.request import ReplaySample, ReplaySampleRequest
from app.store.groups.garbage import GarbageStore
from lachesis.wire.errors import InvalidField, LeaseLost, ReplayNotFound, SampleNotFound, SnapshotNotFound
from lachesis.wire.replay import RateLimiter, SamplingStrategy
from tests.services.accounting import keys_of_runs
from tests.services.conftest import RUN, Process
from tests.services.replay.moves import KEYS, Books, Buffer, buffer_of, fragment, swept
from tests.waiting import wait_until


def whole(books: Books) -> tuple[Any, ...]:
    """All there is to a buffer but its snapshots and the number of its last chunk."""
    totals = {name: total for name, total in books.totals.items() if name != "arrivals"}
    return books.chunks, books.fragments, books.workers, books.samples, totals


def told(sample: ReplaySample) -> list[tuple[Any, ...]]:
    """Return what a trainer sees of a sample, without ids: these differ between equal insertions."""
    return [
        (one.fragment.worker, one.fragment.number, one.uses, one.staleness, one.probability, one.importance)
        for one in sample.records
    ]


async def filled(buffer: Buffer, first: int, count: int, version: int = 0) -> None:
    dice = random.Random(first)
    for number in range(first, first + count):
        await buffer.put(number, priority=dice.random() * 9, version=version)


async def train(buffer: Buffer, strategy: SamplingStrategy) -> list[Any]:
    """Train on some samples, all that makes a difference to the next ones included."""
    seen = []
    for step in range(6):
        sample = await buffer.take(4, sampling={"strategy": strategy})
        seen.append(told(sample))
        changes = {record.chunk_id: float(step + rank) for rank, record in enumerate(sample.records)}
        await buffer.process[0].replay.buffers.update_priorities(RUN, changes)
        await (buffer.nack if step == 2 else buffer.ack)(sample)
        await filled(buffer, 40 + 2 * step, 2, version=3)
    return seen


@pytest.mark.parametrize("strategy", get_args(SamplingStrategy))
async def test_restored_it_continues_the_same_sequence(
    process: Callable[..., Process], redis_client: Redis, strategy: SamplingStrategy
) -> None:
    buffer = await buffer_of(process(), redis_client, max_chunks=44, max_reuse=4, seed=7)
    for version in range(4):
        await buffer.set_version(version)
        await filled(buffer, 10 * version, 10, version=version)
    await buffer.ack(await buffer.take(5, sampling={"strategy": strategy}))
    await buffer.process[0].replay.snapshots.take(RUN, "a")
    before = await buffer.books()
    after = [await train(buffer, strategy)]
    for _ in range(2):
        await buffer.process[0].replay.snapshots.restore(RUN, "a")
        assert whole(await swept(buffer)) == whole(before)
        after.append(await train(buffer, strategy))
    assert after == after[:1] * 3


async def test_places_workers_session_settings_and_the_limiters_position_are_as_they_were(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    limiter = RateLimiter(samples_per_insert=1.0, min_diff=-20.0, max_diff=40.0)
    fields = {"fragments_per_chunk": 2, "max_reuse": 1, "limiter": limiter, "reorder_window_s": 600.0}
    buffer = await buffer_of(process(), redis_client, **fields)
    await buffer.put(0, 1, 2, 3)
    await buffer.process[0].replay.buffers.set_session(RUN, 1)
    await buffer.put(0, 1, 2, 4, session=1)
    await buffer.put(*range(8), session=1, worker="other")
    await buffer.ack(await buffer.take(1, sampling={"strategy": "fifo"}))
    await buffer.configure(limiter=RateLimiter(samples_per_insert=0.5, min_diff=-20.0, max_diff=40.0))
    state = await buffer.process[0].replay.buffers.state(RUN)
    before = await buffer.books()
    await buffer.process[0].replay.snapshots.take(RUN, "a")

    await buffer.put(3, 5, session=1)
    await buffer.process[0].replay.buffers.set_session(RUN, 2)
    await buffer.configure(max_reuse=None, fragments_per_chunk=1, limiter=None, max_chunks=1)
    await buffer.process[0].replay.buffers.delete_chunks(RUN)
    await buffer.process[0].replay.snapshots.restore(RUN, "a")
    assert whole(await swept(buffer)) == whole(before)
    again = await buffer.process[0].replay.buffers.state(RUN)
    assert (again.settings, again.session, again.limiter_error) == (state.settings, 1, state.limiter_error)
    assert await buffer.put(3, session=1) == ["stored"], "what was inserted since is gone, and is accepted again"
    assert await buffer.put(2, 4, session=1) == ["repeated"] * 2
    assert sorted((await swept(buffer)).at("sampleable")) == [0, 2, 2, 4, 6]


async def test_samples_held_at_the_snapshot_are_given_back_and_those_held_now_have_ended(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Of what was retired when a sample still held it, nothing is left: nobody holds it any more."""
    buffer = await buffer_of(process(), redis_client, max_reuse=1)
    await buffer.put(0, worker="gone")
    await buffer.put(0, 1, 2, 3)
    then = [await buffer.take(2, sampling={"strategy": "fifo"}), await buffer.take(1)]
    await buffer.process[0].replay.buffers.delete_chunks(RUN, worker="gone")
    await buffer.process[0].replay.snapshots.take(RUN, "a")
    await buffer.ack(then[0])
    now = await buffer.take(1)
    await buffer.process[0].replay.snapshots.restore(RUN, "a")
    books = await swept(buffer)
    assert books.at("sampleable") == [0, 1, 2, 3]
    assert (books.total("samples"), books.samples) == (0, {})
    await buffer.ack(then[0])
    for sample in (then[1], now):
        with pytest.raises(LeaseLost, match="ended because a snapshot of the buffer was restored"):
            await buffer.ack(sample)
    assert len((await buffer.take(4)).records) == 4
    assert len(books.saved["a"].chunks) == 4, "the snapshot gives its samples back before it is restored"


async def test_a_payload_is_there_until_the_last_snapshot_that_names_it_has_gone(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await buffer_of(process(), redis_client, keep_snapshots=3, fragments_per_chunk=2)
    snapshots = buffer.process[0].replay.snapshots
    await buffer.put(0, 1, 2)
    await snapshots.take(RUN, "a")
    await buffer.put(3, 4)
    await snapshots.take(RUN, "b")
    await buffer.process[0].replay.buffers.delete_chunks(RUN)
    await buffer.put(5, 6)
    assert [len(books.named) for books in (await swept(buffer),)] == [7]
    for gone, left in (("a", 7), ("b", 3)):
        await snapshots.drop(RUN, gone)
        assert len((await swept(buffer)).named) == left
    with pytest.raises(SnapshotNotFound, match="no snapshot b"):
        await snapshots.drop(RUN, "b")


async def test_the_oldest_goes_for_another_and_one_of_the_same_name_for_its_successor(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await buffer_of(process(), redis_client, keep_snapshots=2)
    snapshots = buffer.process[0].replay.snapshots
    for number, name in enumerate("abac"):
        await buffer.put(number)
        taken = await snapshots.take(RUN, name)
        assert (taken.name, taken.chunks, taken.position.inserts) == (name, number + 1, number + 1)
    there, clock_ms = await snapshots.all(RUN)
    assert [(one.name, one.chunks) for one in there] == [("a", 3), ("c", 4)]
    assert 0 <= clock_ms - there[0].taken_ms < 60_000
    with pytest.raises(SnapshotNotFound):
        await snapshots.restore(RUN, "b")
    assert len((await swept(buffer)).saved) == 2


@pytest.mark.parametrize("version", [1, 9])
async def test_what_the_version_in_force_makes_ineligible_is_retired_when_it_is_restored(
    process: Callable[..., Process], redis_client: Redis, version: int
) -> None:
    """Too old by now, or of versions that are yet to come again."""
    buffer = await buffer_of(process(), redis_client, max_staleness=5, fragments_per_chunk=2)
    await buffer.set_version(1)
    await buffer.put(0, 1, version=1)
    await buffer.set_version(4)
    await buffer.put(2, version=1)
    await buffer.put(3, 4, 5, version=4)
    await buffer.process[0].replay.snapshots.take(RUN, "a")
    await buffer.set_version(version)
    await buffer.process[0].replay.snapshots.restore(RUN, "a")
    assert (await swept(buffer)).at("sampleable") == ([0] if version == 1 else [4])


async def test_a_buffer_without_groups_is_not_restored_while_batches_are_filled_up_with_them(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await buffer_of(process(), redis_client)
    services = buffer.process[0]
    await buffer.put(0)
    await services.replay.snapshots.take(RUN, "a")
    before = await buffer.books()
    await buffer.configure(groups=True)
    await services.runs.administration.change(RUN, {"fresh_fraction": 0.5})
    await buffer.put(1)
    with pytest.raises(InvalidField, match=r"name: .* `fresh_fraction` of the run is 0.5"):
        await services.replay.snapshots.restore(RUN, "a")
    assert (await services.replay.buffers.state(RUN)).settings.groups
    assert len((await buffer.books()).chunks) == 2
    await services.runs.administration.change(RUN, {"fresh_fraction": 1.0})
    await services.replay.snapshots.restore(RUN, "a")
    assert not (await services.replay.buffers.state(RUN)).settings.groups
    assert whole(await swept(buffer)) == whole(before)


async def test_no_number_means_two_chunks_whatever_is_restored(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """A trainer may still set priorities by what it learned before."""
    buffer = await buffer_of(process(), redis_client)
    snapshots, seen = buffer.process[0].replay.snapshots, set[str]()
    await snapshots.take(RUN, "a")
    for turn in range(4):
        there = (await buffer.books()).chunks.keys()
        await buffer.put(0, 1, worker=f"w{turn}")
        new = (await buffer.books()).chunks.keys() - there
        assert len(new - seen) == 2
        seen |= new
        if turn == 1:
            await snapshots.take(RUN, "b")
        await snapshots.restore(RUN, "b" if turn == 2 else "a")


async def test_a_buffer_that_is_deleted_leaves_no_key_and_the_run_goes_on(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await buffer_of(process(), redis_client, fragments_per_chunk=2, max_reuse=1)
    services = buffer.process[0]
    bare = set(await keys_of_runs(redis_client))
    await buffer.put(0, 1, 2, 3, 4, 6)
    await services.replay.snapshots.take(RUN, "a")
    sample = await buffer.take(1)
    await services.replay.buffers.set_session(RUN, 1)
    await buffer.put(0, 1, 2, session=1)
    await services.replay.snapshots.take(RUN, "b")
    await services.replay.snapshots.delete_buffer(RUN)
    for late in (buffer.ack(sample), buffer.put(3, session=1), services.replay.snapshots.delete_buffer(RUN)):
        with pytest.raises(ReplayNotFound):
            await late
    await buffer.process[1].maintain(RUN)
    assert set(await keys_of_runs(redis_client)) == bare - {KEYS.replay.encode()}

    again = await buffer_of(buffer.process, redis_client)
    assert await again.put(0) == ["stored"]
    with pytest.raises(SampleNotFound):
        await again.ack(sample)
    totals = {"accepted_fragments": 1, "arrivals": 1, "inserts": 1, "chunks": 1, "chunk_fragments": 1}
    assert (await swept(again)).totals == totals | {"chunk_bytes": 20, "weight": 1 << 20}


@pytest.mark.parametrize("side", ["worker", "trainer"])
async def test_who_waits_is_woken_and_told_when_the_buffer_is_deleted(
    process: Callable[..., Process], redis_client: Redis, side: str
) -> None:
    buffer = await buffer_of(
        process(),
        redis_client,
        limiter=RateLimiter(samples_per_insert=1.0, min_diff=0.0, max_diff=2.0),
        min_size_to_sample=2,
    )
    await buffer.put(0)
    await buffer.put(*([1] if side == "worker" else []))
    services = buffer.process[0]
    queue = (services.replay.insertion if side == "worker" else services.replay.samples).queue
    if side == "worker":
        waiting: Coroutine[Any, Any, Any] = services.replay.insertion.insert(RUN, [fragment(2)], wait_s=30)
    else:
        waiting = services.replay.samples.take(RUN, ReplaySampleRequest(num_chunks=1), wait_s=30)
    waits = asyncio.create_task(waiting)
    await wait_until(lambda: queue.waiting == 1)
    assert not waits.done()
    await services.replay.snapshots.delete_buffer(RUN)
    async with asyncio.timeout(60):
        with pytest.raises(ReplayNotFound):
            await waits
    await GarbageStore(services.connection).delete_marked(RUN)
    assert [key async for key in redis_client.scan_iter(KEYS.payload("*"))] == []


@pytest.mark.parametrize("transacts", [True, False])
async def test_of_what_is_inserted_while_the_buffer_is_deleted_nothing_is_left(
    process: Callable[..., Process], redis_client: Redis, *, transacts: bool
) -> None:
    """Deleted, made again, restored: each may come between what a worker sends and what is written for it."""
    buffers = [await buffer_of(process(), redis_client, fragments_per_chunk=2) for _ in range(3)]
    for buffer in buffers:
        buffer.process[0].connection.transacts = transacts
    services = buffers[0].process[0]
    told: Counter[str] = Counter()
    operated = asyncio.Event()

    async def work(name: str, buffer: Buffer) -> None:
        number = 0
        while not operated.is_set():
            try:
                told.update(await buffer.put(number, worker=name))
                number += 1
            except ReplayNotFound:
                told["not found"] += 1
                number = 0

    async def heard(outcome: str) -> None:
        """Return when the workers have had this answer three times more."""
        wanted = told[outcome] + 3
        await wait_until(lambda: told[outcome] >= wanted, pause_s=0)

    async def operate() -> None:
        for _ in range(12):
            await heard("stored")
            await services.replay.snapshots.take(RUN, "a")
            await heard("stored")
            await services.replay.snapshots.restore(RUN, "a")
            await services.replay.snapshots.delete_buffer(RUN)
            await heard("not found")
            await services.replay.buffers.configure(RUN, {"fragments_per_chunk": 2})
        operated.set()

    async with asyncio.timeout(60):
        await asyncio.gather(operate(), *(work(f"w{n}", buffer) for n, buffer in enumerate(buffers)))
    await swept(buffers[0])
    await services.replay.snapshots.delete_buffer(RUN)
    await GarbageStore(services.connection).delete_marked(RUN)
    assert [key async for key in redis_client.scan_iter(KEYS.payload("*"))] == []
