"""How groups enter the replay buffer: all or nothing, safe to try twice, decided on what still is so."""

from dataclasses import dataclass, replace

import pytest

from app.core.runs.counters import Trained
from app.services.replay.groups import plan_group_insertion
from app.store.redis.keys import RunKeys
from app.store.replay.groups import GroupInsertion, GroupInsertionStore
from app.store.replay.view import ReplayView
from lachesis.wire.states import SAMPLEABLE
from tests.services.replay.moves import fragment
from tests.store.conftest import LASTING_MS, RUN, Store, encoded
from tests.store.replay.moves import ReplayMoves, replay_moves

KEYS = RunKeys(RUN)


@dataclass(frozen=True, slots=True)
class Entering:
    """A store whose buffer takes groups."""

    store: Store
    moves: ReplayMoves
    groups: GroupInsertionStore

    async def train(self, *group_ids: str, keep: bool = False) -> None:
        """Let groups be submitted, taken and acknowledged, each in a batch of its own."""
        await self.store.admit(*(encoded(n + 1) for n, _ in enumerate(group_ids)), ids=group_ids)
        for group_id in group_ids:
            assert await self.store.acknowledge(await self.store.take(group_id), keep=keep) == 1

    async def plan(self, most: int = 10, candidates: int = 10) -> tuple[GroupInsertion, ReplayView]:
        """Plan to take in those that entered first."""
        found = await self.groups.look(RUN, most, candidates)
        assert found is not None
        view, groups, victims = found
        return plan_group_insertion(view, groups, victims), view

    async def commit(self, insertion: GroupInsertion, view: ReplayView) -> str:
        """Carry it out; the books are checked on the way."""
        word = await self.groups.commit(RUN, insertion, view)
        await self.moves.books()
        await self.store.books()
        return word

    async def sampleable(self) -> list[str]:
        """The groups that may be sampled, in the order in which they became chunks."""
        chunks = sorted((await self.moves.books()).chunks.items())
        return [entry.fragment_ids[0] for _, entry in chunks if entry.place == SAMPLEABLE]


@pytest.fixture
async def entering(store: Store) -> Entering:
    return Entering(store, await replay_moves(store, groups=True, max_chunks=2), GroupInsertionStore(store.connection))


async def test_groups_are_taken_in_once_however_often_it_is_tried(entering: Entering) -> None:
    await entering.train("a", "b")
    insertion, view = await entering.plan()
    assert await entering.commit(insertion, view) == "taken"
    assert await entering.commit(insertion, view) == "outdated"
    assert await entering.sampleable() == ["a", "b"]
    assert await entering.groups.look(RUN, 10, 10) is None


async def test_of_two_who_take_in_the_same_groups_one_looks_again(entering: Entering) -> None:
    await entering.train("a", "b")
    some, view = await entering.plan(most=1)
    every, _ = await entering.plan()
    assert await entering.commit(some, view) == "taken"
    assert await entering.commit(every, view) == "outdated"
    assert await entering.commit(*await entering.plan()) == "taken"
    assert await entering.sampleable() == ["a", "b"]


async def test_nobody_takes_in_what_another_version_or_configuration_would_not(entering: Entering) -> None:
    await entering.train("a")
    insertion, view = await entering.plan()
    await entering.store.runs.set_policy_version(RUN, 1, Trained(), 0)
    assert await entering.commit(insertion, view) == "outdated"
    insertion, view = await entering.plan()
    assert await entering.moves.replay.put(RUN, view.settings, 1, 0.0, view.revision, settle=False)
    assert await entering.commit(insertion, view) == "outdated"
    insertion, view = await entering.plan()
    assert (view.context.session, insertion.counts["dropped:old_session"], insertion.chunks) == (1, 1, ())
    assert await entering.commit(insertion, view) == "taken"
    assert (await entering.moves.books()).fragments == {}


async def test_room_is_made_for_groups_as_for_fragments(entering: Entering) -> None:
    await entering.moves.insert(fragment(0), fragment(1))
    await entering.train("a", "b", "c")
    insertion, view = await entering.plan(candidates=1)
    assert insertion.freed == ("a",), "the last of them would evict it"
    assert await entering.commit(insertion, view) == "crowded"
    assert await entering.commit(*await entering.plan()) == "taken"
    assert await entering.sampleable() == ["b", "c"]
    books = await entering.moves.books()
    assert (books.total("retired:evicted"), books.total("dropped:evicted")) == (2, 1)


async def test_an_admission_that_is_repeated_frees_nothing_that_the_buffer_has_by_now(entering: Entering) -> None:
    """As a connection does after a lost reply: by then its groups may have been trained on."""
    own = [encoded(1), encoded(2)]
    await entering.store.admit(*own, ids=["a", "b"])
    for group_id in ("a", "b"):
        await entering.store.acknowledge(await entering.store.take(group_id))
    assert await entering.store.admit(*own, ids=["a", "b"]) == [True, True]
    assert await entering.commit(*await entering.plan()) == "taken"
    await entering.store.garbage.delete_marked(RUN)
    assert await entering.store.payloads() == {"a", "b"}
    assert await entering.store.redis.zcard(KEYS.unreferenced) == 0


async def test_a_group_of_the_buffer_that_is_dropped_from_the_queue_keeps_its_payload(entering: Entering) -> None:
    """A rewind hands out its batch again, and the trainer gives the batch back."""
    store = entering.store
    await store.admit(encoded(1, version=1), encoded(2), ids=["a", "newest"])
    taken = await store.take("a")
    await store.acknowledge(taken, keep=True)
    assert await entering.commit(*await entering.plan()) == "taken"
    again = replace(taken, delivery_count=2)
    assert await store.rewind(0, [again])
    groups = await store.batches.groups_of(RUN, again.batch_id)
    assert groups is not None
    assert await store.batches.dissolve(RUN, again, groups, LASTING_MS)
    assert await store.groups.drop_versions(RUN, ("-inf", "(2"), 10, "stale", await store.view()) == 1
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"a", "newest"}
    assert await entering.sampleable() == ["a"]
