"""The replay buffer's use cases over real Redis: in, out, and what is retired in between."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.core.errors import FragmentExists, LeaseLost, SampleNotFound
from tests.services.conftest import RUN, Process
from tests.services.replaying import Buffer, buffer_of, swept


@pytest.fixture
async def buffer(process: Callable[..., Process], redis_client: Redis) -> Buffer:
    """A buffer of chunks of two fragments."""
    return await buffer_of(process(), redis_client, fragments_per_chunk=2)


async def test_consecutive_fragments_of_a_worker_form_chunks_and_a_sample_has_them_in_order(buffer: Buffer) -> None:
    assert await buffer.put(0, 1, 2) == ["stored"] * 3
    assert (await buffer.books()).at("sampleable") == [0]
    assert await buffer.put(3) == ["stored"]
    sample = await buffer.take(2, sampling={"strategy": "fifo"})
    assert [record.fragment.number for record in sample.records] == [0, 1, 2, 3]
    assert [record.chunk_id for record in sample.records] == [1, 1, 2, 2]
    await buffer.ack(sample)
    books = await swept(buffer)
    assert [entry.chunk.uses for entry in books.chunks.values()] == [1, 1]


async def test_what_is_sent_twice_is_stored_once(buffer: Buffer) -> None:
    first = await buffer.insert(0, 1, 2)
    again = await buffer.insert(0, 1, 2)
    assert [receipt.outcome for receipt in again] == ["repeated"] * 3
    assert again[2].fragment_id == first[2].fragment_id
    with pytest.raises(FragmentExists):
        await buffer.insert(2, mark="other")
    assert (await swept(buffer)).total("accepted_fragments") == 3


async def test_an_acknowledged_sample_counts_and_one_given_back_does_not(buffer: Buffer) -> None:
    await buffer.configure(max_reuse=2, fragments_per_chunk=1)
    await buffer.put(0, 1)
    first, second = await buffer.take(2), await buffer.take(2)
    assert (await buffer.books()).at("withheld") == [0, 1]
    await buffer.nack(first)
    await buffer.nack(first)
    assert (await buffer.books()).at("sampleable") == [0, 1]
    await buffer.ack(second)
    await buffer.ack(second)
    with pytest.raises(LeaseLost):
        await buffer.ack(first)
    await buffer.ack(await buffer.take(2))
    books = await swept(buffer)
    assert (books.chunks, books.total("retired:used_up")) == ({}, 2)
    state = await buffer.process[0].replay.state(RUN)
    assert (state.avg_reuse, state.avg_staleness) == (2.0, 0.0)
    with pytest.raises(SampleNotFound):
        await buffer.process[0].replay_samples.show(RUN, first.lease.batch_id)
