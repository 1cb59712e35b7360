"""Batches that are filled up with groups from the replay buffer: exact, held like any other, and never at a price."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest, OutgoingBatch
from app.services.replay import mixing, sampling
from app.store.redis.keys import RunKeys
from lachesis.wire.errors import InvalidField
from lachesis.wire.replay import RateLimiter, Sampling
from lachesis.wire.states import RESERVED
from tests.services.accounting import books_of, keys_of_runs
from tests.services.conftest import RUN, Process, config, encoded, join, marks
from tests.services.replay.moves import KEYS, Books, Buffer, buffer_of, swept

KEEPING = Policy(keep_batches=8, keep_bytes=1024**2, max_deliveries=2)


async def set_up(
    process: Process, redis: Redis, policy: Policy = KEEPING, seeded: int = 4, batch_size: int = 4, **settings: Any
) -> Buffer:
    """Make a run with batches of four, half of each fresh at least, and with groups of two in its buffer."""
    services = process[0]
    await services.runs.administration.create(RUN, config(batch_size), policy)
    buffer = await buffer_of(process, redis, groups=True, **settings)
    await submit(services, *range(seeded))
    for _ in range(2 * seeded // batch_size):
        await ack(services, await taken(services))
    assert len((await buffer.books()).chunks) == seeded
    await services.runs.administration.change(RUN, {"fresh_fraction": 0.5})
    return buffer


async def submit(services: Services, *marks: int, environment: int | None = None, version: int = 0) -> None:
    for mark in marks:
        group = encoded(2, mark)._replace(given_id=f"g{mark}", environment=environment, policy_version=version)
        await services.groups.native.submit(RUN, [group])


async def taken(services: Services, lease_s: float = 600.0) -> OutgoingBatch:
    answer = await services.batches.dispatch.take(RUN, BatchRequest(lease_s=lease_s))
    assert answer.batch is not None, answer.not_ready
    return answer.batch


async def ack(services: Services, batch: OutgoingBatch) -> None:
    await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)


async def nack(services: Services, batch: OutgoingBatch) -> None:
    await services.batches.leases.give_back(RUN, batch.lease.batch_id, batch.lease.lease_id, None)


def fresh(batch: OutgoingBatch) -> list[str | None]:
    return [group.given_id for group in batch.groups if group.replayed is None]


def replayed(batch: OutgoingBatch) -> list[str | None]:
    return [group.given_id for group in batch.groups if group.replayed is not None]


async def books(buffer: Buffer) -> Books:
    """Recount the run and its buffer; payloads are there exactly for what is held."""
    await books_of(buffer.redis, RUN)
    return await swept(buffer)


def uses(counted: Books) -> dict[str, int]:
    """How often each group was used, by its id."""
    return {entry.fragment_ids[0]: entry.chunk.uses for entry in counted.chunks.values()}


async def test_a_batch_has_the_required_fresh_groups_and_is_filled_with_replayed_ones(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 10, 11)
    batch = await taken(services)
    assert (fresh(batch), len(replayed(batch))) == (["g10"], 1)
    payloads = [payload.split(b"|")[0].decode() for payload in batch.payloads]
    assert payloads == ["10", replayed(batch)[0][1:]]  # type: ignore[index]
    (group,) = [group for group in batch.groups if group.replayed is not None]
    assert group.replayed is not None
    assert (group.replayed.uses, group.replayed.probability, group.replayed.importance) == (0, 0.25, 1)
    counted = await books(buffer)
    assert counted.samples == {batch.lease.batch_id: [f"{group.replayed.chunk:012d}"]}
    assert (await services.replay.buffers.state(RUN)).samples_held == 1
    await ack(services, batch)
    counted = await books(buffer)
    assert counted.samples == {}
    assert uses(counted)[group.group_id] == 1
    assert counted.total("entered_groups") == 5, "the fresh one enters; what was replayed is there"


@pytest.mark.parametrize("strategy", ["proportional", "rank"])
async def test_groups_of_a_small_buffer_are_replayed_by_priority(
    process: Callable[..., Process], redis_client: Redis, strategy: str
) -> None:
    """All groups of a small buffer are candidates, and the first ones are taken."""
    buffer = await set_up(process(), redis_client, sampling=Sampling(strategy=strategy, alpha=4.0))
    services = buffer.process[0]
    chunks = sorted(map(int, (await buffer.books()).chunks))
    await services.replay.buffers.update_priorities(RUN, {chunk: 1.0 + place for place, chunk in enumerate(chunks)})
    await submit(services, 10)
    seen = Counter[int]()
    for _ in range(24):
        batch = await taken(services)
        seen.update(group.replayed.chunk for group in batch.groups if group.replayed is not None)
        await nack(services, batch)
    assert seen[chunks[-1]] > 12, "the probability of its group is 0.72 and 0.93"
    assert seen[chunks[0]] < 4


async def test_a_batch_is_filled_up_though_one_priority_outweighs_all_others(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    sampling = Sampling(strategy="proportional", alpha=1.0)
    buffer = await set_up(process(), redis_client, seeded=32, batch_size=8, sampling=sampling)
    services = buffer.process[0]
    chunks = sorted(map(int, (await buffer.books()).chunks))
    priorities = {chunk: float(chunk == chunks[7]) for chunk in chunks}
    await services.replay.buffers.update_priorities(RUN, priorities)
    await submit(services, 100, 101)
    batch = await taken(services)
    found = [group.replayed.chunk for group in batch.groups if group.replayed is not None]
    assert (len(found), len(set(found)), found[0]) == (2, 2, chunks[7])


async def test_a_returned_batch_puts_fresh_groups_in_the_queue_and_others_in_the_buffer(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client, max_reuse=1, seeded=2)
    services = buffer.process[0]
    await submit(services, 10)
    batch = await taken(services)
    assert len((await books(buffer)).at(RESERVED)) == 1
    await nack(services, batch)
    counted = await books(buffer)
    assert (counted.at(RESERVED), set(uses(counted).values()), counted.samples) == ([], {0}, {})
    again = await taken(services)
    assert (fresh(again), again.lease.batch_id != batch.lease.batch_id) == (["g10"], True)


async def test_a_lease_that_runs_out_is_handed_out_again_identical_and_dropped_whole(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 10)
    first = await taken(services, lease_s=0.001)
    await buffer.pass_time(100_000)
    assert len((await books(buffer)).samples) == 1, "its reservation lasts as long as it does"
    again = await taken(services, lease_s=0.001)
    assert (again.groups, again.payloads, again.lease.delivery_count) == (first.groups, first.payloads, 2)
    await buffer.pass_time(100)
    await services.batches.leases.discard(RUN, again.lease.batch_id)
    counted = await books(buffer)
    assert (counted.samples, set(uses(counted).values())) == ({}, {0})


async def test_a_batch_dissolved_by_another_batch_size_gives_back_its_uses_at_once(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 10)
    batch = await taken(services, lease_s=0.001)
    assert (await buffer.books()).samples.keys() == {batch.lease.batch_id}
    await services.runs.administration.change(RUN, {"batch_size": 2})
    await redis_client.hincrby(KEYS.run, "clock_ms", 1000)  # type: ignore[misc]
    assert fresh(await taken(services)) == ["g10"]
    assert (await buffer.books()).samples == {}, "before maintenance looks"


async def test_kept_batches_keep_what_was_replayed_and_a_rewind_counts_no_use_twice(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client, max_reuse=1, seeded=2)
    services = buffer.process[0]
    await services.batches.retention.checkpoint(RUN, 1)
    await submit(services, 10)
    batch = await taken(services)
    (group,) = [group for group in batch.groups if group.replayed is not None]
    await ack(services, batch)
    counted = await books(buffer)
    assert counted.total("retired:used_up") == 1
    assert group.group_id not in counted.fragments
    assert await redis_client.exists(KEYS.payload(group.group_id))
    await services.batches.retention.rewind(RUN, 1)
    again = await taken(services)
    assert (again.lease.batch_id, again.groups, again.payloads) == (batch.lease.batch_id, batch.groups, batch.payloads)
    await ack(services, again)
    assert (await books(buffer)).total("retired:used_up") == 1
    await services.batches.retention.checkpoint(RUN, 2)
    await books(buffer)
    assert not await redis_client.exists(KEYS.payload(group.group_id)), "freed with its last holder"


async def test_a_leased_batch_keeps_its_replayed_groups_when_a_snapshot_is_restored(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client, max_reuse=1, seeded=2)
    services = buffer.process[0]
    await services.replay.snapshots.take(RUN, "before")
    await submit(services, 10, 11)
    batches = [await taken(services) for _ in range(2)]
    used = {group.group_id for batch in batches for group in batch.groups if group.replayed is not None}
    assert len(used) == 2
    await services.replay.snapshots.take(RUN, "while they are held")
    for name in ("before", "while they are held", "before"):
        await services.replay.snapshots.restore(RUN, name)
        counted = await books(buffer)
        assert (len(counted.at(RESERVED)), counted.samples.keys()) == (2, {batch.lease.batch_id for batch in batches})
    await nack(services, batches[0])
    assert len((await books(buffer)).at(RESERVED)) == 1
    await ack(services, batches[1])
    counted = await books(buffer)
    assert (counted.samples, counted.total("retired:used_up")) == ({}, 1)


async def test_a_batch_holds_nothing_of_a_snapshot_that_has_nothing_of_what_it_replays(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client, seeded=2)
    services = buffer.process[0]
    await services.replay.buffers.delete_chunks(RUN)
    await services.replay.snapshots.take(RUN, "empty")
    await submit(services, 10, 11, 12)
    await ack(services, await taken(services))
    batch = await taken(services)
    assert len(replayed(batch)) == 1
    await services.replay.snapshots.restore(RUN, "empty")
    assert (await books(buffer)).samples == {}
    await ack(services, batch)
    await books(buffer)


async def test_a_group_that_waits_in_the_queue_again_is_not_replayed(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """It was trained on, rewound and given back; it would come twice into one batch."""
    buffer = await set_up(process(), redis_client, seeded=2, sampling=Sampling(strategy="fifo"))
    services = buffer.process[0]
    await services.batches.retention.rewind(RUN, 0)
    await nack(services, await taken(services))
    batch = await taken(services)
    assert (fresh(batch), replayed(batch)) == (["g0", "g1"], [])
    assert len((await books(buffer)).chunks) == 2
    await ack(services, batch)
    await submit(services, 10)
    batch = await taken(services)
    assert (fresh(batch), replayed(batch)) == (["g10"], ["g0"])


async def test_two_trainers_never_use_a_group_more_than_max_reuse_times(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """What nobody may use any more is not waited for: batches are of fresh groups then."""
    buffer = await set_up(process(), redis_client, max_reuse=1, seeded=2)
    services, others = buffer.process[0], process()[0]
    await submit(services, *range(10, 16))
    batches = [await taken(services), await taken(others), await taken(services)]
    assert [len(replayed(batch)) for batch in batches] == [1, 1, 0]
    assert len({replayed(batch)[0] for batch in batches[:2]}) == 2
    for batch in batches:
        await ack(services, batch)
    assert (await books(buffer)).total("retired:used_up") == 2


async def test_a_run_whose_buffer_has_nothing_that_fits_waits_for_nobody(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Nor is the rate limiter a reason to wait."""
    buffer = await set_up(
        process(), redis_client, limiter=RateLimiter(samples_per_insert=0.5, min_diff=1.5, max_diff=10.0)
    )
    services = buffer.process[0]
    await submit(services, 10, 11)
    batch = await taken(services)
    assert (fresh(batch), replayed(batch)) == (["g10", "g11"], []), "an error of 2 leaves no sample above 1.5"
    await ack(services, batch)
    await buffer.configure(limiter=None)
    await buffer.process[0].replay.buffers.delete_chunks(RUN)
    await submit(services, 12)
    answer = await services.batches.dispatch.take(RUN, BatchRequest())
    assert answer.not_ready is not None
    await submit(services, 13)
    assert fresh(await taken(services)) == ["g12", "g13"]


async def test_where_the_buffer_cannot_fill_batches_up_environments_make_the_rest(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """As long as a trainer waits; nobody who goes by credits is waited for by whom it waits for itself."""
    buffer = await set_up(process(), redis_client, KEEPING, seeded=0)
    services = buffer.process[0]
    await services.runs.administration.change(RUN, {"max_staleness": 0})
    environment = (await join(services, "env")).environment
    made = 0

    async def make() -> int:
        nonlocal made
        grant = (await services.environments.allowances.heartbeat(RUN, environment, "one", None)).allowance
        marks = range(made, made + grant.groups)
        await submit(services, *marks, environment=environment, version=grant.policy_version)
        made += grant.groups
        return grant.groups

    assert [await make(), await make()] == [1, 0], "half of a batch of four is fresh"
    assert (await services.batches.dispatch.take(RUN, BatchRequest())).not_ready is not None
    assert [await make(), await make()] == [1, 0]
    batch = await taken(services)
    assert len(fresh(batch)) == 2
    await ack(services, batch)
    assert await make() == 0, "a group of this version would be too old for the next batch"
    await services.runs.administration.set_policy_version(RUN, 1)
    assert [await make(), await make()] == [1, 0]
    assert (len(fresh(again := await taken(services))), len(replayed(again))) == (1, 1)


async def test_minimums_are_kept_of_the_whole_batch(process: Callable[..., Process], redis_client: Redis) -> None:
    process_ = process()
    services = process_[0]
    await services.runs.administration.create(RUN, config(8), KEEPING)
    for name in ("math", "code"):
        await join(services, name, min_share=0.5)
    buffer = await buffer_of(process_, redis_client, groups=True)
    await submit(services, 0, 1, environment=0)
    await submit(services, 2, 3, environment=1)
    await ack(services, await taken(services))
    await services.runs.administration.change(RUN, {"fresh_fraction": 0.5})
    await submit(services, 10, 11, 12, 13, environment=0)
    assert (await services.batches.dispatch.take(RUN, BatchRequest())).not_ready is not None, (
        "code must be in what is fresh, too"
    )
    await submit(services, 14, environment=1)
    batch = await taken(services)
    assert fresh(batch) == ["g10", "g14"]
    assert sorted(group.environment or 0 for group in batch.groups if group.replayed) == [0, 1]
    await ack(services, batch)
    await books(buffer)


async def test_a_mixed_batch_goes_on_waiting_for_environments_that_send_too_little(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    process_ = process()
    services = process_[0]
    await services.runs.administration.create(RUN, config(8), KEEPING)
    await join(services, "math", min_share=0.5)
    await join(services, "code")
    buffer = await buffer_of(process_, redis_client, groups=True)
    await submit(services, 0, 1, 2, 3, environment=0)
    await ack(services, await taken(services))
    await submit(services, 10, 11, environment=0)
    assert (await services.batches.dispatch.take(RUN, BatchRequest())).not_ready is not None
    scarce = (await services.runs.administration.get(RUN)).scarce
    assert scarce.keys() == {1}
    await services.runs.administration.change(RUN, {"fresh_fraction": 0.5})
    batch = await taken(services)
    assert {group.environment for group in batch.groups if group.replayed} == {0}
    assert (await services.runs.administration.get(RUN)).scarce == scarce
    await ack(services, batch)
    await books(buffer)


async def test_a_group_that_is_damaged_leaves_the_buffer_and_batches_come(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client, seeded=2)
    services = buffer.process[0]
    for chunk in (await buffer.books()).chunks.values():
        await redis_client.set(KEYS.payload(chunk.fragment_ids[0]), b"damaged")
    await submit(services, 10, 11)
    assert fresh(await taken(services)) == ["g10", "g11"]
    assert (await buffer.books()).total("retired:corrupt") == 2


async def test_trainers_of_atropos_get_mixed_batches_too(process: Callable[..., Process], redis_client: Redis) -> None:
    buffer = await buffer_of(process(), redis_client, groups=True)
    services = buffer.process[0]
    for mark in range(4):
        await services.groups.atropos.submit(RUN, [encoded(2, mark)])
    for _ in range(2):
        await services.batches.atropos_delivery.finish(RUN, await services.batches.dispatch.take(RUN))
    await services.runs.administration.change(RUN, {"fresh_fraction": 0.5})
    await services.groups.atropos.submit(RUN, [encoded(2, 10)])
    answer = await services.batches.dispatch.take(RUN)
    first, second = marks(answer)
    assert (first, second in range(2)) == (10, True)
    await services.batches.atropos_delivery.finish(RUN, answer)
    await services.groups.atropos.submit(RUN, [encoded(2, 11)])
    await services.batches.atropos_delivery.finish(RUN, await services.batches.dispatch.take(RUN))
    counted = await books(buffer)
    assert sorted(uses(counted).values(), reverse=True)[0] == 1


async def test_a_fresh_fraction_needs_a_buffer_that_takes_groups(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    half = KEEPING.model_copy(update={"fresh_fraction": 0.5})
    await services.runs.administration.create(RUN, config(4), KEEPING)
    for settings in (None, {"groups": False}):
        if settings is not None:
            await services.replay.buffers.configure(RUN, settings)
        with pytest.raises(InvalidField, match="with `groups`") as refused:
            await services.runs.administration.change(RUN, {"fresh_fraction": 0.5})
        assert refused.value.location == ("fresh_fraction",)
    await services.replay.buffers.configure(RUN, {"groups": True})
    assert (await services.runs.administration.change(RUN, {"fresh_fraction": 0.5})).policy.fresh_fraction == 0.5
    _, new = await services.runs.administration.create(RUN, config(4), half)
    assert not new


class CountedThreads(ThreadPoolExecutor):
    """Counts what runs in its threads."""

    calls = 0

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        return super().submit(*args, **kwargs)


@pytest.mark.parametrize(("few", "calls"), [(4, 0), (3, 2)])
async def test_draws_from_very_many_chunks_hold_up_no_other_request(
    process: Callable[..., Process], redis_client: Redis, monkeypatch: pytest.MonkeyPatch, few: int, calls: int
) -> None:
    """There are four chunks. More than ``few`` are very many."""
    for module in (mixing, sampling):
        monkeypatch.setattr(module, "MANY_PLACES", few)
    buffer = await set_up(process(), redis_client)
    await submit(buffer.process[0], 10, 11)
    threads = CountedThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    assert replayed(await taken(buffer.process[0]))
    await buffer.take(1, sampling={"strategy": "recency"})
    assert threads.calls == calls


async def test_a_run_that_is_deleted_with_a_mixed_batch_leaves_no_key(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffer = await set_up(process(), redis_client)
    services = buffer.process[0]
    await submit(services, 10, 11)
    await ack(services, await taken(services))
    await taken(services)
    assert await redis_client.exists(RunKeys(RUN).replayed)
    await services.runs.administration.delete(RUN)
    assert await keys_of_runs(redis_client) == []
