"""Groups that were trained on stay sampleable: what enters the replay buffer, when, how often, and when it is freed."""

from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.ranks.costs import Weight
from app.core.replay.buffer import Versions
from app.core.replay.rate_limiter import LimiterBlock
from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest, OutgoingBatch
from app.services.replay.request import ReplaySampleRequest
from app.store.batches.store import BatchStore
from app.store.groups.encoded_group import EncodedGroup
from app.store.redis.keys import RunKeys
from lachesis.wire.errors import InvalidField
from lachesis.wire.replay import RateLimiter
from tests.services.accounting import books_of, keys_of_runs
from tests.services.conftest import RUN, Process, config, encoded, join, marks
from tests.services.replay.moves import KEYS, Buffer, buffer_of, swept

KEEPING = Policy(keep_batches=8, keep_bytes=1024**2, max_deliveries=1)


def named(mark: int, **fields: Any) -> EncodedGroup:
    return encoded(2, mark)._replace(given_id=f"g{mark}", **fields)


async def set_up(process: Process, redis: Redis, policy: Policy = KEEPING, **settings: Any) -> Buffer:
    """Make a run with batches of one group, and a buffer that takes groups."""
    await process[0].runs.administration.create(RUN, config(2), policy)
    return await buffer_of(process, redis, groups=True, **settings)


async def submit(services: Services, *marks: int, **fields: Any) -> None:
    for mark in marks:
        await services.groups.native.submit(RUN, [named(mark, **fields)])


async def taken(services: Services, lease_s: float = 600.0) -> OutgoingBatch:
    answer = await services.batches.dispatch.take(RUN, BatchRequest(lease_s=lease_s))
    assert answer.batch is not None
    return answer.batch


async def trained(services: Services, batches: int = 1) -> list[str]:
    """Take batches and acknowledge them; returns the ids of their groups."""
    ids = []
    for _ in range(batches):
        batch = await taken(services)
        await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
        ids += [group.group_id for group in batch.groups]
    return ids


async def payloads(buffer: Buffer) -> set[str]:
    """What is stored, once the garbage is swept; the books are checked on the way."""
    await swept(buffer)
    await books_of(buffer.redis, RUN)
    return {key.decode().rsplit(":", 1)[1] async for key in buffer.redis.scan_iter(KEYS.payload("*"))}


@pytest.mark.parametrize("policy", [KEEPING, Policy()], ids=["kept batches", "none kept"])
async def test_groups_are_sampled_after_training_up_to_max_reuse_and_then_freed(
    process: Callable[..., Process], redis_client: Redis, policy: Policy
) -> None:
    buffer = await set_up(process(), redis_client, policy, max_reuse=2)
    services = buffer.process[0]
    await submit(services, 0, 1, 2, 3)
    ids = await trained(services, 2)
    for _ in range(2):
        sample = await buffer.take(2)
        assert {record.fragment.fragment_id for record in sample.records} == set(ids)
        found = await services.replay.buffers.fragments(RUN, ids)
        assert [payload[:2] for _, payload in found] == [b"0|", b"1|"]
        assert set(ids) < await payloads(buffer)
        await buffer.ack(sample)
    assert isinstance(await services.replay.samples.take(RUN, ReplaySampleRequest(num_chunks=1)), LimiterBlock)
    kept = policy.keep_batches > 0
    assert (await payloads(buffer)).issuperset(ids) == kept, "kept batches hold them for a rewind"
    await services.batches.retention.checkpoint(RUN, 2)
    assert not (await payloads(buffer)).intersection(ids)
    assert (await buffer.books()).total("retired:used_up") == 2


async def test_what_is_sampleable_outlives_the_batch_that_is_kept_no_more(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 0, 1)
    (first, _) = await trained(services, 2)
    await services.batches.retention.checkpoint(RUN, 2)
    assert first in await payloads(buffer)
    await buffer.process[0].replay.buffers.delete_chunks(RUN)
    assert first not in await payloads(buffer)


async def test_a_group_says_where_it_is_from(process: Callable[..., Process], redis_client: Redis) -> None:
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await join(services)
    await buffer.set_version(5)
    own = named(1, weight=Weight(100, 5000))
    await services.groups.native.submit(
        RUN,
        [own._replace(environment=0, policy_version=3, versions=Versions(3, 4.5, 7, 100), reward=0.25)],
    )
    await services.groups.native.submit(RUN, [named(2)])
    await trained(services, 2)
    page = await services.replay.buffers.chunks(RUN)
    assert [entry.chunk.worker for entry in page.chunks] == ["@environment/0", "@environment/-"]
    assert [entry.chunk.versions.lowest for entry in page.chunks] == [3, 5], "one that says none is of the one in force"
    assert [entry.chunk.versions.highest for entry in page.chunks] == [5, 5], "none is of a version yet to come"
    assert page.chunks[0].chunk.versions.mean == 4.5
    assert [page.groups[entry.fragment_ids[0]] for entry in page.chunks] == ["g1", "g2"]
    (fragment, _), (other, _) = await services.replay.buffers.fragments(
        RUN, [one.fragment_ids[0] for one in page.chunks]
    )
    assert fragment.facts == '{"group":"g1","environment":0,"sequences":2,"reward":0.25}'
    assert other.facts == '{"group":"g2","sequences":2}'


async def test_a_process_that_dies_after_an_acknowledgement_loses_no_group_and_doubles_none(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Even if its batch is kept no longer when another process goes on."""
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 0, 1, 2)
    batch = await taken(services)
    store = BatchStore(services.connection)
    ended = await store.acknowledge(RUN, [batch.lease], keep=True, remembered_ms=Policy().remembered_ms)
    assert (len(ended.batches), ended.entered_groups) == (1, 1)  # here it dies
    await services.batches.retention.checkpoint(RUN, 1)
    books = await swept(buffer)
    assert (books.chunks, books.total("waiting_fragments")) == ({}, 1)
    await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    other = process()
    for _ in range(2):
        await other[1].maintain(RUN)
        sample = await buffer.take(1)
        assert [record.fragment.fragment_id for record in sample.records] == [batch.groups[0].group_id]
        await buffer.nack(sample)
    assert (await swept(buffer)).total("accepted_fragments") == 1


async def test_a_batch_that_is_rewound_does_not_enter_again(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Return whether its group is sampleable still, was used up, or went back to its lane and came in another batch."""
    buffer = await set_up(process(), redis_client, max_reuse=1)
    services = buffer.process[0]
    await submit(services, 0, 1, 2)
    ids = await trained(services, 3)
    sample = await buffer.take(1, sampling={"strategy": "fifo"})
    assert sample.records[0].fragment.fragment_id == ids[0]
    await buffer.ack(sample)
    await services.batches.retention.rewind(RUN, 0)
    again = [await taken(services) for _ in range(3)]
    assert [batch.groups[0].group_id for batch in again] == ids, "the same batches"
    assert [bytes(batch.payloads[0][:2]) for batch in again] == [b"0|", b"1|", b"2|"]
    await services.batches.leases.give_back(RUN, again[2].lease.batch_id, again[2].lease.lease_id, None)
    for batch in again[:2]:
        await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    assert await trained(services) == ids[2:]
    books = await swept(buffer)
    assert books.total("entered_groups") == 3
    assert [entry.fragment_ids[0] for _, entry in sorted(books.chunks.items())] == ids[1:]
    await books_of(redis_client, RUN)


async def test_a_quarantined_batch_that_had_entered_is_dropped_and_stays_sampleable(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 0, 1)
    (group, *_) = await trained(services)
    await services.batches.retention.rewind(RUN, 0)
    batch = await taken(services, lease_s=0.001)
    await buffer.pass_time(100)
    await services.batches.leases.discard(RUN, batch.lease.batch_id)
    assert group in await payloads(buffer)
    await buffer.ack(await buffer.take(1))


async def test_groups_of_atropos_enter_when_the_next_batch_has_arrived(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await buffer_of(process(), redis_client, groups=True)
    services = buffer.process[0]
    for mark in range(4):
        await services.groups.atropos.submit(RUN, [encoded(2, mark)])
    for batch in range(2):
        answer = await services.batches.dispatch.take(RUN)
        assert marks(answer) == [2 * batch, 2 * batch + 1]
        assert (await buffer.books()).total("entered_groups") == 0
        await services.batches.atropos_delivery.finish(RUN, answer)
    sample = await buffer.take(2)
    found = await services.replay.buffers.fragments(RUN, [record.fragment.fragment_id for record in sample.records])
    assert {payload[:2] for _, payload in found} == {b"0|", b"1|"}
    await payloads(buffer)


async def test_groups_obey_staleness_capacity_and_session(process: Callable[..., Process], redis_client: Redis) -> None:
    buffer = await set_up(process(), redis_client, max_staleness=1, max_chunks=2)
    services = buffer.process[0]
    await submit(services, 0, 1, 2, 3, policy_version=0)
    (first, second) = await trained(services, 2)
    await buffer.set_version(2)
    assert (await buffer.books()).total("retired:stale") == 2
    await trained(services)
    assert (await buffer.books()).total("dropped:stale") == 1, "a newcomer that is stale evicts nobody"
    await submit(services, 4, 5, 6, 7, policy_version=2)
    await trained(services, 4)
    books = await swept(buffer)
    assert (books.total("chunks"), books.total("retired:evicted")) == (2, 1)
    await services.replay.buffers.set_session(RUN, 1)
    await trained(services)
    assert [entry.chunk.session for entry in (await services.replay.buffers.chunks(RUN)).chunks] == [1]
    assert not {first, second} & (await swept(buffer)).fragments.keys()


async def test_an_acknowledgement_never_waits_for_the_rate_limiter(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Groups count as inserts; it is fragments that wait until samples have caught up."""
    buffer = await set_up(
        process(), redis_client, limiter=RateLimiter(samples_per_insert=1.0, min_diff=0.0, max_diff=2.0)
    )
    services = buffer.process[0]
    await submit(services, *range(5))
    await trained(services, 5)
    state = await services.replay.buffers.state(RUN)
    assert (state.limiter_error, state.sampleable_chunks) == (5.0, 5)
    assert state.inserts_blocked is not None
    await buffer.ack(await buffer.take(1))
    assert (await services.replay.buffers.state(RUN)).limiter_error == 4.0


async def test_only_chunks_of_one_fragment_can_be_groups(process: Callable[..., Process], redis_client: Redis) -> None:
    buffer = await buffer_of(process(), redis_client, fragments_per_chunk=2)
    with pytest.raises(InvalidField, match="each chunk is one group") as refused:
        await buffer.configure(groups=True)
    assert refused.value.location == ("fragments_per_chunk",)
    await buffer.configure(groups=True, fragments_per_chunk=1)
    with pytest.raises(InvalidField, match="each chunk is one group"):
        await buffer.configure(fragments_per_chunk=4)


async def test_a_buffer_that_takes_no_groups_gets_none(process: Callable[..., Process], redis_client: Redis) -> None:
    """Those that entered before stay."""
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 0, 1, 2)
    await trained(services)
    await buffer.configure(groups=False)
    await trained(services, 2)
    assert len((await swept(buffer)).chunks) == 1


async def test_a_run_that_is_deleted_leaves_no_group(process: Callable[..., Process], redis_client: Redis) -> None:
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 0, 1, 2)
    await trained(services)
    batch = await taken(services)
    await BatchStore(services.connection).acknowledge(
        RUN, [batch.lease], keep=True, remembered_ms=Policy().remembered_ms
    )
    await buffer.take(1)
    await services.runs.administration.delete(RUN)
    assert await keys_of_runs(redis_client) == []


async def test_the_newest_group_stays_for_latest_example_after_the_buffer_has_let_it_go(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client, Policy())
    services = buffer.process[0]
    await submit(services, 0)
    (group,) = await trained(services)
    await services.replay.buffers.delete_chunks(RUN)
    assert await payloads(buffer) == {group}
    await submit(services, 1)
    assert group not in await payloads(buffer)
    (held,) = await trained(services)
    await submit(services, 2)
    assert held in await payloads(buffer), "a newer one comes, but the buffer has it"
    assert not await redis_client.exists(RunKeys(RUN).payload(group))


async def test_a_buffer_that_is_made_again_gets_groups_that_the_previous_one_had(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 0)
    own = await trained(services)
    await services.replay.snapshots.delete_buffer(RUN)
    await buffer.configure(groups=True)
    await services.batches.retention.rewind(RUN, 0)
    assert await trained(services) == own
    assert list((await swept(buffer)).fragments) == own


async def test_a_buffer_that_is_restored_gets_the_groups_that_it_has_not_seen(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """A trainer goes back, and its buffer with it: what it trains on again enters, if the buffer is without it now."""
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 0, 1, 2)
    (before,) = await trained(services)
    batch = await taken(services)
    await BatchStore(services.connection).acknowledge(
        RUN, [batch.lease], keep=True, remembered_ms=Policy().remembered_ms
    )
    await services.replay.snapshots.take(RUN, "step-2")  # with a group in it that is in no chunk yet
    (after,) = await trained(services)
    own = [before, batch.groups[0].group_id, after]
    await services.replay.snapshots.restore(RUN, "step-2")
    await buffer.process[1].maintain(RUN)
    assert set((await swept(buffer)).fragments) == set(own[:2])
    await services.batches.retention.rewind(RUN, 0)
    assert await trained(services, 3) == own
    books = await swept(buffer)
    assert [entry.fragment_ids[0] for _, entry in sorted(books.chunks.items())] == own
    await books_of(redis_client, RUN)
