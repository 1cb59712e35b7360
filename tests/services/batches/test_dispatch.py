"""Whatever happens to a batch on its way out, any process hands it out again, or it is acknowledged."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.api.codec.group_json import decode_native_json
from app.api.deps import Services
from app.core.environments.registration import RegistrationRequest
from app.core.ranks.requests import ShardRequest
from app.core.ranks.sharding import ShardingSpec
from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest, OutgoingBatch
from app.store.redis import scripts
from app.store.redis.keys import RunKeys
from lachesis.wire.errors import LeaseLost, StoreUnavailable
from tests.lossy_line import LossyLine
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded, join, marks
from tests.services.run_bodies import as_json
from tests.services.run_model import Group
from tests.waiting import wait_until

COMMIT = scripts.load("commit_batch").digest.encode()
DISCARD = scripts.load("discard_batch").digest.encode()
CLAIM = rb'"returned".*"sending"'
MARK_SENT = rb'"sending".*"sent"'
MARK_RETURNED = rb'"sending".*"returned"'
PATIENCE_S = 1.0

Line = tuple[LossyLine, str]


@pytest.mark.parametrize("lost", [COMMIT, CLAIM])
@pytest.mark.parametrize("late", [False, True])
async def test_a_batch_whose_taking_was_never_confirmed_is_served_again(
    process: Callable[..., Process], redis_client: Redis, lossy: Line, lost: bytes, late: bool
) -> None:
    """Redis took it out of the queue, at once or after we had given up, and we never heard."""
    line, url = lossy
    services, _ = process(url, store_patience_s=PATIENCE_S)
    await services.runs.atropos.register(RUN, config(2))
    await services.groups.atropos.submit(RUN, [encoded(2, 1)])
    if lost == CLAIM:
        broken = await services.batches.dispatch.take(RUN)
        assert broken.batch is not None
        await services.batches.atropos_delivery.break_off(RUN, broken.batch)
    (line.hold if late else line.lose_replies_to)(lost)
    with pytest.raises(StoreUnavailable):
        await services.batches.dispatch.take(RUN)
    line.heal()
    if late:
        await line.deliver_late()
    answer = await services.batches.dispatch.take(RUN)
    assert marks(answer) == [1]
    assert answer.batch is not None
    assert answer.batch.lease.delivery_count > 1, "and says so"
    await services.batches.atropos_delivery.finish(RUN, answer)
    await services.batches.atropos_delivery.finish(RUN, await services.batches.dispatch.take(RUN))
    assert (await books_of(redis_client, RUN))["delivered"] == 1


async def test_what_one_process_lost_on_its_way_another_serves(process: Callable[..., Process], lossy: Line) -> None:
    """The other one sees that the sender lives, and leaves the batch alone until the sender says it has lost it."""
    line, url = lossy
    services, maintenance = process(url, store_patience_s=PATIENCE_S)
    other, _ = process()
    await services.runs.atropos.register(RUN, config(2))
    await services.groups.atropos.submit(RUN, [encoded(2, 1)])
    line.lose_replies_to(COMMIT)
    with pytest.raises(StoreUnavailable):
        await services.batches.dispatch.take(RUN)
    line.heal()
    assert (await other.batches.dispatch.take(RUN)).batch is None
    await maintenance.maintain(RUN)
    assert marks(await other.batches.dispatch.take(RUN)) == [1]


async def test_dropping_a_batch_again_after_a_lost_answer_is_no_error(
    process: Callable[..., Process], redis_client: Redis, lossy: Line
) -> None:
    line, url = lossy
    services, _ = process(url)
    await services.runs.administration.create(RUN, config(2), Policy(max_deliveries=1))
    await services.groups.native.submit(RUN, [encoded(2, 1)._replace(given_id="a")])
    batch = (await services.batches.dispatch.take(RUN, BatchRequest(lease_s=0.001))).batch
    assert batch is not None
    assert (await services.batches.dispatch.take(RUN, BatchRequest())).batch is None, "it is quarantined"
    line.lose_replies_to(DISCARD)
    dropping = asyncio.create_task(services.batches.leases.discard(RUN, batch.lease.batch_id))

    async def dropped() -> bool:
        return not await redis_client.exists(RunKeys(RUN).leases)

    await wait_until(dropped)
    line.heal()
    line.cut()
    await dropping
    assert (await books_of(redis_client, RUN))["dropped"] == {"quarantined": 1}


async def test_a_batch_that_is_being_sent_is_left_alone(process: Callable[..., Process]) -> None:
    """By who sends it, in a request or in passing, and by others; however long it takes."""
    services, maintenance = process()
    other, _ = process()
    await services.runs.atropos.register(RUN, config(2))
    await services.groups.atropos.submit(RUN, [encoded(2, 1)])
    answer = await services.batches.dispatch.take(RUN)
    await maintenance.maintain(RUN)
    assert (await services.batches.dispatch.take(RUN)).batch is None
    assert (await other.batches.dispatch.take(RUN)).batch is None
    await services.batches.atropos_delivery.finish(RUN, answer)
    (lease,) = (await services.runs.atropos.view(RUN)).leases
    assert (lease.state, lease.delivery_count) == ("sent", 1)


async def test_a_batch_that_could_not_be_marked_as_sent_is_served_again(
    process: Callable[..., Process], lossy: Line
) -> None:
    """Its trainer may have it; to serve it twice is allowed, to lose it is not. A mark that comes late is void."""
    line, url = lossy
    services, _ = process(url, store_patience_s=PATIENCE_S)
    await services.runs.atropos.register(RUN, config(2))
    await services.groups.atropos.submit(RUN, [encoded(2, 1)])
    answer = await services.batches.dispatch.take(RUN)
    line.hold(MARK_SENT)
    with pytest.raises(StoreUnavailable):
        await services.batches.atropos_delivery.finish(RUN, answer)
    line.heal()
    again = await services.batches.dispatch.take(RUN)
    assert marks(again) == [1]
    await line.deliver_late()
    (lease,) = (await services.runs.atropos.view(RUN)).leases
    assert (lease.state, lease.delivery_count) == ("sending", 2)


async def test_a_batch_that_could_not_be_marked_as_returned_is_handed_out_again(
    process: Callable[..., Process], lossy: Line
) -> None:
    line, url = lossy
    services, _ = process(url, store_patience_s=PATIENCE_S)
    await services.runs.atropos.register(RUN, config(2))
    await services.groups.atropos.submit(RUN, [encoded(2, 1)])
    answer = await services.batches.dispatch.take(RUN)
    assert answer.batch is not None
    line.hold(MARK_RETURNED)
    with pytest.raises(StoreUnavailable):
        await services.batches.atropos_delivery.break_off(RUN, answer.batch)
    line.heal()
    assert marks(await services.batches.dispatch.take(RUN)) == [1]


@pytest.mark.parametrize("while_", [COMMIT, MARK_SENT])
async def test_a_request_that_is_cancelled_leaves_nothing_on_its_way(
    process: Callable[..., Process], lossy: Line, while_: bytes
) -> None:
    line, url = lossy
    services, _ = process(url)
    await services.runs.atropos.register(RUN, config(2))
    await services.groups.atropos.submit(RUN, [encoded(2, 1)])
    line.lose_replies_to(COMMIT) if while_ == COMMIT else line.hold(MARK_SENT)

    async def ask() -> None:
        await services.batches.atropos_delivery.finish(RUN, await services.batches.dispatch.take(RUN))

    asking = asyncio.create_task(ask())
    await asyncio.wait({asking}, timeout=0.3)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    line.heal()
    assert marks(await services.batches.dispatch.take(RUN)) == [1]


async def test_a_batch_that_was_returned_while_its_commit_was_repeated_is_not_sent_twice(
    process: Callable[..., Process], redis_client: Redis, lossy: Line
) -> None:
    """A trainer registers between a commit whose reply is lost and its repetition: only it gets the batch."""
    line, url = lossy
    services, _ = process(url)
    other, _ = process()
    await services.runs.atropos.register(RUN, config(2))
    await services.groups.atropos.submit(RUN, [encoded(2, 1)])
    line.lose_replies_to(COMMIT)
    asking = asyncio.create_task(services.batches.dispatch.take(RUN))

    async def committed() -> bool:
        return bool(await redis_client.hlen(RunKeys(RUN).leases))

    await wait_until(committed)
    await other.runs.atropos.register(RUN, config(2))
    successor = await other.batches.dispatch.take(RUN)
    assert marks(successor) == [1]
    line.heal()
    line.cut()
    answer = await asyncio.wait_for(asking, 60)
    assert answer.batch is None


async def test_a_batch_served_again_says_still_whether_it_is_relaxed(process: Callable[..., Process]) -> None:
    services, _ = process(relax_after_s=0)
    await services.runs.atropos.register(RUN, config(8))
    await services.batches.dispatch.take(RUN)
    environments = []
    for n in range(3):
        registered = await services.environments.registry.register_environment(
            RUN, RegistrationRequest(f"env{n}", 4, 512, 1.0, 0.3)
        )
        assert registered is not None
        environments.append(registered[0].environment)
    for mark, environment in enumerate(environments):
        await services.groups.atropos.submit(RUN, [encoded(4, mark, environment)])
    first = await services.batches.dispatch.take(RUN)
    assert first.batch is not None
    assert first.batch.lease.relaxed
    await services.batches.atropos_delivery.break_off(RUN, first.batch)
    await services.runs.atropos.register(RUN, config(8))
    again = await services.batches.dispatch.take(RUN)
    assert again.batch is not None
    assert again.batch.payloads == first.batch.payloads
    assert again.batch.lease.relaxed


async def test_groups_that_leave_while_a_batch_is_relaxed_are_no_error(process: Callable[..., Process]) -> None:
    """Another process takes groups between the two looks at the run: at its counts, and at its oldest groups."""
    services, _ = process(relax_after_s=0)
    other, _ = process(relax_after_s=0)
    await services.runs.administration.create(RUN, config(8), Policy())
    for name, size in (("math", 3), ("code", 5)):
        membership = await join(services, name, group_size=size, min_share=0.5)
        group = encoded(size, size, membership.environment)._replace(given_id=name)
        await services.groups.native.submit(RUN, [group])
    counted = await services.runs.atropos.view(RUN)
    taken = await other.batches.dispatch.take(RUN, BatchRequest("", 60))
    assert taken.batch is not None
    assert taken.batch.lease.relaxed
    decision = await services.batches.dispatch.plan_next(RUN, counted)
    assert decision is not None
    assert decision.not_ready is not None
    assert decision.not_ready.missing_sequences == 8


async def test_a_trainer_that_waits_keeps_its_run_awake(process: Callable[..., Process], redis_client: Redis) -> None:
    """A run without environments would sleep, and its history would not say what the trainer waits for."""
    services, maintenance = process()
    await services.runs.administration.create(RUN, config(4), Policy())

    async def waits() -> int:
        answer = await services.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))
        assert answer.not_ready is not None
        return int(await redis_client.hget(RunKeys(RUN).run, "waited_ms"))  # type: ignore[misc, arg-type]

    await maintenance.maintain(RUN)
    assert await redis_client.hexists(RunKeys(RUN).run, "asleep_ms")  # type: ignore[misc]
    noted_ms = await waits()
    await maintenance.maintain(RUN)
    assert not await redis_client.hexists(RunKeys(RUN).run, "asleep_ms")  # type: ignore[misc]
    assert await waits() == noted_ms, "it is noted once in ten seconds"
    await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", 10_000)  # type: ignore[misc]
    assert await waits() >= noted_ms + 10_000


async def test_a_trainer_whose_reply_broke_off_has_ten_seconds_from_then(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """A large batch may be sent for longer than that before its reply breaks off."""
    services, _ = process()
    await services.runs.administration.create(RUN, config(2), Policy())
    await services.groups.native.submit(RUN, [encoded(2, 1)._replace(given_id="one")])
    taken = (await services.batches.dispatch.take(RUN, BatchRequest(lease_s=600.0))).batch
    assert taken is not None
    await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", 60_000)  # type: ignore[misc]
    await services.batches.dispatch.let_expire(RUN, taken)
    (lease,) = (await services.runs.administration.get(RUN)).leases
    assert taken.view.clock_ms + 60_000 + 10_000 <= lease.deadline_ms < taken.lease.deadline_ms


async def test_a_lease_that_ends_soon_does_not_last_longer_because_its_reply_broke_off(
    process: Callable[..., Process],
) -> None:
    services, _ = process()
    await _set_up(services)
    taken = await _taken(services, BatchRequest(lease_s=9.0))
    await services.batches.dispatch.let_expire(RUN, taken)
    (lease,) = (await services.runs.administration.get(RUN)).leases
    assert lease.deadline_ms == taken.lease.deadline_ms


OF_A_TRAINER = BatchRequest("first", 600.0)
OF_A_RANK = BatchRequest(lease_s=600.0, shard_request=ShardRequest(0, ShardingSpec(2)))


async def _set_up(services: Services) -> None:
    """Make a run with groups for one batch."""
    await services.runs.administration.create(RUN, config(2), Policy())
    body = as_json([Group("one", 2, None, None, 0)])
    await services.groups.native.submit(RUN, decode_native_json(body))


async def _taken(services: Services, request: BatchRequest) -> OutgoingBatch:
    batch = (await services.batches.dispatch.take(RUN, request)).batch
    assert batch is not None
    return batch


async def test_returned_batches_are_for_those_who_wait_one_for_each_trainer(process: Callable[..., Process]) -> None:
    """The ranks of a trainer share one. Who comes later leaves them to those who wait."""
    services, _ = process()
    dispatch = services.batches.dispatch
    await _set_up(services)
    await services.groups.native.submit(RUN, decode_native_json(as_json([Group("two", 2, None, None, 0)])))
    for batch in [await _taken(services, BatchRequest(name, 600.0)) for name in ("first", "second")]:
        await dispatch.hand_on(RUN, batch)
    whole = BatchRequest("third", 600.0)
    ranks = [BatchRequest(lease_s=600.0, shard_request=ShardRequest(rank, ShardingSpec(2))) for rank in (0, 1)]
    assert await dispatch.due(RUN, [*ranks, whole]) == [0, 1, 2]
    assert await dispatch.due(RUN, [whole] * 3) == [0, 1]
    assert await dispatch.due(RUN, [whole], ahead=True) == []


async def test_ranks_get_a_rewound_batch_that_one_gave_back_though_its_first_reply_was_lost(
    process: Callable[..., Process],
) -> None:
    """Only deliveries that may have reached a trainer count."""
    services, _ = process()
    await _set_up(services)
    await services.groups.native.submit(RUN, decode_native_json(as_json([Group("two", 2, None, None, 0)])))
    await services.batches.dispatch.hand_on(RUN, await _taken(services, _of_rank(0, None)))
    await services.batches.retention.rewind(RUN, 0)
    for after in (None, 1):
        batches = [await _taken(services, _of_rank(rank, after)) for rank in (0, 1)]
        assert [batch.lease.step for batch in batches] == [1 if after is None else 2] * 2
        if after is None:
            first = batches[0].lease
    await services.batches.leases.give_back(RUN, first.batch_id, first.lease_id, "the loss was not finite")
    again = [await _taken(services, _of_rank(rank, 2)) for rank in (0, 1)]
    assert [batch.lease.step for batch in again] == [1, 1]


def _of_rank(rank: int, after: int | None) -> BatchRequest:
    return BatchRequest(lease_s=600.0, shard_request=ShardRequest(rank, ShardingSpec(2), after))


async def test_a_damaged_group_is_no_sign_of_another_process(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """A process that met others waits for its turn, which costs time."""
    services, _ = process()
    await services.runs.administration.create(RUN, config(2), Policy())
    await services.groups.native.submit(RUN, [encoded(2, mark)._replace(given_id=f"{mark}") for mark in range(2)])
    keys = RunKeys(RUN)
    (oldest, _) = await redis_client.zrange(keys.lane("-:2"), 0, -1)
    await redis_client.setrange(keys.payload(oldest.decode()), 3, "?")
    result = await services.batches.long_poll.take(RUN, BatchRequest(), 10.0)
    assert marks(result) == [1]
    assert services.batches.long_poll.blocked == 0
    assert await redis_client.exists(keys.turn) == 0


@pytest.mark.parametrize("ends", ["hand_on", "let_expire"])
@pytest.mark.parametrize("asks", [OF_A_TRAINER, OF_A_RANK], ids=["a trainer", "a rank"])
async def test_a_repeated_request_that_goes_away_takes_no_batch_from_its_trainer(
    process: Callable[..., Process], asks: BatchRequest, ends: str
) -> None:
    """A proxy may repeat a request whose first reply has arrived."""
    services, _ = process()
    await _set_up(services)
    first = await _taken(services, asks)
    again = await _taken(services, asks)
    await getattr(services.batches.dispatch, ends)(RUN, again)
    (lease,) = (await services.runs.administration.get(RUN)).leases
    assert (lease.state, lease.lease_id, lease.deadline_ms) == ("held", first.lease.lease_id, again.lease.deadline_ms)


@pytest.mark.parametrize("ends", ["hand_on", "let_expire"])
@pytest.mark.parametrize("asks", [OF_A_TRAINER, OF_A_RANK], ids=["a trainer", "a rank"])
async def test_a_batch_of_which_no_reply_arrived_goes_to_another_trainer_soon(
    process: Callable[..., Process], redis_client: Redis, asks: BatchRequest, ends: str
) -> None:
    services, _ = process()
    await _set_up(services)
    first = await _taken(services, asks)
    await services.batches.dispatch.let_expire(RUN, first)
    await getattr(services.batches.dispatch, ends)(RUN, await _taken(services, asks))
    (lease,) = (await services.runs.administration.get(RUN)).leases
    assert lease.lease_id == first.lease.lease_id, "its trainer may ask a third time"
    await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", 10_001)  # type: ignore[misc]
    batch = await _taken(services, BatchRequest("other", 600.0))
    assert (batch.lease.batch_id, batch.lease.delivery_count) == (first.lease.batch_id, 2)
    with pytest.raises(LeaseLost):
        await services.batches.leases.acknowledge(RUN, first.lease.batch_id, first.lease.lease_id)
    await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
