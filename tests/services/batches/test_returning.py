"""Batches that come back, and groups that are sent again: corners that the state machine found."""

from collections.abc import Callable
from typing import get_args

import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest, OutgoingBatch
from app.services.leases import HOW_IT_ENDED
from app.store.groups.encoded_group import EncodedGroup
from app.store.redis.keys import RunKeys
from app.store.runs.store import RunStore
from lachesis.wire.errors import LeaseLost, RewindImpossible
from lachesis.wire.states import BatchOutcome, LeaseState, SampleOutcome
from tests.core.views import TTL_MS
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config

LEASE_S = 20.0


def group(name: str, size: int = 2, version: int | None = None) -> EncodedGroup:
    return EncodedGroup(size, None, b"columns of " + name.encode(), name, version)


@pytest.fixture
async def services(process: Callable[..., Process], redis_client: Redis) -> Services:
    """One API process, and a run whose leases run out once."""
    made, _ = process()
    policy = Policy(max_deliveries=1, keep_batches=8, keep_bytes=2**30)
    await made.runs.administration.create(RUN, config(2), policy)
    return made


async def submit(services: Services, *names: str) -> None:
    await services.groups.native.submit(RUN, [group(name) for name in names])


async def take(services: Services) -> OutgoingBatch:
    answer = await services.batches.dispatch.take(RUN, BatchRequest(lease_s=LEASE_S))
    assert answer.batch is not None, answer.not_ready
    return answer.batch


def names(batch: OutgoingBatch) -> list[str | None]:
    return [group.given_id for group in batch.groups]


async def states(services: Services) -> list[LeaseState]:
    return [lease.state for lease in (await services.runs.atropos.view(RUN)).leases]


async def run_out(redis: Redis) -> None:
    """Let the leases of batches in trainers' hands run out."""
    await redis.hincrby(RunKeys(RUN).run, "clock_ms", 1000 * int(LEASE_S))  # type: ignore[misc]


def test_every_end_of_a_lease_has_words() -> None:
    assert HOW_IT_ENDED.keys() == {*get_args(BatchOutcome), *get_args(SampleOutcome)}


async def test_a_quarantined_batch_may_be_given_back_twice(services: Services, redis_client: Redis) -> None:
    await submit(services, "a", "b")
    poisoned = await take(services)
    await run_out(redis_client)
    assert names(await take(services)) == ["b"]
    for _ in range(2):
        await services.batches.leases.give_back(RUN, poisoned.lease.batch_id, None, "it is sound after all")
    assert names(await take(services)) == ["a"]


@pytest.mark.parametrize("first", ["ack", "nack by an operator", "rewind"])
async def test_an_ack_under_the_last_lease_ends_a_quarantine_unless_it_comes_too_late(
    services: Services, redis_client: Redis, first: str
) -> None:
    await submit(services, "a", "b")
    late, leases = (await take(services)).lease, services.batches.leases
    await run_out(redis_client)
    await take(services)
    if first == "nack by an operator":
        await leases.give_back(RUN, late.batch_id, None, None)
    if first == "rewind":
        await services.batches.retention.rewind(RUN, 0)
    if first == "ack":
        for _ in range(2):
            await leases.acknowledge(RUN, late.batch_id, late.lease_id)
        assert await states(services) == ["held"]
        return
    with pytest.raises(LeaseLost):
        await leases.acknowledge(RUN, late.batch_id, late.lease_id)


async def test_a_late_ack_for_a_batch_of_a_former_size_blames_no_nack(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await services.runs.administration.create(RUN, config(2), Policy())
    await submit(services, "a")
    late = (await take(services)).lease
    await services.runs.administration.change(RUN, {"batch_size": 4})
    await run_out(redis_client)
    assert (await services.batches.dispatch.take(RUN, BatchRequest())).batch is None
    with pytest.raises(LeaseLost, match="was put back"):
        await services.batches.leases.acknowledge(RUN, late.batch_id, late.lease_id)


async def test_the_last_lease_of_a_quarantined_batch_neither_gives_it_back_nor_extends(
    services: Services, redis_client: Redis
) -> None:
    await submit(services, "a", "b")
    late, leases = (await take(services)).lease, services.batches.leases
    await run_out(redis_client)
    await take(services)
    with pytest.raises(LeaseLost, match=r"its lease ran out \(delivery 1\)"):
        await leases.give_back(RUN, late.batch_id, late.lease_id, None)
    with pytest.raises(LeaseLost, match="quarantined"):
        await leases.extend(RUN, late.batch_id, late.lease_id, LEASE_S)
    assert await states(services) == ["quarantined", "held"]


async def test_a_batch_whose_last_lease_ran_out_is_quarantined_without_a_request(
    process: Callable[..., Process], services: Services, redis_client: Redis
) -> None:
    """Operators look at quarantined batches; a run whose only trainer has died has nobody to ask."""
    await submit(services, "a")
    await take(services)
    _, maintenance = process()
    await maintenance.maintain(RUN)
    assert await states(services) == ["held"]
    await run_out(redis_client)
    await maintenance.maintain(RUN)
    assert await states(services) == ["quarantined"]


async def test_a_rewind_does_not_promise_batches_that_are_quarantined(services: Services, redis_client: Redis) -> None:
    await submit(services, "a", "b")
    await take(services)
    await run_out(redis_client)
    second = await take(services)
    rewound = await services.batches.retention.rewind(RUN, 0)
    assert [lease.batch_id for lease in rewound.batches] == [second.lease.batch_id]
    assert [lease.step for lease in rewound.quarantined] == [1]


async def test_a_rewind_deletes_no_batch_that_is_to_come_back(services: Services, redis_client: Redis) -> None:
    """The trainer had acknowledged 2 and 3 before 1, which its state contains, and the run keeps less from now on.

    Who changed that died before the rest was let go.
    """
    await submit(services, "a", "b", "c")
    first, *others = [await take(services) for _ in range(3)]
    for batch in others:
        await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    view = await services.runs.administration.get(RUN)
    policy = view.policy.model_copy(update={"keep_batches": 1})
    assert await RunStore(services.connection, TTL_MS).put(RUN, config(2), policy, view.epoch)
    rewound = await services.batches.retention.rewind(RUN, 1)
    assert [lease.batch_id for lease in rewound.batches] == [batch.lease.batch_id for batch in others]
    assert [names(await take(services)) for _ in others] == [["b"], ["c"]]
    books = await books_of(redis_client, RUN)
    assert len(books["kept"]) == books["delivered"] == 1
    assert first.lease.step == 1


async def test_a_rewind_that_is_refused_ends_no_batch(services: Services, redis_client: Redis) -> None:
    await submit(services, "a", "b")
    held = await take(services)
    await services.batches.retention.checkpoint(RUN, 1)
    with pytest.raises(RewindImpossible):
        await services.batches.retention.rewind(RUN, 0)
    await services.batches.leases.acknowledge(RUN, held.lease.batch_id, held.lease.lease_id)


@pytest.mark.parametrize("request_id", ["", "the same"])
async def test_groups_of_a_batch_that_is_dissolved_are_the_oldest_at_once(
    services: Services, redis_client: Redis, request_id: str
) -> None:
    """Their lane was empty when the trainer that asked was looked for a batch."""
    await services.runs.administration.change(RUN, {"max_deliveries": 9})
    await services.groups.native.submit(RUN, [group("old")])
    await services.batches.dispatch.take(RUN, BatchRequest(request_id, LEASE_S))
    await services.groups.native.submit(RUN, [group(name, size=1) for name in ("young", "younger", "youngest")])
    await services.runs.administration.change(RUN, {"batch_size": 3})
    await run_out(redis_client)
    answer = await services.batches.dispatch.take(RUN, BatchRequest(request_id, LEASE_S))
    assert answer.batch is not None
    assert names(answer.batch) == ["old", "young"]


async def test_groups_that_grew_too_old_since_the_last_sweep_are_not_promised(
    services: Services, redis_client: Redis
) -> None:
    await services.runs.administration.change(RUN, {"max_age_s": LEASE_S / 2})
    await submit(services, "a", "b")
    assert (await services.batches.diagnostics.of(RUN)).not_ready is None
    await run_out(redis_client)
    assert (await services.batches.diagnostics.of(RUN)).not_ready is not None
    assert (await books_of(redis_client, RUN))["dropped"] == {"expired": 2}
