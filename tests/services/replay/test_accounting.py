"""Many workers and trainers at once on a replay buffer, over real Redis: every fragment is accounted for."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from itertools import cycle
from typing import Any, get_args

import pytest
from redis.asyncio import Redis

from app.services.replay.cleanup import ReplayCleanup
from app.services.replay.request import ReplaySample, ReplaySampleRequest
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Command
from app.store.replay.store import ReplayStore
from lachesis.wire.errors import (
    FragmentNotFound,
    LachesisError,
    LeaseLost,
    ReplayNotFound,
    SampleNotFound,
)
from lachesis.wire.replay import Eviction, RateLimiter, SamplingStrategy
from tests.services.accounting import keys_of_runs
from tests.services.conftest import RUN, Process
from tests.services.replay.moves import KEYS, Buffer, buffer_of, fragment, swept
from tests.waiting import wait_until

POLICY: dict[str, Any] = {
    "fragments_per_chunk": 2,
    "max_chunks": 20,
    "max_staleness": 2,
    "max_reuse": 3,
    "reorder_window_s": 1.0,
}
GOINGS_BACK = ("take a", "take b", "restore a", "drop b", "take c", "restore c", "take a", "take b", "delete")


class Crowd:
    """Workers, trainers and an operator who do this and that at random, each through an API process of their own."""

    def __init__(self, buffers: list[Buffer], seed: int, *, restores: bool = False) -> None:
        self.buffers = buffers
        self.restores = restores
        self.goings_back = cycle(GOINGS_BACK)
        self.dice = random.Random(seed)
        self.version, self.session = 0, 0
        self.numbers: dict[str, int] = {}
        self.moves = 0
        self.busy = 0

    @property
    def somewhere(self) -> Buffer:
        return self.dice.choice(self.buffers)

    async def work(self, worker: str, rounds: int) -> None:
        """Send fragments, some twice, some never, many out of order, some of policies of long ago."""
        for _ in self.rounds(rounds):
            session = self.session
            first = self.numbers.get(f"{worker}/{session}", 0)
            count = self.dice.randint(1, 4)
            self.numbers[f"{worker}/{session}"] = first + count + (self.dice.random() < 0.1)
            numbers = list(range(first, first + count))
            if self.dice.random() < 0.3:
                self.dice.shuffle(numbers)
            version = max(0, self.version - self.dice.choice((0, 0, 0, 1, 3)))
            sent = [
                fragment(number, worker=worker, session=session, version=version, priority=self.dice.random() * 9)
                for number in numbers
            ]
            for _ in range(self.dice.choice((1, 1, 2))):
                with self.unless_it_is_gone():
                    await self.somewhere.process[0].replay.insertion.insert(RUN, sent)
            await asyncio.sleep(0)

    async def train(self, rounds: int) -> None:
        """Take samples; acknowledge them, give them back, give up on them, or ask for too late."""
        for _ in self.rounds(rounds):
            with self.unless_it_is_gone():
                await self.train_once()

    async def train_once(self) -> None:
        """Take a sample, if there is one."""
        services = self.somewhere.process[0]
        sampling = {"strategy": self.dice.choice(get_args(SamplingStrategy))}
        asked = ReplaySampleRequest(num_chunks=self.dice.randint(1, 6), sampling=sampling, lease_s=5)
        sample = await services.replay.samples.take(RUN, asked)
        if not isinstance(sample, ReplaySample):
            await asyncio.sleep(0.002)
            return
        ids = [record.fragment.fragment_id for record in sample.records]
        assert len(await services.replay.buffers.fragments(RUN, ids)) == len(ids), "what is held can be read"
        changes = {record.chunk_id: self.dice.random() * 5 for record in sample.records}
        await self.somewhere.process[0].replay.buffers.update_priorities(RUN, changes)
        end = self.dice.choice(("ack", "ack", "nack", "both", "never"))
        try:
            if end in ("ack", "both"):
                await self.somewhere.ack(sample)
            if end in ("nack", "both"):
                await self.somewhere.nack(sample)
        except (LeaseLost, SampleNotFound):
            assert end == "both" or self.version or self.restores, "only what ended cannot be ended"

    @contextmanager
    def unless_it_is_gone(self) -> Iterator[None]:
        """Allow that held chunks are gone, if the test restores snapshots or makes the buffer again."""
        try:
            yield
        except (ReplayNotFound, FragmentNotFound, SampleNotFound):
            if not self.restores:
                raise

    async def operate(self, rounds: int) -> None:
        """New versions and sessions, other settings, deletions, time that passes."""
        for turn in range(rounds):
            buffer = self.somewhere
            match self.dice.randint(0, 7):
                case 0 | 1:
                    self.version += 1
                    await buffer.set_version(self.version)
                case 2 if turn % 4 == 0:
                    self.session += 1
                    await buffer.process[0].replay.buffers.set_session(RUN, self.session)
                case 3:
                    await buffer.configure(
                        max_chunks=self.dice.choice((8, 20, 40)), max_bytes=self.dice.choice((None, 600))
                    )
                case 4:
                    await buffer.configure(
                        eviction=self.dice.choice(list(get_args(Eviction))), max_reuse=self.dice.choice((None, 1, 3))
                    )
                case 5:
                    await buffer.process[0].replay.buffers.delete_chunks(
                        RUN, version=self.dice.randint(0, self.version)
                    )
                case 6:
                    await buffer.process[0].replay.buffers.delete_chunks(RUN, worker="w0")
                case _:
                    await buffer.pass_time(self.dice.choice((100, 3000)))
            if self.restores:
                await self.go_back(buffer)
            moves = self.moves
            await wait_until(lambda: self.moves >= moves + 5 or not self.busy, pause_s=0)  # noqa: B023

    def rounds(self, rounds: int) -> Iterator[int]:
        """Count the moves of a worker or trainer, and how many of them are busy."""
        self.busy += 1
        for number in range(rounds):
            yield number
            self.moves += 1
        self.busy -= 1

    async def go_back(self, buffer: Buffer) -> None:
        """Take, restore and delete snapshots. Now and then make the buffer again."""
        snapshots = buffer.process[0].replay.snapshots
        match next(self.goings_back).split():
            case ["take", name]:
                await snapshots.take(RUN, name)
            case ["restore", name]:
                await snapshots.restore(RUN, name)
            case ["drop", name]:
                await snapshots.drop(RUN, name)
            case _:
                await snapshots.delete_buffer(RUN)
                await buffer.configure(**POLICY)
        self.session = (await buffer.process[0].replay.buffers.state(RUN)).session


@pytest.mark.parametrize("seed", range(3))
async def test_every_fragment_is_in_a_chunk_or_waits_or_was_dropped_or_retired(
    process: Callable[..., Process], redis_client: Redis, seed: int
) -> None:
    """And no payload is freed early, or never."""
    buffers = [await buffer_of(process(), redis_client, **POLICY) for _ in range(3)]
    crowd = Crowd(buffers, seed)
    for _ in range(3):
        workers = [crowd.work(f"w{worker}", 12) for worker in range(4)]
        trainers = [crowd.train(20) for _ in range(3)]
        await asyncio.gather(*workers, *trainers, crowd.operate(10))
        books = await swept(buffers[0])
    assert books.total("accepted_fragments") > 200
    assert books.total("retired_chunks") > 10
    assert books.total("sampled_chunks") > 10
    await emptied(buffers[0])


async def emptied(buffer: Buffer) -> None:
    """Empty a buffer by its own rules: nothing is left of it but its totals."""
    await buffer.configure(max_age_s=0.001, fragment_ttl_s=0.001, max_bytes=None)
    await buffer.pass_time(3_700_000)
    await buffer.pass_time(3_700_000)
    await buffer.process[0].replay.buffers.delete_chunks(RUN)
    books = await swept(buffer)
    assert (books.chunks, books.fragments, books.samples, books.workers) == ({}, {}, {}, {})
    assert books.named or [key async for key in buffer.redis.scan_iter(KEYS.payload("*"))] == []


@pytest.mark.parametrize("seed", range(3))
async def test_payloads_are_freed_in_time_whatever_is_restored_or_made_again(
    process: Callable[..., Process], redis_client: Redis, seed: int
) -> None:
    """The books hold of the buffer and of each snapshot, and payloads are there for what either names."""
    buffers = [await buffer_of(process(), redis_client, **POLICY) for _ in range(3)]
    crowd = Crowd(buffers, seed, restores=True)
    for _ in range(5):
        workers = [crowd.work(f"w{worker}", 8) for worker in range(3)]
        await asyncio.gather(*workers, *(crowd.train(12) for _ in range(2)), crowd.operate(8))
        await swept(buffers[0])
    snapshots = buffers[0].process[0].replay.snapshots
    await snapshots.take(RUN, "last")
    for one in (await snapshots.all(RUN))[0]:
        await snapshots.restore(RUN, one.name)
        await swept(buffers[0])
        await emptied(buffers[1])
    for one in (await snapshots.all(RUN))[0]:
        await snapshots.drop(RUN, one.name)
    assert (await swept(buffers[0])).named == set()


async def test_a_run_that_is_deleted_leaves_no_key(process: Callable[..., Process], redis_client: Redis) -> None:
    buffer = await buffer_of(process(), redis_client, fragments_per_chunk=2, max_reuse=1)
    await buffer.put(0, 1, 2, 3, 4, 6)
    await buffer.put(0, 1, worker="other")
    sample = await buffer.take(2)
    await buffer.process[0].replay.buffers.set_session(RUN, 1)
    await buffer.put(0, 1, 2, session=1)
    await buffer.ack(await buffer.take(1))
    await buffer.books()
    await buffer.process[0].runs.administration.delete(RUN)
    assert await keys_of_runs(redis_client) == []
    for late in (buffer.ack(sample), buffer.put(3, session=1), buffer.process[0].replay.buffers.state(RUN)):
        with pytest.raises(LachesisError):
            await late
    await buffer.process[1].maintain(RUN)
    assert await keys_of_runs(redis_client) == []


async def test_a_reset_leaves_no_payload_and_the_next_buffer_is_empty(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await buffer_of(process(), redis_client)
    await buffer.put(0, 1)
    await buffer.process[0].runs.atropos.reset(RUN)
    await buffer.process[1].maintain(RUN)
    assert [key async for key in redis_client.scan_iter(RunKeys(RUN).payload("*"))] == []
    again = await buffer_of(buffer.process, redis_client)
    await again.put(0)
    assert (await swept(again)).total("accepted_fragments") == 1


@pytest.mark.parametrize("samples_per_insert", [0.5, 2.0])
async def test_the_rate_limiter_holds_across_processes(
    process: Callable[..., Process], redis_client: Redis, samples_per_insert: float
) -> None:
    limiter = RateLimiter(samples_per_insert=samples_per_insert, min_diff=-4.0, max_diff=8.0)
    buffers = [await buffer_of(process(), redis_client, limiter=limiter) for _ in range(2)]
    stop, errors = asyncio.Event(), []

    async def watch() -> None:
        while not stop.is_set():
            error = (await buffers[0].process[0].replay.buffers.state(RUN)).limiter_error
            assert error is not None
            errors.append(error)
            await asyncio.sleep(0.001)

    async def work(worker: int) -> None:
        for number in range(20):
            sent = [fragment(number, worker=f"w{worker}")]
            await buffers[worker % 2].process[0].replay.insertion.insert(RUN, sent, wait_s=20)

    async def train(trainer: int) -> None:
        for _ in range(round(10 * samples_per_insert)):
            asked = ReplaySampleRequest(num_chunks=2)
            sample = await buffers[trainer % 2].process[0].replay.samples.take(RUN, asked, wait_s=20)
            assert isinstance(sample, ReplaySample), sample
            await buffers[trainer % 2].ack(sample)

    watching = asyncio.create_task(watch())
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*map(work, range(4)), *map(train, range(4)))
    finally:
        stop.set()
        await watching
    assert min(errors) >= -4.0
    assert max(errors) <= 8.0
    assert max(errors) > min(errors)
    await swept(buffers[0])


class Overtaken(RedisClient):
    """A connection. Another process makes room just before it reads which chunks would go first."""

    other: ReplayCleanup
    times = 0

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        if any(command[:2] == ("ZRANGE", KEYS.replay_part("archived")) for command in commands):
            self.times += 1
            await self.other.sweep(RUN)
        return await super().pipeline(commands)


@pytest.mark.parametrize("limits", [{"max_chunks": 10}, {"max_bytes": 200}])
async def test_concurrent_inserts_together_evict_no_more_than_needed(
    process: Callable[..., Process], redis_client: Redis, redis_url: str, limits: dict[str, int]
) -> None:
    buffer = await buffer_of(process(), redis_client)
    store = ReplayStore(buffer.process[0].connection)
    await buffer.put(*range(30))
    view = await store.view(RUN)
    assert view is not None
    settings = view.settings.model_copy(update=limits)  # type: ignore[arg-type]
    assert await store.put(RUN, settings, 0, 0.0, view.revision, settle=False)
    async with aclosing(Overtaken(redis_url, 5.0)) as overtaken:
        overtaken.other = ReplayCleanup(store)
        await ReplayCleanup(ReplayStore(overtaken)).sweep(RUN)
    assert overtaken.times
    assert (await swept(buffer)).at("sampleable") == list(range(20, 30))
