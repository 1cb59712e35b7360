"""A replay buffer with the largest values that are taken: what is added up is beyond 64 bits, and still right."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.core.replay.sampling import MAX_WEIGHT
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.replay import Sampling
from tests.services.conftest import RUN, Process
from tests.services.replay.moves import Buffer, buffer_of, fragment, swept

MANY = 1100  # of the largest weights it takes 2048, of the largest versions 1024, to be beyond 64 bits


@pytest.fixture
async def buffer(process: Callable[..., Process], redis_client: Redis) -> Buffer:
    return await buffer_of(process(), redis_client, sampling=Sampling(strategy="proportional", alpha=1.0))


async def test_the_largest_priorities_are_weighed_like_others(buffer: Buffer) -> None:
    for worker in ("a", "b"):
        await buffer.put(*range(MANY), worker=worker, priority=1e300)
    await buffer.put(0, worker="c", priority=1e-300)
    sample = await buffer.take(2 * MANY + 1)
    chances = {record.chunk_id: record.probability for record in sample.records}
    assert chances[1] == chances[MANY + 1] == pytest.approx(1 / (2 * MANY))
    assert chances[2 * MANY + 1] == pytest.approx(1 / (2 * MANY * MAX_WEIGHT))
    await buffer.process[0].replay.buffers.update_priorities(RUN, dict.fromkeys(range(1, MANY + 1), 0.5))
    await buffer.process[0].replay.buffers.delete_chunks(RUN, worker="b")
    assert len((await swept(buffer)).at("sampleable")) == MANY + 1


async def test_the_mean_staleness_is_right_however_large_versions_are(buffer: Buffer) -> None:
    await buffer.put(*range(MANY))
    await buffer.set_version(MAX_INTEGER)
    for _ in range(2):
        await buffer.ack(await buffer.take(MANY))
    state = await buffer.process[0].replay.buffers.state(RUN)
    assert state.avg_staleness == pytest.approx(MAX_INTEGER)
    await swept(buffer)


async def test_a_fragment_that_is_asked_for_again_and_again_is_read_once(buffer: Buffer) -> None:
    (receipt,) = await buffer.insert(0, size=1000)
    assert receipt.fragment_id is not None

    async def keys_read() -> int:
        return int((await buffer.redis.info("stats"))["keyspace_hits"])

    before = await keys_read()
    found = await buffer.process[0].replay.buffers.fragments(RUN, [receipt.fragment_id] * 1024)
    assert {bytes(payload) for _, payload in found} == {bytes(fragment(0, size=1000).payload)}
    assert len(found) == 1024
    assert await keys_read() == before + 2, "its entry, and its payload"
