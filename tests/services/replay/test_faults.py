"""The replay buffer over a line on which replies get lost, or commands come late: nothing twice, nothing lost."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.core.replay.buffer import Versions
from app.store.redis import scripts
from lachesis.wire.errors import StoreUnavailable
from lachesis.wire.replay import Sampling
from tests.lossy_line import LossyLine
from tests.services.conftest import RUN, Process
from tests.services.replay.moves import KEYS, Buffer, buffer_of, fragment, swept
from tests.waiting import wait_until

PATIENCE_S = 3  # a command that must succeed has as long, also on a busy machine


async def through_a_cut(line: LossyLine, script: str, done: Callable[[], "asyncio.Task[object]"]) -> object:
    """Do something that runs a script whose reply is lost, together with the connection."""
    line.lose_replies_to(calls_of(script))
    lost, task = line.lost, done()
    await wait_until(lambda: line.lost > lost)
    line.heal()
    line.cut()
    async with asyncio.timeout(60):
        return await task


def calls_of(script: str) -> bytes:
    """A pattern of commands that run a script."""
    return scripts.load(script).digest.encode()


@pytest.mark.parametrize("transacts", [True, False])
async def test_replies_that_are_lost_for_a_moment_change_nothing(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str], *, transacts: bool
) -> None:
    """Each command is carried out, and repeated as soon as the connection is there again."""
    line, url = lossy
    buffer = await buffer_of(process(url), redis_client, fragments_per_chunk=2, max_reuse=1)
    buffer.process[0].connection.transacts = transacts

    stored = await through_a_cut(line, "insert_fragments", lambda: asyncio.create_task(buffer.put(0, 1, 2)))
    assert stored == ["stored"] * 3
    sample = await through_a_cut(line, "take_sample", lambda: asyncio.create_task(buffer.take(1)))
    books = await swept(buffer)
    assert (books.total("samples"), len(books.samples)) == (1, 1)
    await through_a_cut(line, "end_sample", lambda: asyncio.create_task(buffer.ack(sample)))  # type: ignore[arg-type]
    books = await swept(buffer)
    assert (books.total("retired:used_up"), len(books.fragments)) == (1, 1)


@pytest.mark.parametrize("late", [False, True])
async def test_an_insertion_that_was_never_confirmed_is_recognised_when_it_is_sent_again(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str], *, late: bool
) -> None:
    """Return whether Redis did it at once, or after its sender had given up and sent it again."""
    line, url = lossy
    buffer = await buffer_of(process(url, store_patience_s=PATIENCE_S), redis_client, fragments_per_chunk=2)
    other = await buffer_of(process(), redis_client, fragments_per_chunk=2)
    (line.hold if late else line.lose_replies_to)(calls_of("insert_fragments"))
    with pytest.raises(StoreUnavailable):
        await buffer.put(0, 1)
    line.heal()
    expected = "stored" if late else "repeated"
    assert await other.put(0, 1) == [expected] * 2
    if late:
        await line.deliver_late()
    books = await swept(other)
    assert (len(books.chunks), books.total("accepted_fragments")) == (1, 2)


async def test_an_unconfirmed_sample_is_handed_out_again_to_the_same_request(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str]
) -> None:
    line, url = lossy
    buffer = await buffer_of(process(url, store_patience_s=PATIENCE_S), redis_client)
    await buffer.put(0, 1, 2)
    line.lose_replies_to(calls_of("take_sample"))
    with pytest.raises(StoreUnavailable):
        await buffer.take(2, request_id="step-1")
    line.heal()
    sample = await buffer.take(2, request_id="step-1")
    assert (await swept(buffer)).samples.keys() == {sample.lease.batch_id}


async def test_fragments_of_one_worker_through_two_processes_at_once_are_all_there(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    buffers: list[Buffer] = [await buffer_of(process(), redis_client, fragments_per_chunk=3) for _ in range(2)]
    sent = [buffers[number % 2].process[0].replay.insertion.insert("run", [fragment(number)]) for number in range(30)]
    receipts = await asyncio.gather(*sent)
    assert {receipt.outcome for (receipt,) in receipts} == {"stored"}
    books = await swept(buffers[0])
    assert sorted(books.at("sampleable")) == list(range(0, 30, 3))


async def test_a_crash_while_the_version_goes_down_leaves_nobody_later_versions(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str]
) -> None:
    """The version is set and nothing is swept yet: no order says which chunks are partly of later versions."""
    line, url = lossy
    dying = await buffer_of(process(url, store_patience_s=PATIENCE_S), redis_client)
    other = await buffer_of(process(), redis_client)
    await other.set_version(3)
    mixed = [replace(fragment(number), versions=Versions(1, 2.0, 3, 2)) for number in range(2)]
    await other.process[0].replay.insertion.insert(RUN, [*mixed, fragment(2, version=2), fragment(3, version=3)])
    line.hold(b"HSCAN|" + calls_of("retire_chunks"))
    with pytest.raises(StoreUnavailable):
        await dying.set_version(2)
    drawn = [record.fragment.number for record in (await other.take(1, sampling={"strategy": "fifo"})).records]
    assert drawn == [2], "no sample has a chunk of later versions, though none is retired yet"
    await other.pass_time(1)
    books = await swept(other)
    assert (books.at("sampleable"), books.total("retired:future_version")) == ([2], 3)


async def test_an_insert_during_a_review_of_chunks_is_checked_by_its_own_version(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str]
) -> None:
    line, url = lossy
    slow = await buffer_of(process(url), redis_client)
    other = await buffer_of(process(), redis_client)
    await other.put(0, 1)
    line.hold(b"HSCAN|ZRANGEBYSCORE")
    looking = asyncio.create_task(slow.configure(sampling=Sampling(alpha=1.0)))
    await wait_until(lambda: _holds(line))
    await other.set_version(1)
    await other.put(2, version=1)
    line.heal()
    await line.deliver_late()
    await looking
    assert (await swept(other)).at("sampleable") == [0, 1, 2]


async def _holds(line: LossyLine) -> bool:
    return line.holds


async def test_what_snapshots_go_through_is_done_once_though_replies_to_it_are_lost(
    process: Callable[..., Process], redis_client: Redis, lossy: tuple[LossyLine, str]
) -> None:
    """Restored once: what is inserted before the repetition is not lost with it."""
    line, url = lossy
    buffer, other = await buffer_of(process(url), redis_client), await buffer_of(process(), redis_client)
    snapshots = buffer.process[0].replay.snapshots
    await buffer.put(0)
    await through_a_cut(line, "take_snapshot", lambda: asyncio.create_task(snapshots.take("run", "a")))
    await buffer.put(1)
    await through_a_cut(line, "prepare_snapshot", lambda: asyncio.create_task(snapshots.restore("run", "a")))
    books = await swept(other)
    assert (books.at("sampleable"), len(books.saved)) == ([0], 1)

    before = await redis_client.hget(KEYS.replay, "restored")  # type: ignore[misc]

    async def done() -> bool:
        return bool(await redis_client.hget(KEYS.replay, "restored") != before)  # type: ignore[misc]

    line.lose_replies_to(calls_of("restore_snapshot"))
    restored = asyncio.create_task(snapshots.restore("run", "a"))
    await wait_until(done)
    assert await other.put(1, 2) == ["stored"] * 2
    line.heal()
    line.cut()
    await restored
    assert (await swept(other)).at("sampleable") == [0, 1, 2]
    await through_a_cut(line, "drop_snapshot", lambda: asyncio.create_task(snapshots.drop("run", "a")))
    await through_a_cut(line, "delete_replay", lambda: asyncio.create_task(snapshots.delete_buffer("run")))
    assert (await swept(other)).totals == {}
