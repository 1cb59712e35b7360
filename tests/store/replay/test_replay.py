"""The replay buffer's scripts: all or nothing, safe to run twice, and each decided on what still is so."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import get_args

import pytest

from app.core.replay.buffer import ReplayContext, uses_open
from app.core.replay.sampling import ChunkDraw, ChunkTotals
from app.core.runs.counters import Trained
from app.store.redis.keys import RunKeys
from app.store.replay.entries import chunk_key
from app.store.replay.samples import DrawnOn, Limits, Missed
from lachesis.wire.replay import Eviction, Sampling
from lachesis.wire.states import ARCHIVED
from tests.core.replay.retention import acknowledge, give_back, make_room, reserve
from tests.services.replay.moves import fragment
from tests.store.conftest import LASTING_MS, RUN, Store
from tests.store.replay.moves import keys_of, lease, replay_moves

KEYS = RunKeys(RUN)


async def test_an_insertion_may_be_repeated_whatever_happened_since(store: Store) -> None:
    """A connection repeats it after a lost reply, with payloads. Chunks retired in between are not brought back."""
    moves = await replay_moves(store, fragments_per_chunk=2)
    insertion, _, view = await moves.plan(fragment(0), fragment(1), fragment(2))
    for _ in range(2):
        assert await moves.replay.insert(RUN, insertion, view) == "inserted"
    books = await moves.books()
    assert (len(books.chunks), len(books.fragments)) == (1, 3)
    await moves.insert(fragment(3))
    assert await moves.replay.insert(RUN, insertion, view) == "outdated", "another fragment came since"
    assert len((await moves.books()).fragments) == 4
    assert await moves.replay.retire(RUN, "stale", [chunk_key(1)]) == 1
    assert await moves.replay.insert(RUN, insertion, view) == "outdated"
    await store.garbage.delete_marked(RUN)
    books = await moves.books()
    assert sorted(one.number for one in books.fragments.values()) == [2, 3]
    assert await store.payloads() == books.fragments.keys()


@pytest.mark.parametrize("transacts", [True, False])
async def test_payloads_that_were_announced_first_are_indexed_and_announced_no_more(
    store: Store, *, transacts: bool
) -> None:
    moves = await replay_moves(store)
    store.connection.transacts = transacts
    insertion, _, view = await moves.plan(fragment(0))
    for _ in range(2):
        assert await moves.replay.insert(RUN, insertion, view) == "inserted"
    assert await store.redis.zcard(KEYS.unreferenced) == 0
    assert len((await moves.books()).fragments) == 1


async def test_a_payload_that_is_or_may_soon_be_deleted_is_not_indexed(store: Store) -> None:
    moves = await replay_moves(store)
    store.connection.transacts = False
    insertion, _, view = await moves.plan(fragment(0))
    await store.redis.zadd(KEYS.unreferenced, {insertion.fragments[0].fragment_id: -1})
    assert await moves.replay.insert(RUN, insertion, view) == "outdated"
    await store.garbage.delete_marked(RUN)
    assert (await moves.books()).fragments == {}
    assert await store.payloads() == set()


async def test_a_used_chunk_comes_back_to_its_place_among_the_most_used(store: Store) -> None:
    moves = await replay_moves(store, max_reuse=2)
    await moves.insert(fragment(0), fragment(1))
    keys_of(await moves.take(1))
    assert await moves.end("acknowledged")
    keys_of(await moves.take(1, sample_id="other"))
    assert (await moves.books()).at("reserved") == [1]
    assert await moves.end("expired", "other")
    await moves.books()
    assert await moves.replay.candidates(RUN, "most_used", 2) == [chunk_key(2), chunk_key(1)]


async def test_of_two_that_have_fragments_of_one_worker_one_looks_again(store: Store) -> None:
    moves = await replay_moves(store)
    plans = [await moves.plan(fragment(number)) for number in range(2)]
    words = await asyncio.gather(*(moves.replay.insert(RUN, insertion, view) for insertion, _, view in plans))
    assert sorted(words) == ["inserted", "outdated"]
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == (await moves.books()).fragments.keys()


@pytest.mark.parametrize("moved", ["version", "session", "configuration"])
async def test_what_was_decided_on_a_run_that_has_changed_changes_nothing(store: Store, moved: str) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    insertion, _, view = await moves.plan(fragment(1))
    if moved == "version":
        await store.runs.set_policy_version(RUN, 3, Trained(), 0)
    else:
        settings = view.settings if moved == "session" else view.settings.model_copy(update={"max_chunks": 7})
        session = 1 if moved == "session" else 0
        assert await moves.replay.put(RUN, settings, session, 0.0, view.revision, settle=False)
    before = await moves.books()
    assert await moves.replay.insert(RUN, insertion, view) == "outdated"
    missed = await moves.take(0, view=view)
    assert not hasattr(missed, "chunks")
    assert replace(await moves.books()) == before


async def test_nothing_is_left_of_an_insertion_into_a_run_that_was_removed(store: Store) -> None:
    moves = await replay_moves(store)
    insertion, _, view = await moves.plan(fragment(0))
    await store.runs.reset(RUN, "token")
    await store.garbage.delete_marked(RUN)
    await store.redis.delete(KEYS.run)
    assert await moves.replay.insert(RUN, insertion, view) == "outdated"
    assert await moves.replay.retire(RUN, "stale", [chunk_key(1)]) == 0
    assert (await store.tick()).unreferenced, "somebody looks after what was written for nothing"
    await store.garbage.delete_marked(RUN)
    assert await store.runs.forget(RUN)
    assert await store.redis.keys("*") == []


async def test_a_draw_beyond_its_range_gives_no_chunk(store: Store) -> None:
    """Chunks may leave a range after they were counted. The next ones have another probability."""
    moves = await replay_moves(store)
    await moves.insert(fragment(0), fragment(1))
    draws = [ChunkDraw("order", 0, 1, 1), ChunkDraw("order", 0, 1, 0)]  # one chunk is in the range
    limits = Limits(oldest_version=0, oldest_ms=0, most_samples=None)
    drawn_on = DrawnOn(Sampling(), ChunkTotals(2))
    taken = await moves.samples.take(RUN, lease("sample"), 1, await moves.view(), drawn_on, draws, 1, limits)
    assert keys_of(taken) == [chunk_key(1)]


async def test_a_sample_serves_the_demand_for_one_as_large_and_for_none_larger(store: Store) -> None:
    """A demand lets inserts pass the rate limiter while a trainer waits."""
    moves = await replay_moves(store)
    await moves.insert(*map(fragment, range(4)))
    await moves.replay.note_demand(RUN, 3, (await store.view()).clock_ms + LASTING_MS)
    keys_of(await moves.take(0, sample_id="small"))
    assert (await moves.view()).demand[0] == 3
    keys_of(await moves.take(1, 2, 3, sample_id="large"))
    assert (await moves.view()).demand[0] == 0


async def test_a_chunk_twice_drawn_is_taken_once_and_who_is_short_takes_nothing(store: Store) -> None:
    moves = await replay_moves(store)
    await moves.insert(*(fragment(number) for number in range(3)))
    before = await moves.books()
    missed = await moves.take(1, 1)
    assert (missed.why, len(missed.found)) == ("short", 1)  # type: ignore[union-attr]
    assert await moves.books() == before
    assert keys_of(await moves.take(2, 0)) == [chunk_key(3), chunk_key(1)]


async def test_a_sample_taken_twice_under_one_id_is_the_same_sample(store: Store) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0), fragment(1))
    view = await moves.view()
    first = await moves.take(0, 1, view=view)
    assert await moves.take(0, 1, view=view) == first
    books = await moves.books()
    assert (books.total("samples"), books.total("draws")) == (2, 1)


async def test_two_samples_are_not_drawn_with_the_same_randomness(store: Store) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0), fragment(1))
    view = await moves.view()
    keys_of(await moves.take(0, view=view))
    missed = await moves.take(1, view=view, sample_id="other")
    assert missed.why == "outdated"  # type: ignore[union-attr]


async def test_a_sample_ends_once(store: Store) -> None:
    moves = await replay_moves(store, max_reuse=2)
    await moves.insert(fragment(0))
    keys_of(await moves.take(0))
    assert [await moves.end("acknowledged"), await moves.end("given_back")] == [True, False]
    end = await moves.samples.end_of(RUN, "sample")
    assert end is not None
    assert (end.outcome, end.lease_id) == ("acknowledged", "lease")
    books = await moves.books()
    assert [(entry.chunk.uses, entry.chunk.reserved) for entry in books.chunks.values()] == [(1, 0)]
    assert await moves.samples.lease(RUN, "sample") is None
    assert await moves.samples.change(RUN, lease("sample"), replace(lease("sample"), deadline_ms=5)) is False


async def test_what_a_sample_holds_stays_until_it_ends_however_it_was_retired(store: Store) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0), fragment(1))
    keys_of(await moves.take(0, 1))
    assert await moves.replay.retire(RUN, "stale", [chunk_key(1), chunk_key(2)]) == 2
    assert await moves.replay.retire(RUN, "stale", [chunk_key(1)]) == 0
    await store.garbage.delete_marked(RUN)
    assert len(await store.payloads()) == 2
    assert await moves.end("acknowledged")
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == set()
    assert (await moves.books()).total("retired_uses") == 2, "the uses it had in the end count"


async def test_a_retired_chunk_that_a_sample_holds_is_not_placed_again(store: Store) -> None:
    """A process that looks chunks over may have read it before it was retired."""
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    keys_of(await moves.take(0))
    assert await moves.replay.retire(RUN, "stale", [chunk_key(1)]) == 1
    before = await moves.books()
    await moves.replay.place(RUN, await moves.view(), [chunk_key(1)])
    assert await moves.books() == before


async def test_what_was_decided_on_another_buffer_retires_nothing(store: Store) -> None:
    """A session that was going back to, say, must not be retired by the one that had followed it."""
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    seen, snapshot = await moves.view(), await moves.snapshot("a")
    assert await moves.replay.retire(RUN, ARCHIVED, [chunk_key(1)], seen) == 0
    seen = await moves.view()
    assert await moves.snapshots.prepare(RUN, snapshot)
    assert await moves.snapshots.restore(RUN, snapshot, seen, settle=False)
    assert await moves.replay.retire(RUN, "evicted", [chunk_key(1)], seen) == 0
    assert await moves.replay.retire(RUN, "evicted", [chunk_key(1)], await moves.view()) == 1
    await moves.books()


@pytest.mark.parametrize("bound", ["version", "age", "session", "future"])
async def test_chunks_that_are_not_eligible_are_passed_over_though_nobody_swept_them_yet(
    store: Store, bound: str
) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    view, limits = await moves.view(), {}
    match bound:
        case "version":
            limits = {"oldest_version": 1}
        case "age":
            limits = {"oldest_ms": view.context.clock_ms + 60_000}
        case "session":
            context = ReplayContext(1, view.context.version, view.context.clock_ms)
            view = replace(view, context=context)
        case _:
            await store.runs.set_policy_version(RUN, 5, Trained(), 0)
            await moves.insert(fragment(1, version=5))
            await moves.replay.retire(RUN, "stale", [chunk_key(1)])
            await store.runs.set_policy_version(RUN, 2, Trained(), 5)
            view = await moves.view()
    missed = await moves.take(0, view=view, **limits)
    assert missed.why == "short"  # type: ignore[union-attr]
    await moves.books()


@pytest.mark.parametrize("held", [(), (0, 0, 0, 0), (2, 2), (0, 0, 0, 0, 1, 1)])
@pytest.mark.parametrize("eviction", get_args(Eviction))
async def test_who_goes_for_a_newcomer_is_whom_the_rule_names(
    store: Store, eviction: Eviction, held: Sequence[int]
) -> None:
    """`make_room` over all chunks is the oracle of what the script does with the first few of an order.

    Samples hold all uses that are left of some of them, which makes no difference.
    """
    moves = await replay_moves(store, max_chunks=5, max_bytes=150, eviction=eviction, max_reuse=4)
    priorities = (3.0, 1.0, 2.0, 1.0, 5.0)
    for number, priority in enumerate(priorities):
        await moves.insert(fragment(number, priority=priority, size=20 + 5 * (number % 2)))
    for rank, sample_id in ((2, "a"), (2, "b"), (1, "c"), (3, "d")):
        keys_of(await moves.take(rank, sample_id=sample_id))
        assert await moves.end("acknowledged", sample_id)
    await moves.replay.retire(RUN, ARCHIVED, [chunk_key(5)])
    for number, rank in enumerate(held):
        keys_of(await moves.take(rank, sample_id=f"held-{number}"))
    before = await moves.books()
    assert len(before.at("reserved")) == len(set(held))
    insertion, _, view = await moves.plan(fragment(5, size=90))
    (new,) = insertion.chunks
    archived = {entry.chunk.chunk_id for entry in before.chunks.values() if entry.place == ARCHIVED}
    room = make_room(new.chunk, view.held, [entry.chunk for entry in before.chunks.values()], view.settings, archived)
    assert room.enough
    assert len(room.evicted) >= 3
    assert await moves.replay.insert(RUN, insertion, view) == "inserted"
    after = await moves.books()
    gone = {key for key in before.chunks if key not in after.chunks or after.chunks[key].place == "evicted"}
    assert gone == {chunk_key(chunk.chunk_id) for chunk in room.evicted}


@pytest.mark.parametrize("max_reuse", [1, 3, None])
async def test_scripts_reserve_and_count_uses_as_the_rules_say(store: Store, max_reuse: int | None) -> None:
    """The rules over one chunk are the oracle of what the scripts do to each of a sample."""
    rnd = Random(5)
    moves = await replay_moves(store, max_reuse=max_reuse)
    await moves.insert(*map(fragment, range(4)))
    chunks = {key: entry.chunk for key, entry in (await moves.books()).chunks.items()}
    settings = (await moves.view()).settings
    held: dict[str, Sequence[str]] = {}
    outcomes = {"acknowledged": acknowledge, "given_back": give_back, "expired": give_back}
    for step in range(30):
        there = sorted(key for key, chunk in chunks.items() if uses_open(chunk, settings) != 0)
        if there and (not held or rnd.random() < 0.6):
            ranks = rnd.sample(range(len(there)), rnd.randint(1, len(there)))
            held[f"{step}"] = keys_of(await moves.take(*ranks, sample_id=f"{step}"))
            assert held[f"{step}"] == [there[rank] for rank in ranks]
            chunks |= {key: reserve(chunks[key], settings) for key in held[f"{step}"]}
        elif held:
            sample_id, outcome = rnd.choice(sorted(held)), rnd.choice(sorted(outcomes))
            assert await moves.end(outcome, sample_id)
            chunks |= {key: outcomes[outcome](chunks[key]) for key in held.pop(sample_id)}
        chunks = {key: chunk for key, chunk in chunks.items() if max_reuse is None or chunk.uses < max_reuse}
        found = await moves.books()
        assert {key: entry.chunk for key, entry in found.chunks.items()} == chunks


async def test_an_insertion_without_room_or_credit_changes_nothing(store: Store) -> None:
    moves = await replay_moves(store, max_chunks=1)
    await moves.insert(fragment(0))
    insertion, _, view = await moves.plan(fragment(1))
    before = await moves.books()
    assert await moves.replay.insert(RUN, replace(insertion, victims=()), view) == "crowded"
    insertion, _, view = await moves.plan(fragment(1))
    assert await moves.replay.insert(RUN, replace(insertion, most_inserts=1), view) == "blocked"
    missed = await moves.take(0, most_samples=0)
    assert missed.why == "blocked"  # type: ignore[union-attr]
    after = await moves.books()
    assert (after.chunks, after.totals) == (before.chunks, before.totals)


async def test_priorities_move_chunks_and_the_sum_of_weights_with_them(store: Store) -> None:
    moves = await replay_moves(store, max_reuse=1)
    await moves.insert(fragment(0), fragment(1))
    keys_of(await moves.take(0))
    revision = (await moves.view()).revision
    changes = [(1, 0.1, 77, None), (2, 1e-300, 2**52, None), (9, 1.0, 5, None)]
    assert await moves.replay.prioritise(RUN, revision, changes) == [1, 2]
    assert await moves.replay.prioritise(RUN, revision, [(2, 3.0, 5, 4.0)]) == [2]
    assert await moves.replay.prioritise(RUN, "other", changes) is None
    books = await moves.books()
    found = [(entry.chunk.priority, entry.weight) for _, entry in sorted(books.chunks.items())]
    assert found == [(0.1, 77), (1e-300, 2**52)], "and one that had another priority by then keeps it"


async def test_ten_thousand_chunks_need_less_than_a_kilobyte_each_beside_their_payloads(store: Store) -> None:
    moves = await replay_moves(store, max_chunks=20_000, fragments_per_chunk=2)
    facts = json.dumps({"episode_ids": [123456], "reward": 0.5})
    for first in range(0, 20_000, 1000):
        await moves.insert(
            *(replace(fragment(number, worker="worker-17"), facts=facts) for number in range(first, first + 1000))
        )
    parts = [KEYS.replay_part(part) for part in ("chunks", "order", "weights", "versions", "uses", "fragments")]
    sizes = [await store.redis.memory_usage(part, samples=0) for part in parts]
    assert sum(sizes) / 10_000 < 1000, dict(zip(parts, sizes, strict=True))


async def test_a_chunk_that_is_named_twice_goes_once(store: Store) -> None:
    """It was seen in two orders, as it moved from one to the other in between."""
    moves = await replay_moves(store, max_chunks=3)
    await moves.insert(fragment(0), fragment(1), fragment(2))
    insertion, _, view = await moves.plan(fragment(3), fragment(4))
    twice = replace(insertion, victims=(chunk_key(1), chunk_key(1), chunk_key(2)))
    assert await moves.replay.insert(RUN, twice, view) == "inserted"
    assert (await moves.books()).at("sampleable") == [2, 3, 4]
    assert await moves.replay.retire(RUN, "stale", [chunk_key(3), chunk_key(3)]) == 1
    assert (await moves.books()).at("sampleable") == [3, 4]


async def test_a_chunk_whose_uses_are_held_is_not_drawn_before_it_is_placed_again(store: Store) -> None:
    """A lower limit counts at once, though the index still names chunks as the former limit left them."""
    moves = await replay_moves(store, max_reuse=2)
    await moves.insert(fragment(0), fragment(1))
    assert keys_of(await moves.take(0, sample_id="first")) == [chunk_key(1)]
    view = await moves.view()
    settings = view.settings.model_copy(update={"max_reuse": 1})
    assert await moves.replay.put(RUN, settings, 0, 0.0, view.revision, settle=True)
    missed = await moves.take(0, sample_id="second")
    assert isinstance(missed, Missed)
    assert missed.why == "short"
    assert keys_of(await moves.take(1, sample_id="third")) == [chunk_key(2)]


async def test_a_sample_is_not_ended_by_the_limits_of_another_configuration(store: Store) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    keys_of(await moves.take(0))
    view = await moves.view()
    assert await moves.replay.put(RUN, view.settings, 1, 0.0, view.revision, settle=False)
    before = await moves.books()
    assert not await moves.samples.end(RUN, lease("sample"), "acknowledged", view)
    assert (await moves.books()).chunks == before.chunks
    assert await moves.end("acknowledged")
