"""Batches on their way out, back, and out again: whatever is repeated, the books agree."""

from dataclasses import replace
from typing import Any

import pytest

from app.core.batches.leases import Lease
from app.core.runs.settings import Policy
from app.store.groups.entries import Placement
from lachesis.wire.errors import StoreRefused
from tests.store.conftest import KEYS, LASTING_MS, RUN, Store, encoded


def rewound(*leases: Lease) -> list[Lease]:
    return [Lease(lease.batch_id, "returned", "", 1, lease.step, relaxed=False) for lease in leases]


async def taken(store: Store, *names: str) -> list[Lease]:
    """Take one batch per name, of one group of that name, which says its version and an id."""
    for mark, name in enumerate(names):
        await store.admit(encoded(mark, given=f"given-{name}", version=mark), ids=[name])
    return [await store.take(name) for name in names]


async def test_a_delivered_batch_that_is_not_kept_leaves_no_payload(store: Store) -> None:
    first, _ = await taken(store, "one", "two")
    assert await store.acknowledge(first) == 1
    assert await store.acknowledge(first) == 0, "by then it has ended"
    books = await store.books()
    assert (books["leased"], books["kept"], books["delivered"]) == ({"two"}, set(), 1)
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"two"}
    view = await store.view()
    assert (view.kept.unkept_step, view.kept.batches) == (1, 0)
    ended = await store.history("one")
    assert (ended.reason, ended.step) == (None, 1)
    assert await store.batch_of(ended) == "batch1"
    assert (ended.entry.lane, ended.entry.policy_version) == ((0, 2), 0)
    end = await store.batches.end_of(RUN, "batch1")
    assert end is not None
    assert (end.outcome, end.lease_id, end.step) == ("acknowledged", "lease", 1)
    assert await store.batches.end_of(RUN, "batch2") is None


async def test_a_lease_in_another_state_is_not_ended(store: Store) -> None:
    (lease,) = await taken(store, "one")
    lost = replace(lease, lease_id="before")
    groups = await store.batches.groups_of(RUN, "batch1") or []
    assert await store.acknowledge(lost, keep=True) == 0
    assert not await store.batches.dissolve(RUN, lost, groups, LASTING_MS)
    assert not await store.batches.discard(RUN, lost, "quarantined", LASTING_MS)
    assert not await store.batches.change(RUN, lost, replace(lost, state="returned"))
    epoch = (await store.view()).epoch
    assert not await store.batches.change(RUN, lease, replace(lease, state="returned"), epoch - 1)
    assert (await store.view()).leases == (lease,)
    assert (await store.books())["leased"] == {"one"}


async def test_a_kept_batch_is_delivered_and_held_until_it_is_released(store: Store) -> None:
    first, second = await taken(store, "one", "two")
    for ended in (2, 0):
        assert await store.acknowledge(first, second, keep=True) == ended
    books = await store.books()
    assert (books["leased"], books["kept"], books["delivered"]) == (set(), {"one", "two"}, 2)
    kept = (await store.view()).kept
    assert (kept.batches, kept.payload_bytes, kept.unkept_step) == (2, 7 + 8, None)
    assert (await store.batches.kept(RUN)).batches == [("batch1", 1), ("batch2", 2)]
    latest = {last: await store.batches.kept_from(RUN, last, 1) for last in (None, 2, 1, 0)}
    assert {last: [own.lease.step for own in found] for last, found in latest.items()} == {
        None: [2], 2: [2, 1], 1: [1], 0: [],
    }  # fmt: skip
    held = await store.batches.kept_groups(RUN, ["batch2", "nobody's"])
    assert [[group.group_id for group in groups] for groups in held] == [["two"], []]
    assert await store.garbage.delete_marked(RUN) == 0

    for released in (1, 0):
        assert await store.batches.release_kept(RUN, ["batch1", "nobody's"]) == released
    assert (await store.books())["kept"] == {"two"}
    kept = (await store.view()).kept
    assert (kept.unkept_step, kept.checkpoint) == (1, None)
    assert await store.batches.release_kept(RUN, ["batch2"], 2) == 1
    await store.garbage.delete_marked(RUN)
    books = await store.books()
    assert (books["kept"], books["delivered"]) == (set(), 2)
    assert await store.payloads() == {"two"}, "the newest example"
    kept = (await store.view()).kept
    assert (kept.unkept_step, kept.checkpoint, kept.payload_bytes) == (2, 2, 0)


@pytest.mark.parametrize("keep", [True, False])
async def test_a_batch_whose_groups_cannot_be_read_ends_together_with_no_other(store: Store, keep: bool) -> None:
    """Redis does not roll back: what a script cannot read it must find out before it writes."""
    leases = await taken(store, "one", "two")
    await store.redis.hset(KEYS.leases, "batch2", "[{")  # type: ignore[misc]
    before = {key: await store.redis.dump(key) async for key in store.redis.scan_iter("*")}
    with pytest.raises(StoreRefused):
        await store.acknowledge(*leases, keep=keep)
    assert {key: await store.redis.dump(key) async for key in store.redis.scan_iter("*")} == before
    assert await store.acknowledge(leases[0], keep=keep) == 1


async def test_groups_of_a_kept_batch_stay_known_by_their_senders_ids(store: Store) -> None:
    (lease,) = await taken(store, "one")
    await store.acknowledge(lease, keep=True)
    await store.pass_time(LASTING_MS + 1000)
    await store.known_groups.forget_old(RUN)
    assert await store.admit(encoded(0, given="given-one", version=0)) == [False]
    assert (await store.books())["kept"] == {"one"}


async def test_a_rewind_hands_out_what_came_after_and_keeps_what_came_before(store: Store) -> None:
    first, second, third = await taken(store, "one", "two", "three")
    before = [await store.batches.groups_of(RUN, lease.batch_id) for lease in (second, third)]
    await store.acknowledge(first, second, third, keep=True)
    assert await store.rewind(1, rewound(second, third))
    books = await store.books()
    assert (books["leased"], books["kept"], books["delivered"]) == ({"two", "three"}, {"one"}, 1)
    view = await store.view()
    assert list(view.leases) == rewound(second, third)
    assert [await store.batches.groups_of(RUN, lease.batch_id) for lease in view.leases] == before
    assert (view.step, view.kept.batches) == (3, 1)
    assert not await store.rewind(1, rewound(second, third)), "they are not kept any more"
    assert await store.rewind(1, []), "there is nothing left to do"
    assert (await store.view()).leases == view.leases

    assert await store.acknowledge(*view.leases, keep=True) == 2
    books = await store.books()
    assert (books["kept"], books["delivered"]) == ({"one", "two", "three"}, 3)
    assert await store.rewind(0, rewound(first, second, third)), "and once more, from further back"
    assert (await store.books())["leased"] == {"one", "two", "three"}


async def test_a_rewind_that_was_planned_on_other_batches_changes_nothing(store: Store) -> None:
    """One too few, one too many, another one; and none goes before a step whose batch is not kept."""
    first, second, third = await taken(store, "one", "two", "three")
    await store.acknowledge(first, second, keep=True)
    stranger = replace(second, batch_id="stranger")
    for leases in ([first], [first, second, third], [first, stranger], []):
        assert not await store.rewind(0, rewound(*leases))
        assert (await store.books())["kept"] == {"one", "two"}
    await store.batches.release_kept(RUN, ["batch1"])
    assert not await store.rewind(0, rewound(second))
    assert (await store.view()).leases == (third,)
    assert await store.rewind(1, rewound(second)), "right after it, there is nothing missing"
    assert (await store.books())["leased"] == {"two", "three"}


async def test_a_rewind_that_was_planned_on_another_state_of_a_lease_changes_nothing(store: Store) -> None:
    (seen,) = await taken(store, "one")
    newer = replace(seen, lease_id="newer")
    assert await store.batches.change(RUN, seen, newer)
    (again,) = rewound(seen)
    assert not await store.rewind(0, [], held=[(seen, again)])
    assert (await store.view()).leases == (newer,)
    assert await store.rewind(0, [], held=[(newer, again)])
    assert (await store.view()).leases == (again,)


async def test_a_batch_that_is_given_back_leaves_its_groups_where_they_were(store: Store) -> None:
    await store.admit(encoded(given="a", version=4), encoded(2), encoded(3), ids=["one", "two", "three"])
    lease = await store.take("one", "two")
    groups = await store.batches.groups_of(RUN, lease.batch_id) or []
    assert (await store.view()).served == {0: 4}
    for dissolved in (True, False):
        assert await store.batches.dissolve(RUN, lease, groups, LASTING_MS) == dissolved
    books = await store.books()
    assert (books["queued"], books["leased"]) == ({"one", "two", "three"}, set())
    (lane,) = await store.groups.heads(RUN, {(0, 2): (3, 3)})
    assert [head.group_id for head in lane.heads] == ["one", "two", "three"]
    assert await store.versions() == {"one": 4}
    assert (await store.view()).served == {0: 0}
    end = await store.batches.end_of(RUN, lease.batch_id)
    assert end is not None
    assert (end.outcome, end.lease_id) == ("given_back", "lease")


async def test_a_batch_that_is_discarded_is_dropped_group_by_group(store: Store) -> None:
    """And its step and reason are remembered."""
    await store.admit(encoded(given="a", version=4), encoded(2), encoded(3), ids=["one", "two", "three"])
    lease = await store.take("one", "two")
    for discarded in (True, False):
        assert await store.batches.discard(RUN, lease, "quarantined", LASTING_MS) == discarded
    books = await store.books()
    assert (books["queued"], books["leased"], books["delivered"]) == ({"three"}, set(), 0)
    assert (await store.view()).dropped == {("quarantined", 0): 2}
    ended = await store.history("one")
    assert (ended.reason, ended.step) == ("quarantined", 1)
    assert await store.batch_of(ended) == "batch1"
    assert (ended.entry.lane, ended.entry.policy_version) == ((0, 2), 4)
    end = await store.batches.end_of(RUN, lease.batch_id)
    assert end is not None
    assert end.outcome == "discarded"
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"three"}
    await store.books()


async def test_groups_of_no_environment_are_dropped_under_none(store: Store) -> None:
    await store.admit(encoded(), encoded(2), ids=["one", "two"], place=Placement(None))
    assert await store.groups.drop(RUN, [("two", (None, 2))], "stale") == 1
    lease = await store.take("one")
    assert await store.batches.discard(RUN, lease, "quarantined", LASTING_MS)
    assert (await store.view()).dropped == {("stale", None): 1, ("quarantined", None): 1}
    await store.books()


@pytest.mark.parametrize("moved", ["epoch", "policy_version", "step", "group", "debts", "no debts"])
async def test_a_batch_that_was_planned_on_another_run_is_not_taken(store: Store, moved: str) -> None:
    await store.admit(encoded(), encoded(2), ids=["one", "two"])
    view, groups = await store.view(), await store.leased(["one", "two"])
    lease = Lease("batch", "held", "host/1/x", 1, view.step + 1, relaxed=False)
    planned: dict[str, Any] = {"epoch": view.epoch, "policy_version": view.policy_version, "seen_debts": view.debts}
    if moved == "group":
        await store.groups.drop(RUN, [("two", (0, 2))], "expired")
    elif moved == "step":
        lease = replace(lease, step=view.step + 2)
    elif moved == "debts":
        await store.redis.hset(KEYS.run, "debts", '{"0":4}')  # type: ignore[misc]
    elif moved == "no debts":
        planned["seen_debts"] = {0: 4}
    else:
        planned[moved] += 1
    assert not await store.batches.commit(RUN, lease, groups, **planned, debts={}, clock_ms=view.clock_ms)
    books = await store.books()
    assert (books["leased"], "one" in books["queued"]) == (set(), True)


async def test_a_batch_is_taken_in_whatever_words_debts_are_stored(store: Store) -> None:
    """Python and Lua write them with other spaces, and in another order."""
    await store.admit(encoded(), ids=["one"])
    await store.redis.hset(KEYS.run, "debts", '{"10":2,  "9":-1}')  # type: ignore[misc]
    assert (await store.view()).debts == {9: -1, 10: 2}
    await store.take("one")
    assert (await store.books())["leased"] == {"one"}


async def test_a_batch_with_a_group_that_has_lost_its_entry_is_not_taken(store: Store) -> None:
    await store.admit(encoded(), encoded(2), ids=["one", "two"])
    view, groups = await store.view(), await store.leased(["one", "two"])
    lease = Lease("batch", "held", "host/1/x", 1, view.step + 1, relaxed=False)
    entry = await store.redis.hget(KEYS.groups, "two")  # type: ignore[misc]
    await store.redis.hdel(KEYS.groups, "two")  # type: ignore[misc]
    planned: dict[str, Any] = {"epoch": view.epoch, "policy_version": view.policy_version, "seen_debts": view.debts}
    assert not await store.batches.commit(RUN, lease, groups, **planned, debts={}, clock_ms=view.clock_ms)
    await store.redis.hset(KEYS.groups, "two", entry)  # type: ignore[misc]
    assert (await store.books())["queued"] == {"one", "two"}


async def test_groups_without_tokens_are_returned_without_a_count(store: Store) -> None:
    """Redis 7.0 refuses to add -0 to a count. Newer engines store 0."""
    (lease,) = await taken(store, "one")
    assert await store.batches.dissolve(RUN, lease, await store.batches.groups_of(RUN, "batch1") or [], LASTING_MS)
    assert await store.redis.hkeys(KEYS.ledger) == [b"generated:0"]  # type: ignore[misc]


async def test_the_end_of_a_batch_stays_known_while_its_trainer_may_ask(store: Store) -> None:
    """However short the run's own history is."""
    shortest_ms = Policy(history_retention_s=120, dedup_window_s=0).remembered_ms
    first, second, third = await taken(store, "one", "two", "three")
    await store.batches.acknowledge(RUN, [first], keep=False, remembered_ms=shortest_ms)
    await store.batches.dissolve(RUN, second, await store.batches.groups_of(RUN, "batch2") or [], shortest_ms)
    await store.batches.discard(RUN, third, "quarantined", shortest_ms)
    await store.pass_time(119_000)
    await store.known_groups.forget_old(RUN)
    outcomes = [await store.batches.end_of(RUN, f"batch{n}") for n in (1, 2, 3)]
    assert [end and end.outcome for end in outcomes] == ["acknowledged", "given_back", "discarded"]
    await store.pass_time(2000)
    await store.known_groups.forget_old(RUN)
    assert [await store.batches.end_of(RUN, f"batch{n}") for n in (1, 2, 3)] == [None] * 3
    await store.books()


async def test_a_reset_takes_kept_batches_with_it(store: Store) -> None:
    first, _ = await taken(store, "one", "two")
    await store.acknowledge(first, keep=True)
    await store.runs.reset(RUN, "token")
    await store.garbage.delete_marked(RUN)
    books = await store.books()
    assert [books[place] for place in ("queued", "leased", "kept")] == [set()] * 3
    assert await store.payloads() == set()
    kept = (await store.view()).kept
    assert (kept.batches, kept.payload_bytes, kept.unkept_step) == (0, 0, None)
    assert (await store.batches.kept(RUN)).batches == []


async def test_no_rewind_goes_before_a_checkpoint(store: Store) -> None:
    """This holds for kept batches, too. A late report of an older checkpoint changes nothing."""
    (lease,) = await taken(store, "one")
    await store.acknowledge(lease, keep=True)
    for step in (5, 3):
        assert await store.batches.release_kept(RUN, [], step) == 0
        kept = (await store.view()).kept
        assert (kept.checkpoint, kept.unkept_step) == (5, 5)
    assert not await store.rewind(0, rewound(lease))
    assert (await store.books())["kept"] == {"one"}


async def test_a_group_restamped_after_it_was_planned_goes_back_with_its_new_version(store: Store) -> None:
    """Planning is optimistic: what a manifest says of a version may be outdated by the time it is committed."""
    await store.admit(encoded(version=3), ids=["a"])
    planned = await store.leased(["a"])
    assert await store.groups.restamp(RUN, 10, await store.view()) == 1
    lease = await store.take(groups=planned)
    assert await store.batches.dissolve(RUN, lease, planned, LASTING_MS)
    await store.books()


async def test_a_lease_that_is_changed_again_stays_changed(store: Store) -> None:
    """The reply to the first change may have been lost; the caller must not take the repetition for a conflict."""
    (lease,) = await taken(store, "one")
    sent = replace(lease, state="sent")
    for _ in range(2):
        assert await store.batches.change(RUN, lease, sent)
    assert (await store.view()).leases == (sent,)


async def test_a_rewind_forgets_batches_that_no_policy_version_has_counted(store: Store) -> None:
    first, second = await taken(store, "one", "two")
    assert await store.acknowledge(first, second, keep=True) == 2
    assert (await store.view()).trained.batches == 2
    assert await store.rewind(0, rewound(first, second))
    assert (await store.view()).trained.batches == 0


async def test_a_rewind_forgets_the_acknowledgements_of_the_batches_it_returns(store: Store) -> None:
    (first,) = await taken(store, "one")
    assert await store.acknowledge(first, keep=True) == 1
    assert len(await store.batches.kept_leases(RUN, ["batch1"])) == 1
    assert await store.rewind(0, rewound(first))
    assert await store.batches.kept_leases(RUN, ["batch1"]) == []


async def test_a_commit_that_is_repeated_after_a_lost_reply_has_succeeded(store: Store) -> None:
    await store.admit(encoded(), ids=["one"])
    view, groups = await store.view(), await store.leased(["one"])
    lease = Lease("batch1", "held", "host/1/x", 1, 1, relaxed=False, lease_id="lease")

    async def commit(lease: Lease) -> bool:
        return await store.batches.commit(
            RUN,
            lease,
            groups,
            epoch=view.epoch,
            policy_version=view.policy_version,
            seen_debts=view.debts,
            debts={},
            clock_ms=view.clock_ms,
        )

    assert await commit(lease)
    assert await commit(lease)
    assert not await commit(replace(lease, lease_id="other"))
    assert (await store.books())["leased"] == {"one"}
