"""Snapshots in Redis: each step is all or nothing, safe to repeat, and refused if the buffer changed."""

import pytest

from app.core.runs.counters import Trained
from app.store.redis.keys import SAVED_PARTS
from app.store.replay.entries import chunk_key
from app.store.replay.snapshots import SnapshotRecord
from tests.services.replay.moves import fragment
from tests.store.conftest import KEYS, RUN, Store
from tests.store.replay.moves import ReplayMoves, keys_of, replay_moves


async def restore(moves: ReplayMoves, snapshot: SnapshotRecord, *, settle: bool = False) -> None:
    """Put a snapshot in place of the buffer."""
    view = await moves.view()
    assert await moves.snapshots.prepare(RUN, snapshot)
    assert await moves.snapshots.restore(RUN, snapshot, view, settle=settle)


async def test_a_snapshot_taken_twice_by_one_command_is_one_snapshot(store: Store) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    view = await moves.view()
    first = await moves.snapshots.take(RUN, "a", view, 0, [])
    await moves.insert(fragment(1))
    assert first is not None
    assert await moves.snapshots.take(RUN, "a", view, 0, []) == first
    assert await moves.snapshots.take(RUN, "b", view, 0, []) is None
    assert [len(books.chunks) for books in (await moves.books()).saved.values()] == [1]


@pytest.mark.parametrize("moved", ["version", "settings", "snapshot", "deleted"])
async def test_what_was_decided_on_a_buffer_that_has_changed_changes_nothing(store: Store, moved: str) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    taken = await moves.snapshot("a")
    view = await moves.view()
    match moved:
        case "version":
            await store.runs.set_policy_version(RUN, 3, Trained(), 0)
        case "settings":
            assert await moves.replay.put(RUN, view.settings, 1, 0.0, view.revision, settle=False)
        case "snapshot":
            await moves.snapshot("b", 1)
        case _:
            assert await moves.snapshots.delete_buffer(RUN, view)
            await replay_moves(store)
    before = await moves.books()
    assert await moves.snapshots.take(RUN, "c", view, 2, [0]) is None
    assert await moves.snapshots.prepare(RUN, taken) is (moved != "deleted")
    assert not await moves.snapshots.restore(RUN, taken, view, settle=False)
    assert await moves.snapshots.delete_buffer(RUN, view) is (moved == "version")
    if moved != "version":
        assert await moves.books() == before


async def test_a_snapshot_is_the_same_however_often_it_is_prepared_and_restored(store: Store) -> None:
    """Also where somebody who was restoring it goes on when somebody else has done so."""
    moves = await replay_moves(store, max_reuse=2)
    await moves.insert(*(fragment(number, priority=number) for number in range(4)))
    keys_of(await moves.take(1))
    assert await moves.end("acknowledged")
    taken, before = await moves.snapshot("a"), await moves.books()
    for _ in range(2):
        await moves.insert(fragment(4), fragment(5))
        await moves.replay.retire(RUN, "stale", [chunk_key(1), chunk_key(2)])
        assert await moves.snapshots.prepare(RUN, taken)
        await restore(moves, taken)
        assert await moves.snapshots.prepare(RUN, taken)
        assert (await moves.books()).chunks == before.chunks
    assert await moves.snapshots.drop(RUN, taken)
    assert not await moves.snapshots.drop(RUN, taken)
    assert not await moves.snapshots.prepare(RUN, taken)
    assert not await store.redis.exists(*(KEYS.snapshot_part(0, part) for part in SAVED_PARTS))


async def test_a_payload_written_late_for_what_only_a_snapshot_names_is_no_garbage(store: Store) -> None:
    """An insertion comes twice, the second time when its fragment has left the buffer."""
    moves = await replay_moves(store)
    insertion, _, view = await moves.plan(fragment(0))
    assert await moves.replay.insert(RUN, insertion, view) == "inserted"
    taken = await moves.snapshot("a")
    await moves.insert(fragment(1))
    await moves.replay.retire(RUN, "stale", [chunk_key(1), chunk_key(2)])
    assert await moves.replay.insert(RUN, insertion, view) == "outdated"
    assert await store.garbage.delete_marked(RUN) == 1
    await restore(moves, taken)
    assert await store.garbage.delete_marked(RUN) == 0
    assert len((await moves.books()).fragments) == 1
    assert await moves.snapshots.drop(RUN, taken)
    assert await store.garbage.delete_marked(RUN) == 0, "the buffer names it again"


async def test_what_was_to_be_looked_over_still_is_after_a_snapshot_and_a_restoration(store: Store) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    view = await moves.view()
    assert await moves.replay.put(RUN, view.settings, 1, 0.0, view.revision, settle=True)
    taken, view = await moves.snapshot("a"), await moves.view()
    assert (view.unsettled, taken.settled) == (view.revision, False)
    await moves.replay.settled(RUN, view.revision)
    await restore(moves, taken, settle=True)
    view = await moves.view()
    assert view.unsettled == view.revision


async def test_a_reset_removes_what_only_snapshots_name(store: Store) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    await moves.snapshot("a")
    await moves.replay.retire(RUN, "stale", [chunk_key(1)])
    assert await store.garbage.delete_marked(RUN) == 0
    await store.runs.reset(RUN, "token")
    assert await store.garbage.delete_marked(RUN) == 1
    await store.redis.delete(KEYS.run)
    assert await store.runs.forget(RUN)
    assert await store.redis.keys("*") == []


async def test_a_buffer_made_again_has_no_revision_that_the_previous_one_had(store: Store) -> None:
    """However often that was changed, and however soon it was removed: what was decided on it must stay outdated."""
    moves = await replay_moves(store)
    await store.redis.hincrby(KEYS.replay, "revision", 900)  # type: ignore[misc]
    before = await moves.view()
    assert await moves.snapshots.delete_buffer(RUN, before)
    assert int((await (await replay_moves(store)).view()).revision) > int(before.revision)
