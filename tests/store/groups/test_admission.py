"""Groups on their way in: stored once, whole or not at all, whatever is repeated, full or outdated."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from app.core.model import PlannedGroup
from app.core.runs.counters import Trained
from app.core.runs.settings import Policy
from app.store.groups import admission
from app.store.groups.entries import KnownGroup, Outcome, PendingGroup, Placement, Stored
from app.store.groups.scripts import expire_history
from app.store.groups.store import GroupStore
from lachesis.wire.errors import GroupExists, QueueFull, StoreRefused
from tests.one_by_one import OneByOne
from tests.store.conftest import CONFIG, KEYS, LASTING_MS, MATH, RUN, Store, encoded

STALE = Placement(0, policy_version=1, dropped="stale")


@pytest.fixture(autouse=True, params=[True, False], ids=["in one transaction", "one after the other"])
def _transacts(store: Store, request: pytest.FixtureRequest) -> None:
    store.connection.transacts = request.param


async def test_the_same_call_twice_stores_once(store: Store) -> None:
    """A connection that lost the reply repeats the whole pipeline, with the ids it had."""
    for _ in range(2):
        assert await store.admit(encoded(1, given="a", version=3), encoded(2), ids=["one", "two"]) == [True, True]
    books = await store.books()
    assert books["queued"] == await store.payloads() == {"one", "two"}
    assert (await store.view()).sent[0].sequences == 4


@pytest.mark.parametrize("newer", [False, True], ids=["newest", "followed"])
async def test_the_same_call_after_the_group_was_delivered_leaves_no_orphan(store: Store, newer: bool) -> None:
    """Its payload was written again. It is garbage now, unless the run shows it as the newest example."""
    await store.admit(encoded(), ids=["one"])
    if newer:
        await store.admit(encoded(), ids=["two"])
    await store.acknowledge(await store.take("one"))
    assert await store.admit(encoded(), ids=["one"]) == [True]
    books = await store.books()
    assert (books["queued"], books["delivered"]) == ({"two"} if newer else set(), 1)
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == ({"two"} if newer else {"one"})
    await store.books()


async def _overwritten(store: Store, key: str) -> None:
    """Give a key another type, as another program may."""
    await store.redis.delete(key)
    await store.redis.set(key, "x")


@pytest.mark.parametrize(("broken", "left"), [(KEYS.known, set()), (KEYS.versions, {"one"})], ids=["before", "midway"])
async def test_payloads_of_a_refused_submission_are_deleted_unless_named(
    store: Store, broken: str, left: set[str]
) -> None:
    """Redis does not roll back: the script may have indexed the group before it failed, or not."""
    await _overwritten(store, broken)
    with pytest.raises(StoreRefused):
        await store.admit(encoded(version=0), ids=["one"])
    assert await store.payloads() == {"one"}
    if not store.connection.transacts:  # these are pending for a while
        await store.garbage.mark_abandoned(RUN, (await store.view()).clock_ms)
    assert await store.garbage.delete_marked(RUN) == 1 - len(left)
    assert await store.payloads() == left
    assert await store.redis.zcard(KEYS.unreferenced) == 0


async def test_a_refused_submission_names_its_own_reason(store: Store) -> None:
    """Its payloads cannot be marked for deletion either, which says less."""
    await _overwritten(store, KEYS.known)
    await _overwritten(store, KEYS.unreferenced)
    with pytest.raises(StoreRefused, match="script"):
        await store.admit(encoded())


async def test_a_group_repeated_by_its_sender_stores_nothing(store: Store) -> None:
    """The service gave it another id, because the sender never got the answer. A new group is in the same call."""
    await store.admit(encoded(given="a"), ids=["one"])
    assert await store.admit(encoded(given="a"), encoded(2, given="b"), ids=["again", "two"]) == [False, True]
    assert (await store.books())["queued"] == {"one", "two"}
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"one", "two"}
    known = await store.known_groups.find(RUN, ["a", "one", "two", "nobody's"])
    assert known == {"a": KnownGroup("one")}, "it has a name of its own"


async def test_an_id_of_other_contents_stores_and_changes_nothing(store: Store) -> None:
    await store.admit(encoded(1, given="a"), ids=["one"])
    with pytest.raises(GroupExists, match="group a with other contents"):
        await store.admit(encoded(2), encoded(2, given="a"), ids=["two", "three"])
    assert (await store.books())["queued"] == {"one"}
    assert await store.groups.payloads(RUN, ["one"]) == [encoded(1).payload]
    await store.garbage.mark_abandoned(RUN, (await store.view()).clock_ms)
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"one"}
    await store.books()


async def test_a_senders_id_is_forgotten_in_time_but_never_before_its_group(store: Store) -> None:
    await store.admit(encoded(given="gone"), encoded(given="held"), ids=["one", "two"])
    await store.acknowledge(await store.take("one"))
    assert await store.known_groups.remembered(RUN) == 1
    assert await store.known_groups.forget_old(RUN) == 0
    assert await store.admit(encoded(given="gone"), encoded(given="held")) == [False, False]
    await store.pass_time(LASTING_MS + 1000)
    assert (await store.tick()).due
    assert await store.known_groups.forget_old(RUN) == 1 + 2, "a group, a batch and its step"
    assert await store.known_groups.remembered(RUN) == 0
    assert not (await store.tick()).due
    assert await store.admit(encoded(given="gone"), encoded(given="held"), ids=["new", "x"]) == [True, False]
    assert (await store.books())["queued"] == {"two", "new"}
    await store.acknowledge(await store.take("two"))
    await store.books()


async def test_a_senders_id_is_new_again_after_its_group_left_and_time_passed(store: Store) -> None:
    """Even if the run still remembers that group. Then it forgets it, and knows the new one."""
    await store.admit(encoded(given="a"), encoded(given="b"), ids=["one", "two"])
    await store.pass_time(1000)
    with pytest.raises(GroupExists):
        await store.admit(encoded(2, given="a"), ids=["x"], dedup_ms=0)
    await store.acknowledge(await store.take("one"))
    assert await store.admit(encoded(given="a"), ids=["x"], dedup_ms=100_000) == [False]
    assert await store.admit(encoded(2, given="a"), ids=["new"], dedup_ms=1000) == [True]
    books = await store.books()
    assert (books["queued"], books["delivered"]) == ({"two", "new"}, 1)
    await store.pass_time(LASTING_MS)
    assert await store.known_groups.forget_old(RUN) == 1 + 2
    assert await store.known_groups.find(RUN, ["a", "b"]) == {"a": KnownGroup("new"), "b": KnownGroup("two")}
    await store.books()


async def test_a_group_kept_for_a_rewind_stays_recognised(store: Store) -> None:
    await store.admit(encoded(given="a"), ids=["one"])
    lease = await store.take("one")
    await store.acknowledge(lease, keep=True)
    for _ in range(2):
        await store.pass_time(LASTING_MS + 1000)
        assert await store.known_groups.forget_old(RUN) >= 1, "it is looked at"
        assert await store.admit(encoded(given="a"), dedup_ms=0) == [False]
        assert await store.known_groups.recognised(RUN, ["a", "b"]) == {"a"}
        assert await store.known_groups.remembered(RUN) == 0, "it is held"
        await store.books()
    await store.batches.release_kept(RUN, [lease.batch_id])
    assert await store.known_groups.remembered(RUN) == 1
    assert await store.known_groups.recognised(RUN, ["a"]) == frozenset()
    await store.pass_time(LASTING_MS + 1000)
    assert await store.known_groups.forget_old(RUN) == 1
    assert await store.known_groups.find(RUN, ["a"]) == {}
    await store.books()


async def test_a_run_that_is_to_remember_groups_for_less_time_forgets_them_at_once(store: Store) -> None:
    await store.admit(encoded(given="a"), encoded(given="b"), place=STALE)
    await store.pass_time(200_000)
    assert not (await store.tick()).due
    assert await store.known_groups.remembered(RUN) == 2
    shorter = Policy(history_retention_s=120.0, dedup_window_s=0.0)
    await store.runs.put(RUN, CONFIG, shorter, (await store.view()).epoch)
    assert (await store.tick()).due
    assert await store.known_groups.forget_old(RUN) == 2
    assert await store.known_groups.remembered(RUN) == 0
    await store.books()


async def test_what_is_due_to_be_forgotten_is_so_many_at_a_time(store: Store) -> None:
    """However many are due, nobody waits for long."""
    for number in range(5):
        await store.admit(encoded(given=f"g{number}"), place=STALE)
    await store.pass_time(LASTING_MS + 1000)
    forgotten = [await store.connection.run(expire_history(KEYS, most=2, remembered_ms=LASTING_MS)) for _ in range(4)]
    assert forgotten == [2, 2, 1, 0]
    await store.books()


@pytest.mark.parametrize("limit", [{"max_groups": 2}, {"max_bytes": 20}])
async def test_a_run_that_is_full_takes_no_new_group_but_knows_those_it_has(
    store: Store, limit: dict[str, int]
) -> None:
    """Buffered ones count; one submission may go beyond the limit, the next one does not come in."""
    await store.admit(encoded(3, given="a"), ids=["one"], **limit)
    await store.admit(encoded(3), encoded(3), ids=["two", "three"], place=Placement(0, buffered=True), **limit)
    for attempt in range(2):  # each under an id of its own: what was refused is garbage
        with pytest.raises(QueueFull, match="3 groups queued, 30 bytes"):
            await store.admit(encoded(given="b"), ids=[f"refused-{attempt}"], **limit)
    assert await store.admit(encoded(3, given="a"), ids=["again"], **limit) == [False]
    assert await store.admit(encoded(3, given="a"), ids=["one"], **limit) == [True], "our own repetition"
    with pytest.raises(QueueFull):
        await store.admit(encoded(3, given="a"), encoded(given="b"), **limit)
    books = await store.books()
    assert (books["queued"], books["buffered"]) == ({"one"}, {"two", "three"})
    await store.take("one")
    for group in ("two", "three"):
        await store.groups.drop(RUN, [(group, (0, 2))], "stale")
    assert await store.admit(encoded(given="b"), ids=["four"], **limit) == [True]
    await store.books()


async def test_a_place_that_was_decided_on_another_policy_version_is_outdated(store: Store) -> None:
    await store.runs.set_policy_version(RUN, 5, Trained(), 0)
    assert await store.admit(encoded(version=4), ids=["one"], policy_version=4) is None
    assert (await store.books())["queued"] == set()
    assert await store.admit(encoded(version=4), ids=["anew"], policy_version=5) == [True]
    assert await store.admit(encoded(), ids=["two"]) == [True], "where no version matters, none is compared"
    assert (await store.books())["queued"] == {"anew", "two"}


async def test_a_place_that_was_decided_on_another_epoch_is_outdated(store: Store) -> None:
    before = (await store.view()).epoch
    assert await store.runs.put(RUN, CONFIG, (await store.view()).policy, before), "the same again changes nothing"
    assert (await store.view()).epoch == before
    assert await store.admit(encoded(), ids=["one"], epoch=before - 1) is None
    assert (await store.books())["queued"] == set()


async def admit_torn(store: Store, redis_url: str, before: int, between: Callable[[], Awaitable[object]]) -> Stored:
    """Admit a group by single commands, and do something before one of them; its script is the last, number 3."""
    torn = OneByOne(redis_url, 5.0)
    torn.before, torn.between = before, between
    group = PendingGroup("one", encoded(), Placement(0))
    try:
        return await GroupStore(torn).admit(RUN, [[group]], await store.preconditions())
    finally:
        await torn.aclose()
        assert torn.sent == 4


@pytest.mark.parametrize("before", range(1, 4))
async def test_a_reservation_that_was_given_up_is_outdated_and_made_again(
    store: Store, redis_url: str, before: int
) -> None:
    """Its payload may be removed by the time it is indexed."""

    async def give_up() -> None:
        await store.garbage.mark_abandoned(RUN, (await store.view()).clock_ms)
        await store.garbage.delete_marked(RUN)

    assert await admit_torn(store, redis_url, before, give_up) == Stored([None])
    assert await store.groups.entries(RUN, ["one"]) == [None]
    assert await store.admit(encoded(), ids=["anew"]) == [True]
    assert (await store.books())["queued"] == {"anew"}


async def test_a_group_whose_payload_was_not_written_is_outdated(store: Store, redis_url: str) -> None:
    """Redis refused it or lost it, and had room for the script. Without the payload, the group would be lost."""
    payload = KEYS.payload("one")
    assert await admit_torn(store, redis_url, 3, lambda: store.redis.delete(payload)) == Stored([None])
    assert (await store.books())["queued"] == set()
    assert await admit_torn(store, redis_url, 3, lambda: store.redis.setrange(payload, 20, "x")) == Stored([None])
    assert (await store.books())["queued"] == set()


async def test_a_group_dropped_on_arrival_is_counted_and_remembered_and_has_no_payload(store: Store) -> None:
    for _ in range(2):
        assert await store.admit(encoded(given="a", version=1), ids=["one"], place=STALE) == [True]
    assert await store.admit(encoded(given="a", version=1), ids=["again"], place=STALE) == [False]
    books = await store.books()
    assert books["dropped"] == {"stale": 1}
    assert await store.payloads() == set()
    assert (await store.view()).dropped == {("stale", 0): 1}
    ended = await store.history("one")
    assert (ended.reason, ended.step) == ("stale", None)
    assert (ended.entry.payload_bytes, ended.entry.lane) == (8, (0, 2))
    assert ended.entry.policy_version == 1
    assert (await store.view()).totals.accepted_groups == 1
    assert (await store.view()).latest is None


async def test_a_run_remembers_only_so_many_of_the_groups_dropped_on_arrival(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other group is remembered. When old ones are forgotten, there is room for new ones."""
    monkeypatch.setattr(admission, "MOST_REMEMBERED", 2)
    dropped, waiting = [encoded(given=f"g{number}") for number in range(3)], encoded(given="waiting")
    assert await store.admit(*dropped, place=STALE) == [True, True, True]
    assert await store.admit(*dropped, place=STALE) == [False, False, True], "it is judged and counted again"
    assert await store.known_groups.remembered(RUN) == 2
    assert (await store.view()).totals.accepted_groups == (await store.view()).dropped["stale", 0] == 4
    assert await store.admit(waiting, ids=["waiting"]) == [True]
    await store.acknowledge(await store.take("waiting"))
    assert await store.admit(waiting) == [False]
    assert await store.known_groups.remembered(RUN) == 3
    await store.books()
    await store.pass_time(LASTING_MS + 1000)
    await store.known_groups.forget_old(RUN)
    assert await store.known_groups.remembered(RUN) == 0
    assert await store.admit(*dropped, place=STALE) == [True, True, True]
    assert await store.known_groups.remembered(RUN) == 2


async def test_groups_of_one_body_may_fare_differently(store: Store) -> None:
    places = [Placement(0, policy_version=1), Placement(0, buffered=True, policy_version=1), STALE]
    named = zip(("queued", "buffered", "stale"), places, strict=True)
    submission = [PendingGroup(name, encoded(version=1), place) for name, place in named]
    outcomes = [Outcome(), Outcome(), Outcome("stale")]
    assert await store.groups.admit(RUN, [submission], await store.preconditions()) == Stored([outcomes])
    books = await store.books()
    assert (books["queued"], books["buffered"], books["dropped"]) == ({"queued"}, {"buffered"}, {"stale": 1})
    assert await store.versions() == {"buffered": 1, "queued": 1}


async def test_a_group_that_waits_can_be_dropped_once(store: Store) -> None:
    await store.admit(encoded(3, given="a", version=1), ids=["queued"])
    await store.admit(encoded(4, version=2), ids=["buffered"], place=Placement(0, buffered=True, policy_version=2))
    await store.admit(encoded(), encoded(), ids=["taken", "newest"])
    await store.take("taken")
    old = [(name, (0, 2)) for name in ("queued", "buffered", "taken", "nobody's")]
    assert await store.groups.drop(RUN, [*old, *old], "expired") == 2
    assert await store.groups.drop(RUN, old, "expired") == 0
    books = await store.books()
    assert (books["dropped"], books["leased"]) == ({"expired": 2}, {"taken"})
    assert books["queued"] == {"newest"}
    ended = await store.history("queued")
    assert (ended.reason, ended.entry.lane) == ("expired", (0, 2))
    assert ended.entry.policy_version == 1
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"taken", "newest"}
    assert await store.admit(encoded(3, given="a", version=1)) == [False], "a dropped group is not sent again"


async def test_the_newest_group_is_shown_even_if_it_was_dropped(store: Store) -> None:
    await store.admit(encoded(), ids=["one"])
    await store.groups.drop(RUN, [("one", (0, 2))], "expired")
    await store.garbage.delete_marked(RUN)
    assert await store.groups.latest(RUN) == encoded().payload
    await store.admit(encoded(2), ids=["two"])
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"two"}
    await store.books()


async def test_groups_of_later_versions_that_wait_can_count_as_of_the_current_one(store: Store) -> None:
    """Those that name none, or wait no more, are passed over; all else of a group stays."""
    await store.admit(encoded(1, given="a", version=7), encoded(2, version=7), encoded(3), ids=["one", "two", "none"])
    await store.take("two")
    await store.admit(encoded(version=3), encoded(version=9), ids=["old", "next"])
    await store.runs.set_policy_version(RUN, 4, Trained(), 0)
    view = await store.view()
    assert [await store.groups.restamp(RUN, 1, view) for _ in range(3)] == [1, 1, 0]
    one, two, none = await store.groups.entries(RUN, ["one", "two", "none"])
    assert one is not None
    assert two is not None
    assert none is not None
    assert (one.policy_version, two.policy_version, none.policy_version) == (4, 7, None)
    assert (one.given_id, one.payload_bytes, one.lane) == ("a", 8, (0, 2))
    assert await store.versions() == {"one": 4, "old": 3, "next": 4}
    await store.books()


async def test_versions_that_were_decided_on_before_a_change_of_the_run_restamp_nothing(store: Store) -> None:
    """A trainer may have set a later version, and a change of settings may refuse these groups."""
    await store.admit(encoded(version=7), ids=["one"])
    view = await store.view()
    await store.runs.set_policy_version(RUN, 8, Trained(), 0)
    assert await store.groups.restamp(RUN, 10, view) is None
    await store.runs.set_policy_version(RUN, 5, Trained(), 8)
    view = await store.view()
    await store.runs.put(RUN, CONFIG, Policy(future_versions="refuse"), view.epoch)
    assert await store.groups.restamp(RUN, 10, view) is None
    assert await store.versions() == {"one": 7}


async def test_entries_of_many_groups_come_in_the_order_asked_for(store: Store) -> None:
    await store.admit(encoded(), ids=["one"])
    asked = [*map(str, range(1500)), "one", *map(str, range(1500, 2500)), "one"]
    found = await store.groups.entries(RUN, asked)
    assert [asked[n] for n, entry in enumerate(found) if entry is not None] == ["one", "one"]
    assert len(found) == len(asked)
    assert await store.groups.entries(RUN, []) == []


async def test_buffered_groups_keep_their_version_when_they_join_the_queue(store: Store) -> None:
    await store.admit(encoded(version=3), ids=["one"], place=Placement(0, buffered=True, policy_version=3))
    (lane,) = await store.groups.buffer_heads(RUN, {(0, 2): (1, 1)})
    planned = [PlannedGroup(head.arrival, head.group_id, 0, 2) for head in lane.heads]
    for released in (True, False):
        assert await store.groups.release_buffered(RUN, planned) == released
        books = await store.books()
        assert (books["queued"], books["buffered"]) == ({"one"}, set())
    assert await store.versions() == {"one": 3}


async def test_a_repetition_gets_the_outcome_of_the_first_time(store: Store) -> None:
    preconditions = await store.preconditions()
    for name, first, now in (("a", Placement(0), STALE), ("b", STALE, Placement(0, policy_version=1))):
        group = encoded(given=name, version=1)
        stored = await store.groups.admit(RUN, [[PendingGroup(name, group, first)]], preconditions)
        assert stored.results == [[Outcome(first.dropped)]]
        repeated = Stored([[Outcome(first.dropped, repeated=True)]])
        assert await store.groups.admit(RUN, [[PendingGroup(f"{name}-again", group, now)]], preconditions) == repeated
    books = await store.books()
    assert (books["queued"], books["dropped"]) == ({"a"}, {"stale": 1})


async def test_what_is_refused_leaves_nothing_that_a_sweep_does_not_take(store: Store) -> None:
    """Senders try again and again: what they wrote for nothing must not wait for orphans' time."""
    await store.admit(encoded(given="a"), ids=["one"])
    with pytest.raises(QueueFull):
        await store.admit(encoded(), encoded(), ids=["two", "three"], max_groups=1)
    with pytest.raises(GroupExists):
        await store.admit(encoded(), encoded(2, given="a"), ids=["four", "five"])
    assert await store.garbage.delete_marked(RUN) == 4
    assert await store.payloads() == {"one"}
    assert await store.redis.zcard(KEYS.unreferenced) == 0
    assert await store.admit(encoded(), encoded(), ids=["two", "three"]) == [True, True]
    assert (await store.books())["queued"] == {"one", "two", "three"}


async def test_a_payload_that_may_be_deleted_soon_is_not_admitted_again(store: Store) -> None:
    """The sweeper has read that it is garbage; what was written in between would go with it."""
    with pytest.raises(QueueFull):
        await store.admit(encoded(given="a"), ids=["mine"], max_groups=0)
    assert await store.admit(encoded(given="a"), ids=["mine"]) is None, "outdated: to be written under another id"
    assert await store.admit(encoded(given="a"), ids=["other"]) == [True]
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"other"}
    await store.books()


async def test_a_server_that_has_forgotten_the_scripts_is_taught_them_and_nothing_is_lost(store: Store) -> None:
    """A server that was started again is such a server. The failed transaction is written again under the same ids."""
    await store.redis.script_flush()
    assert await store.admit(encoded(given="a"), encoded(), ids=["one", "two"]) == [True, True]
    await store.redis.script_flush()
    assert await store.admit(encoded(given="a"), encoded(), ids=["one", "two"]) == [True, True], "our own repetition"
    await store.garbage.mark_abandoned(RUN, (await store.view()).clock_ms)
    await store.garbage.delete_marked(RUN)
    assert (await store.books())["queued"] == await store.payloads() == {"one", "two"}


async def test_as_many_groups_as_a_request_may_bring_are_admitted_at_once(store: Store) -> None:
    """More than Lua can hand to a command."""
    groups = [encoded(given=f"g{number}") for number in range(6000)]
    assert await store.admit(*groups) == [True] * 6000
    assert await store.admit(*groups) == [False] * 6000
    view = await store.view()
    assert (view.totals.queued_groups, view.sent[0].sequences) == (6000, 12000)
    await store.garbage.delete_marked(RUN)
    await store.books()


async def test_what_was_stored_is_not_stored_again_because_the_run_changed(store: Store) -> None:
    """The reply was lost, and before the repetition came somebody registered, or the trainer went a version on."""
    before = await store.preconditions(policy_version=0)
    submissions = [
        [PendingGroup("one", encoded(version=0), Placement(0, policy_version=0))],
        [PendingGroup("two", encoded(given="a"), Placement(0)), PendingGroup("three", encoded(), Placement(0))],
    ]
    assert await store.groups.admit(RUN, submissions, before) == Stored([[Outcome()], [Outcome(), Outcome()]])
    await store.runs.set_policy_version(RUN, 5, Trained(), 0)
    assert await store.environments.put(RUN, replace(MATH, environment=7), before.epoch)
    assert (await store.preconditions()).epoch != before.epoch
    assert await store.groups.admit(RUN, submissions, before) == Stored([[Outcome()], [Outcome(), Outcome()]])
    assert (await store.books())["queued"] == {"one", "two", "three"}


async def test_a_repeated_submission_does_not_store_its_refused_part_under_old_conditions(
    store: Store,
) -> None:
    """The reply was lost; before the repetition room was made, garbage removed, and somebody registered."""
    before = await store.preconditions(max_groups=1)
    submissions = [[PendingGroup(name, encoded(), Placement(0))] for name in ("one", "two")]
    full = QueueFull("max_queued_groups=1 of the run leaves no room: it has 1 group queued, 8 bytes")
    first = await store.groups.admit(RUN, submissions, before)
    assert list(map(str, first.results)) == list(map(str, ([Outcome()], full)))
    await store.acknowledge(await store.take("one"))
    await store.garbage.delete_marked(RUN)
    assert await store.environments.put(RUN, replace(MATH, environment=7), before.epoch)
    assert await store.groups.admit(RUN, submissions, before) == Stored([[Outcome()], None])
    assert (await store.books())["queued"] == set()
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"one"}
