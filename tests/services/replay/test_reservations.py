"""What batches reserve of the replay buffer: theirs alone, never lost, never counted twice, whatever comes between."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.core.runs.settings import Policy
from app.services.batches.request import OutgoingBatch
from app.store.batches.store import BatchStore
from app.store.groups.garbage import GarbageStore
from app.store.redis import scripts
from lachesis.wire.errors import SampleNotFound
from lachesis.wire.replay import Sampling
from tests.lossy_line import LossyLine
from tests.services.conftest import RUN, Process
from tests.services.replay.moves import KEYS, Buffer
from tests.services.replay.test_mixing import ack, books, fresh, nack, replayed, set_up, submit, taken, uses
from tests.waiting import wait_until

COMMIT = scripts.load("commit_batch").digest.encode()


async def test_a_process_that_dies_at_any_step_costs_no_use_and_no_group(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client, max_reuse=2)
    services = buffer.process[0]
    store = BatchStore(services.connection)
    await submit(services, 10, 11)
    view = await services.runs.atropos.view(RUN)
    decision, mixture = await services.batches.formation.plan_next(RUN, view)
    assert decision.plan is not None
    assert mixture is not None
    batch = replace((await taken(services)).lease, batch_id="lost", step=view.step + 1)
    assert await services.replay.mixing.reserve(RUN, batch, mixture)  # the process dies after this
    assert len((await buffer.books()).samples) == 2
    await buffer.pass_time(59_000)
    assert len((await buffer.books()).samples) == 2
    await buffer.pass_time(2_000)
    assert (await buffer.books()).samples.keys() != {"lost"}
    (held,) = (await services.runs.atropos.view(RUN)).leases
    assert (
        await store.acknowledge(RUN, [held], keep=True, remembered_ms=Policy().remembered_ms)
    ).replayed_groups == 1  # dies again
    assert len((await books(buffer)).samples) == 1
    await services.batches.retention.rewind(RUN, 2)
    await buffer.pass_time(1000)
    await nack(services, await taken(services))
    counted = await books(buffer)
    assert (counted.samples, sum(uses(counted).values())) == ({}, 1), "it was acknowledged, whatever came then"


async def test_a_reservation_of_a_batch_cannot_be_read_or_ended_as_a_sample(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Given back under a batch that is trained on, its uses would never count."""
    buffer = await set_up(process(), redis_client)
    services, samples = buffer.process[0], buffer.process[0].replay.samples
    await submit(services, 10)
    batch = await taken(services)
    states = await redis_client.hgetall(KEYS.replay_part("sample_states"))  # type: ignore[misc]
    ((sample_id, entry),) = states.items()
    lease_id = json.loads(entry)["lease_id"]
    for tried in (
        samples.show(RUN, sample_id.decode()),
        samples.give_back(RUN, sample_id.decode(), lease_id, None),
        samples.acknowledge(RUN, sample_id.decode(), lease_id),
        samples.extend(RUN, sample_id.decode(), lease_id, 600.0),
    ):
        with pytest.raises(SampleNotFound):
            await tried
    await ack(services, batch)
    assert sum(uses(await books(buffer)).values()) == 1


async def taken_late(
    held: Process, line: LossyLine, buffer: Buffer, happens: Callable[[str], Awaitable[object]]
) -> OutgoingBatch:
    """Take a batch in a process whose first commit reaches Redis only after something else has happened.

    Args:
        held: The process.
        line: Its line to Redis.
        buffer: The buffer as another process has it.
        happens: Called with the id of the batch that was not committed yet, whose chunks are reserved.
    """
    line.hold(COMMIT)
    taking = asyncio.create_task(taken(held[0]))
    await wait_until(lambda: line.holds)
    line.heal()
    (reserved,) = (await buffer.books()).samples
    await happens(reserved)
    await line.deliver_late()
    batch = await taking
    assert batch.lease.batch_id != reserved
    return batch


@pytest.mark.parametrize("what", ["the version moves on", "the reservation is given back"])
async def test_a_batch_that_cannot_be_committed_holds_nothing_and_another_comes(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str], what: str
) -> None:
    line, url = lossy
    buffer = await set_up(process(), redis_client, max_reuse=1, seeded=2)
    services = buffer.process[0]

    async def happens(reserved: str) -> None:
        if what == "the version moves on":
            await buffer.set_version(1)
        else:
            await services.replay.reservations.release(RUN, reserved)

    await submit(services, 10)
    batch = await taken_late(process(url), line, buffer, happens)
    assert (fresh(batch), len(replayed(batch))) == (["g10"], 1)
    assert (await books(buffer)).samples.keys() == {batch.lease.batch_id}


async def test_a_reservation_is_given_back_though_the_settings_of_the_buffer_change(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str]
) -> None:
    line, url = lossy
    buffer = await set_up(process(), redis_client, max_reuse=1, seeded=2)
    await submit(buffer.process[0], 10)
    await taken(buffer.process[0])
    (reserved,) = (await buffer.books()).samples
    line.hold(scripts.load("end_sample").digest.encode())
    releasing = asyncio.create_task(process(url)[0].replay.reservations.release(RUN, reserved))
    await wait_until(lambda: line.holds)
    line.heal()
    await buffer.configure(max_reuse=3)
    await line.deliver_late()
    await releasing
    assert (await buffer.books()).samples == {}


async def test_no_batch_is_committed_that_a_restored_buffer_has_only_a_part_of(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str]
) -> None:
    """A chunk that the buffer deletes before the batch has it may be gone when the batch is handed out again."""
    line, url = lossy
    sampling = Sampling(strategy="lifo")
    buffer = await set_up(process(), redis_client, Policy(), seeded=3, batch_size=6, sampling=sampling)
    services = buffer.process[0]
    await services.runs.administration.change(RUN, {"fresh_fraction": 0.3})
    await services.replay.snapshots.take(RUN, "a")
    await submit(services, 10, 11)
    await ack(services, await taken(services))

    async def happens(_: str) -> None:
        await services.replay.snapshots.restore(RUN, "a")
        await GarbageStore(services.connection).delete_marked(RUN)

    batch = await taken_late(process(url), line, buffer, happens)
    assert (fresh(batch), replayed(batch)) == (["g11"], ["g2", "g1"])
    assert (await books(buffer)).samples.keys() == {batch.lease.batch_id}


async def test_no_use_is_reserved_in_a_buffer_that_was_made_again(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """It has other groups under the numbers that the chunks had."""
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 10, 11)
    _, mixture = await services.batches.formation.plan_next(RUN, await services.runs.atropos.view(RUN))
    assert mixture is not None
    lease = (await taken(services)).lease
    await services.replay.snapshots.delete_buffer(RUN)
    await services.runs.administration.change(RUN, {"fresh_fraction": 1.0})
    await buffer.configure(groups=True)
    await submit(services, *range(20, 28))
    for _ in range(4):
        await ack(services, await taken(services))
    chunks = {entry.chunk.chunk_id for entry in (await buffer.books()).chunks.values()}
    assert {group.replayed.chunk for group in mixture.groups if group.replayed is not None} <= chunks
    assert not await services.replay.mixing.reserve(RUN, replace(lease, batch_id="lost"), mixture)
    assert (await buffer.books()).samples == {}
