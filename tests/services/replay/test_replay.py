"""The replay buffer's use cases over real Redis: in, out, and what is retired in between."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from app.core.replay.buffer import Versions
from app.services.replay import cleanup
from app.services.replay.request import ReplaySampleRequest
from app.store.replay.store import ReplayStore
from lachesis.wire.errors import (
    FragmentExists,
    FragmentNotFound,
    InvalidField,
    LeaseLost,
    ReplayNotFound,
    RunNotFound,
    SampleNotFound,
)
from lachesis.wire.replay import RateLimiter, Sampling
from tests.services.batches.test_round_trips import calls
from tests.services.conftest import RUN, Process
from tests.services.replay.moves import KEYS, Buffer, buffer_of, fragment, swept


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


@pytest.mark.parametrize(("silent_ms", "outcome"), [(60_000, "repeated"), (120_000, "stored")])
async def test_a_silent_worker_is_remembered_for_two_minutes_at_least(
    buffer: Buffer, silent_ms: int, outcome: str
) -> None:
    await buffer.process[0].runs.administration.change(RUN, {"dedup_window_s": 0.0})
    await buffer.configure(fragments_per_chunk=1)
    assert await buffer.put(0) == ["stored"]
    await buffer.pass_time(silent_ms)
    assert await buffer.put(0) == [outcome]


async def test_an_acknowledged_sample_counts_and_one_given_back_does_not(buffer: Buffer) -> None:
    await buffer.configure(max_reuse=2, fragments_per_chunk=1)
    await buffer.put(0, 1)
    first, second = await buffer.take(2), await buffer.take(2)
    assert (await buffer.books()).at("reserved") == [0, 1]
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
    state = await buffer.process[0].replay.buffers.state(RUN)
    assert (state.avg_reuse, state.avg_staleness) == (2.0, 0.0)
    with pytest.raises(SampleNotFound):
        await buffer.process[0].replay.samples.show(RUN, first.lease.batch_id)


async def test_a_trainer_whose_sample_did_not_arrive_has_ten_seconds_to_ask_again(buffer: Buffer) -> None:
    await buffer.put(0, 1, 2, 3)
    samples = buffer.process[0].replay.samples
    lost, kept, extended = [await buffer.take(1, request_id=name, lease_s=600.0) for name in ("lost", "kept", "longer")]
    await samples.extend(RUN, extended.lease.batch_id, extended.lease.lease_id, 700.0)
    short = await buffer.take(1, request_id="short", lease_s=5.0)
    for sample in (lost, kept, extended, short):
        await samples.let_expire(RUN, sample.lease)
    assert (await buffer.take(1, request_id="short", lease_s=0.0)).lease.deadline_ms == short.lease.deadline_ms
    assert (await buffer.take(1, request_id="kept")).lease.lease_id == kept.lease.lease_id
    await buffer.pass_time(10_001)
    held = (await buffer.books()).samples
    assert held.keys() == {kept.lease.batch_id, extended.lease.batch_id}


async def test_a_new_version_retires_what_it_makes_too_old_wherever_that_is(buffer: Buffer) -> None:
    await buffer.configure(max_staleness=1, fragments_per_chunk=1, max_reuse=1)
    await buffer.put(0, 1)
    await buffer.take(1, sampling={"strategy": "fifo"})
    await buffer.set_version(1)
    await buffer.put(2, version=1)
    await buffer.set_version(2)
    books = await buffer.books()
    assert books.at("sampleable") == [2]
    assert books.at("stale") == [0], "a sample holds it still"
    assert books.total("retired:stale") == 2
    assert await buffer.put(3, version=0) == ["stale"]
    assert await buffer.put(4, version=3) == ["future_version"]
    await buffer.set_version(0)
    assert (await buffer.books()).total("retired:future_version") == 1
    assert await buffer.put(4, version=0) == ["stored"]


async def test_a_version_that_goes_down_retires_what_is_even_partly_of_later_ones(buffer: Buffer) -> None:
    await buffer.set_version(3)
    mixed = replace(fragment(0), versions=Versions(1, 2.0, 3, 2))
    await buffer.process[0].replay.insertion.insert(RUN, [mixed, fragment(1, version=1)])
    await buffer.put(2, 3, version=2)
    await buffer.set_version(2)
    assert (await swept(buffer)).at("sampleable") == [2]


async def test_a_session_archives_the_previous_one_until_its_room_is_needed(
    buffer: Buffer,
) -> None:
    replay = buffer.process[0].replay.buffers
    await buffer.configure(max_chunks=2)
    await buffer.put(0, 1, 2, 3, 4)
    assert await replay.set_session(RUN, 1) == 2
    assert await replay.set_session(RUN, 1) == 0
    books = await buffer.books()
    assert (books.at("archived"), books.at("sampleable")) == ([0, 2], [])
    assert books.total("dropped:old_session") == 1, "what waited for a chunk"
    assert [entry.chunk.first for entry in (await replay.chunks(RUN, place="archived")).chunks] == [0, 2]
    assert await buffer.put(4) == ["old_session"]
    assert await buffer.put(0, session=2) == ["future_session"]
    assert await buffer.put(0, 1, session=1) == ["stored"] * 2
    books = await swept(buffer)
    assert (books.at("archived"), books.at("sampleable")) == ([2], [0])
    assert await replay.delete_chunks(RUN, session=0) == 1
    assert (await swept(buffer)).at("archived") == []
    with pytest.raises(InvalidField):
        await replay.set_session(RUN, 0)


async def test_chunks_of_an_old_session_are_counted_as_such_when_evicted(
    buffer: Buffer,
) -> None:
    await buffer.put(0, 1, 2, 3, 4, 5)
    await buffer.ack(await buffer.take(2))
    held = await buffer.take(3)
    await buffer.process[0].replay.buffers.set_session(RUN, 1)
    state = await buffer.process[0].replay.buffers.state(RUN)
    assert (state.retired, state.avg_reuse) == ({"old_session": 3}, 2 / 3), "from the session on"
    await buffer.configure(max_chunks=2)
    await buffer.put(0, 1, session=1)
    await buffer.ack(held)
    assert (await swept(buffer)).at("archived") == [4]
    state = await buffer.process[0].replay.buffers.state(RUN)
    assert (state.retired, state.avg_reuse) == ({"old_session": 3}, 5 / 3)


async def test_time_retires_old_chunks_gives_up_gaps_and_ends_samples(buffer: Buffer) -> None:
    await buffer.configure(max_age_s=60.0, reorder_window_s=5.0, fragment_ttl_s=30.0)
    await buffer.put(0, 1, 2, 4, 5)
    sample = await buffer.take(1, lease_s=3)
    await buffer.pass_time(4000)
    assert (await buffer.books()).samples == {}, "its lease ran out"
    with pytest.raises(LeaseLost, match="ended because its lease ran out"):
        await buffer.ack(sample)
    await buffer.pass_time(2000)
    books = await buffer.books()
    assert books.at("sampleable") == [0, 4]
    assert (books.total("gaps"), books.total("dropped:gap")) == (1, 1)
    assert await buffer.put(3, 6) == ["late", "stored"]
    assert (await buffer.process[0].replay.buffers.state(RUN)).refused == {"late": 1}
    await buffer.pass_time(31_000)
    assert (await buffer.books()).total("dropped:expired") == 1, "its worker fell silent"
    await buffer.pass_time(30_000)
    books = await swept(buffer)
    assert (books.chunks, books.fragments, books.total("retired:expired")) == ({}, {}, 2)
    await buffer.pass_time(3_600_000)
    assert (await buffer.books()).workers == {}, "and was forgotten"


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"num_fragments": 3}, "num_fragments"),
        ({"num_chunks": 101}, "num_chunks"),
        ({"num_chunks": 0}, "num_chunks"),
        ({"num_chunks": 1, "num_fragments": 2}, "num_chunks"),
        ({"num_chunks": 1, "sampling": {"strategy": "proportional", "alpha": 0.1}}, "alpha"),
    ],
)
async def test_a_sample_that_can_never_be_is_refused(buffer: Buffer, asked: dict[str, Any], field: str) -> None:
    await buffer.configure(max_chunks=100)
    with pytest.raises(InvalidField) as refused:
        await buffer.process[0].replay.samples.take(RUN, ReplaySampleRequest(**asked), 5)
    assert refused.value.location == (field,)


async def test_no_sample_is_ranked_by_weights_that_are_all_the_same(buffer: Buffer) -> None:
    await buffer.configure(sampling=Sampling(alpha=0.0))
    await buffer.put(0, 1)
    assert await buffer.take(1, sampling={"strategy": "rank"})
    with pytest.raises(InvalidField, match="cannot rank chunks") as refused:
        await buffer.take(1, sampling={"strategy": "rank", "alpha": 0.7})
    assert refused.value.location == ("alpha",)


async def test_a_sample_is_shown_again_as_it_was_and_a_repeated_request_gets_it(buffer: Buffer) -> None:
    samples = buffer.process[0].replay.samples
    await buffer.put(*range(8), priority=2.0)
    await buffer.put(*range(8), worker="other", priority=0.5)
    asked = {"request_id": "step-1", "sampling": {"strategy": "proportional"}}
    first = await buffer.take(3, **asked)
    await buffer.process[0].replay.buffers.update_priorities(RUN, {record.chunk_id: 9.0 for record in first.records})
    await buffer.set_version(5)
    again = await buffer.take(3, **asked)
    assert again.records == first.records
    assert again.lease.lease_id == first.lease.lease_id
    assert (await samples.show(RUN, first.lease.batch_id)).records == first.records
    assert await samples.extend(RUN, first.lease.batch_id, first.lease.lease_id, 1000.0) == 1000.0
    with pytest.raises(LeaseLost):
        await samples.extend(RUN, first.lease.batch_id, "another", None)
    await buffer.pass_time(700_000)
    assert (await samples.show(RUN, first.lease.batch_id)).records == first.records
    weights = [record.importance for record in first.records]
    assert max(weights) == 1.0
    assert all(0 < record.probability < 1 for record in first.records)


async def test_a_sample_is_stored_with_totals_and_records_of_earlier_builds_are_read(buffer: Buffer) -> None:
    """Earlier builds stored the counts of all versions, which may be very many."""
    await buffer.configure(fragments_per_chunk=1)
    for number in range(6):
        await buffer.set_version(number)
        await buffer.put(number, version=number)
    sample = await buffer.take(4, sampling={"strategy": "staleness"})
    total = sum(1 / (1 + n) for n in range(6))
    expected = pytest.approx([1 / (1 + record.staleness) / total for record in sample.records])
    assert [record.probability for record in sample.records] == expected
    key, sample_id = KEYS.replay_part("samples"), sample.lease.batch_id
    stored = json.loads(await buffer.redis.hget(key, sample_id))  # type: ignore[misc]
    assert stored["facts"].pop("totals") == {"chunks": 6, "weight": pytest.approx(total), "version": 5}
    versions = {str(number): 1 for number in range(6)}
    stored["facts"]["counts"] = {"chunks": 6, "weight": 0, "powers": {}, "versions": versions, "version": 5}
    await buffer.redis.hset(key, sample_id, json.dumps(stored))  # type: ignore[misc]
    shown = await buffer.process[0].replay.samples.show(RUN, sample_id)
    assert [record.probability for record in shown.records] == expected


async def test_settings_change_while_it_runs_and_chunks_follow(buffer: Buffer) -> None:
    await buffer.configure(fragments_per_chunk=1, sampling=Sampling(strategy="proportional", alpha=1.0))
    await buffer.put(0, priority=4.0)
    await buffer.put(1, priority=0.25)
    for sample in [await buffer.take(2) for _ in range(2)]:
        await buffer.ack(sample)
    await buffer.configure(sampling=Sampling(strategy="proportional", alpha=0.5))
    books = await buffer.books()
    assert [entry.weight for _, entry in sorted(books.chunks.items())] == [2 * 2**20, 2**19]
    await buffer.put(2)
    await buffer.configure(max_reuse=2)
    books = await swept(buffer)
    assert (books.at("sampleable"), books.total("retired:used_up")) == ([2], 2)
    await buffer.put(3, 4)
    await buffer.configure(max_chunks=1)
    assert (await swept(buffer)).at("sampleable") == [4]
    with pytest.raises(InvalidField):
        await buffer.configure(limiter=RateLimiter(samples_per_insert=3.0, min_diff=0.0, max_diff=5.0))


async def test_fewer_fragments_per_chunk_make_chunks_of_what_waits(buffer: Buffer) -> None:
    await buffer.configure(fragments_per_chunk=4)
    await buffer.put(0, 1, 2)
    await buffer.configure(fragments_per_chunk=1)
    books = await swept(buffer)
    assert (books.at("sampleable"), books.total("waiting_fragments")) == ([0, 1, 2], 0)


async def test_a_sweep_of_old_chunks_reads_no_young_ones(buffer: Buffer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of them samples hold."""
    monkeypatch.setattr(cleanup, "_AT_ONCE", 2)
    await buffer.configure(fragments_per_chunk=1, max_reuse=1, max_age_s=1000.0)
    sweep = partial(cleanup.ReplayCleanup(ReplayStore(buffer.process[0].connection)).sweep, RUN)
    reads = []
    for first, last in ((0, 3), (3, 9)):
        await buffer.put(*range(first, last))
        await buffer.take(last - first, lease_s=10_000)
        counted = await calls(buffer.redis, sweep)
        reads.append([counted[name] for name in ("zrange", "hmget")])
    assert reads[0] == reads[1]
    await buffer.pass_time(1_000_001)
    assert (await buffer.books()).at("expired") == list(range(9)), "samples hold them still"


async def test_a_change_of_max_reuse_holds_at_once_for_held_chunks_too(buffer: Buffer) -> None:
    await buffer.configure(fragments_per_chunk=1, max_reuse=1)
    await buffer.put(0, 1)
    held = await buffer.take(1, sampling={"strategy": "fifo"})
    assert ((await swept(buffer)).at("sampleable"), (await swept(buffer)).at("reserved")) == ([1], [0])
    for most, sampleable, reserved in ((2, [0, 1], []), (1, [1], [0]), (None, [0, 1], []), (1, [1], [0])):
        await buffer.configure(max_reuse=most)
        books = await swept(buffer)
        assert (books.at("sampleable"), books.at("reserved")) == (sampleable, reserved)
    await buffer.ack(held)
    assert (await swept(buffer)).total("retired:used_up") == 1


async def test_a_chunk_used_before_its_review_is_ranked_where_it_belongs(
    buffer: Buffer,
) -> None:
    """Of three uses, two are held; of two, counting one of these leaves none open."""
    await buffer.configure(fragments_per_chunk=1, max_reuse=3)
    await buffer.put(0)
    first, second = await buffer.take(1), await buffer.take(1)
    store = ReplayStore(buffer.process[0].connection)
    view = await store.view(RUN)
    assert view is not None
    assert await store.put(RUN, view.settings.model_copy(update={"max_reuse": 2}), 0, 0.0, view.revision, settle=True)
    await buffer.ack(first)
    assert (await swept(buffer)).at("reserved") == [0]
    await buffer.ack(second)
    assert (await swept(buffer)).total("retired:used_up") == 1


async def test_chunks_can_be_looked_at_and_deleted(buffer: Buffer) -> None:
    replay = buffer.process[0].replay.buffers
    for number, priority in enumerate((2.0, 1.0, 3.0)):
        await buffer.put(2 * number, 2 * number + 1, priority=priority)
    await buffer.put(0, 1, worker="other", priority=0.5)
    page = await replay.chunks(RUN, sort="weights", descending=True, limit=3)
    assert [entry.chunk.priority for entry in page.chunks] == [3.0, 2.0, 1.0]
    rest = await replay.chunks(RUN, sort="weights", descending=True, limit=3, cursor=page.cursor)
    assert [(entry.chunk.worker, rest.cursor) for entry in rest.chunks] == [("other", None)]
    assert len((await replay.chunks(RUN, worker="w")).chunks) == 3
    assert await replay.delete_chunks(RUN, worker="w", version=7) == 0
    assert await replay.delete_chunks(RUN, worker="w") == 3
    assert [entry.chunk.worker for entry in (await swept(buffer)).chunks.values()] == ["other"]


async def test_a_fragment_is_read_as_it_was_sent_or_not_at_all(buffer: Buffer) -> None:
    replay = buffer.process[0].replay.buffers
    first, second = await buffer.insert(0, 1)
    assert first.fragment_id is not None
    assert second.fragment_id is not None
    found = await replay.fragments(RUN, [second.fragment_id, first.fragment_id])
    assert [(entry.number, bytes(payload)) for entry, payload in found] == [
        (1, bytes(fragment(1).payload)),
        (0, bytes(fragment(0).payload)),
    ]
    await buffer.redis.setrange(KEYS.payload(first.fragment_id), 3, "?")
    for gone in (first.fragment_id, "none"):
        with pytest.raises(FragmentNotFound):
            await replay.fragments(RUN, [gone])


async def test_the_state_says_what_there_is_and_how_it_went(buffer: Buffer) -> None:
    replay = buffer.process[0].replay.buffers
    empty = await replay.state(RUN)
    assert (empty.avg_reuse, empty.avg_staleness, empty.fragments_per_s, empty.workers) == (None, None, 0.0, ())
    await buffer.put(0, 1, 2)
    await buffer.set_version(3)
    await buffer.ack(await buffer.take(1))
    await buffer.pass_time(10_000)
    state = await replay.state(RUN)
    assert (state.avg_staleness, state.versions, state.uses) == (3.0, {0: 1}, {1: 1})
    assert (state.accepted_fragments, state.chunk_fragments, state.waiting_fragments) == (3, 2, 1)
    (worker,) = state.workers
    assert (worker.worker, worker.next_number, worker.accepted_fragments) == ("w", 3, 3)
    assert worker.fragments_per_s == state.fragments_per_s > 0
    for missing in (replay.state("nobody"), replay.delete_chunks("nobody"), replay.configure("nobody", {})):
        with pytest.raises((ReplayNotFound, RunNotFound)):
            await missing


async def test_the_same_seed_gives_the_same_samples(process: Callable[..., Process], redis_client: Redis) -> None:
    drawn = []
    for _ in range(2):
        await redis_client.flushall()
        buffer = await buffer_of(process(), redis_client, seed=17)
        await buffer.put(*range(50))
        drawn.append([[record.chunk_id for record in (await buffer.take(4)).records] for _ in range(3)])
    assert drawn[0] == drawn[1]
    assert len({tuple(chunks) for chunks in drawn[0]}) == 3


async def test_thousands_of_chunks_are_written_whole(process: Callable[..., Process], redis_client: Redis) -> None:
    """What one command would have more words of than a script can give it goes in several."""
    buffer = await buffer_of(process(), redis_client, max_reuse=1)
    await buffer.put(*range(4100))
    sample = await buffer.take(4100)
    reserved, order = KEYS.replay_part("reserved"), KEYS.replay_part("order")
    assert (await redis_client.zcard(reserved), await redis_client.zcard(order)) == (4100, 0)
    await buffer.nack(sample)
    assert (await redis_client.zcard(reserved), await redis_client.zcard(order)) == (0, 4100)
