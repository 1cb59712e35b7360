"""A replay buffer in a training run: the faster side waits, and a crash of one side does not affect the other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import aclosing

import numpy as np
import pytest
from redis.asyncio import Redis

from lachesis import AsyncReplay, AsyncTrainer, Settings
from lachesis.wire.replay import RateLimiter, Sampling
from tests.api.conftest import running_service
from tests.clients.proxy import CuttingProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CHUNK = 2
FIFO = Sampling(strategy="fifo")


@pytest.fixture
async def replay(redis_url: str, redis_client: Redis) -> AsyncIterator[AsyncReplay]:
    """Make a FIFO buffer with chunks of two fragments."""
    async with running_service(redis_url) as client:
        settings = Settings(str(client.base_url), run="robots", retry_budget_s=20)
        async with AsyncTrainer(settings) as trainer, AsyncReplay(settings) as replay:
            await trainer.create_run(batch_size=1)
            await replay.set_up(fragments_per_chunk=CHUNK, sampling=FIFO)
            yield replay


async def work(settings: Settings, name: str, fragments: int, pause_s: float = 0.0, version: int = 0) -> None:
    """Send so many fragments of one step each, one by one."""
    async with AsyncReplay(settings) as replay, replay.worker(name, steps=1) as worker:
        for number in range(fragments):
            await worker.insert({"number": np.array([number])}, policy_version=version)
            await asyncio.sleep(pause_s)


async def train(replay: AsyncReplay, samples: int, num_chunks: int, pause_s: float = 0.0) -> list[int]:
    """Train on so many samples; returns the chunks that were in them."""
    trained: list[int] = []
    async with aclosing(replay.samples(num_chunks=num_chunks, prefetch=1, wait_s=60)) as taken:
        async for sample in taken:
            await asyncio.sleep(pause_s)
            await sample.ack()
            trained += sample.chunks
            if len(trained) == samples * num_chunks:
                return trained
    raise AssertionError("samples never end by themselves")


@contextlib.asynccontextmanager
async def watched(replay: AsyncReplay) -> AsyncIterator[list[float]]:
    """Note the limiter's error, again and again."""
    errors: list[float] = []

    async def watch() -> None:
        while True:
            error = (await replay.state()).limiter.error
            assert error is not None
            errors.append(error)
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    try:
        yield errors
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.parametrize(
    ("workers_pause_s", "trainers_pause_s"), [(0.0, 0.02), (0.02, 0.0)], ids=["slow trainer", "fast trainer"]
)
async def test_the_faster_side_waits_for_the_other_within_the_band(
    replay: AsyncReplay, workers_pause_s: float, trainers_pause_s: float
) -> None:
    band = RateLimiter(samples_per_insert=2, min_diff=0, max_diff=12)
    await replay.change(limiter=band, max_reuse=2, min_size_to_sample=2)
    workers = [work(replay.settings, f"w{n}", 20 * CHUNK, workers_pause_s) for n in range(2)]
    async with watched(replay) as errors:
        *_, trained = await asyncio.gather(*workers, train(replay, 39, 2, trainers_pause_s))
    assert len(errors) > 10
    assert min(errors) >= band.min_diff
    assert max(errors) <= band.max_diff
    assert max(map(trained.count, trained)) <= 2
    state = await replay.state()
    assert (state.limiter.inserts, state.accepted_fragments, state.gaps) == (40, 80, 0)


async def test_a_service_that_restarts_holds_up_and_loses_nothing(redis_url: str, redis_client: Redis) -> None:
    async with CuttingProxy(None) as proxy:
        settings = Settings(proxy.url, run="robots", retry_budget_s=60)
        async with contextlib.AsyncExitStack() as first:
            client = await first.enter_async_context(running_service(redis_url))
            proxy.upstream = client.base_url.port
            async with AsyncTrainer(settings) as trainer, AsyncReplay(settings) as replay:
                await trainer.create_run(batch_size=1)
                await replay.set_up(fragments_per_chunk=CHUNK, sampling=FIFO, max_reuse=1)
                working = asyncio.create_task(work(settings, "w", 40 * CHUNK, 0.005))
                training = asyncio.create_task(train(replay, 40, 1))
                await wait_until(lambda: _has_trained(replay, 5), timeout_s=30)
                proxy.upstream = None
                await proxy.drop_all()
                await first.aclose()
                await wait_until(lambda: proxy.refused >= 4)  # both sides try again
                async with running_service(redis_url) as again:
                    proxy.upstream = again.base_url.port
                    await working
                    trained = await training
                    state = await replay.state()
    assert sorted(trained) == list(range(1, 41)), "every chunk once"
    assert trained == sorted(trained), "in the order they came"
    assert (state.accepted_fragments, state.gaps, state.samples_held, state.avg_reuse) == (80, 0, 0, 1)


async def _has_trained(replay: AsyncReplay, chunks: int) -> bool:
    return (await replay.state()).retired_chunks.get("used_up", 0) >= chunks


async def test_a_version_jump_retires_old_chunks_and_keeps_samples(
    replay: AsyncReplay,
) -> None:
    await replay.change(max_staleness=2)
    async with AsyncTrainer(replay.settings) as trainer, aclosing(replay.samples(num_chunks=2, prefetch=0)) as samples:
        await work(replay.settings, "old", 4 * CHUNK)
        await trainer.set_policy_version(2)
        await work(replay.settings, "new", 4 * CHUNK, version=2)
        held = await anext(samples)
        assert [record.worker for record in held.records] == ["old"] * 4
        await trainer.set_policy_version(3)
        state = await replay.state()
        assert (state.sampleable_chunks, state.versions, state.retired_in_use_chunks) == (4, {2: 4}, 2)
        assert held.fragments()[0]["number"].tolist() == [0]
        again = await replay.show(held.info.sample)
        assert again.records == held.records, "what a sample holds stays until it ends"
        await held.ack()
        fresh = await anext(samples)
        assert fresh.staleness.tolist() == [1] * 4
        await fresh.ack()
        late = replay.worker("late", steps=1)
        await late.insert({"number": np.arange(2)}, policy_version=0)
        assert (await replay.state()).sampleable_chunks == 4, "a chunk that is stale from the start never gets in"
    state = await replay.state()
    assert (state.retired_in_use_chunks, state.samples_held) == (0, 0)
    assert state.avg_staleness == pytest.approx((2 * 2 + 1 * 2) / 4)


async def test_a_dead_worker_blocks_nobody_and_its_fragments_expire(replay: AsyncReplay) -> None:
    await replay.change(fragment_ttl_s=0.5, max_reuse=1)
    dead = replay.worker("dead", steps=1)
    await dead.insert({"number": np.arange(2 * CHUNK + 1)}, policy_version=0)  # its last request
    await work(replay.settings, "alive", 2 * CHUNK)
    assert (await replay.state()).waiting_fragments == 1
    trained = await train(replay, 4, 1)
    assert trained == [1, 2, 3, 4]

    async def expired() -> bool:
        return (await replay.state()).waiting_fragments == 0

    await wait_until(expired, timeout_s=30)
    state = await replay.state()
    assert state.dropped_fragments == {"expired": 1}
    async with replay.worker("dead", steps=1) as back:
        await back.insert({"number": np.arange(CHUNK)}, policy_version=0)
    assert back.outcomes == {"stored": CHUNK}
    assert len(await train(replay, 1, 1)) == 1
