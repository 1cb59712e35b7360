"""Waiting groups are dropped by a range of policy versions."""

from app.core.runs.counters import Trained
from app.core.runs.settings import Policy
from app.store.groups.entries import Placement
from app.store.redis.keys import RunKeys
from tests.store.conftest import CONFIG, RUN, Store, encoded

OLD = ("-inf", "(2")
STALE = "stale"
KEYS = RunKeys(RUN)


async def filled(store: Store) -> None:
    """Groups of versions 1, 1, 1, 2 and of none; the second is buffered, in the same lane as one that is queued."""
    places = {
        "queued": Placement(0, policy_version=1),
        "buffered": Placement(0, buffered=True, policy_version=1),
        "foreign": Placement(None, policy_version=1),
        "fresh": Placement(0, policy_version=2),
        "unversioned": Placement(0),
    }
    for number, (name, place) in enumerate(places.items()):
        await store.admit(encoded(number, given=f"given-{name}", version=place.policy_version), ids=[name], place=place)


async def test_groups_of_some_versions_are_dropped_wherever_they_wait(store: Store) -> None:
    await filled(store)
    view = await store.view()
    assert await store.groups.drop_versions(RUN, OLD, 10, STALE, view) == 3
    assert await store.groups.drop_versions(RUN, OLD, 10, STALE, view) == 0
    books = await store.books()
    assert (books["queued"], books["buffered"]) == ({"fresh", "unversioned"}, set())
    assert (await store.view()).dropped == {("stale", 0): 2, ("stale", None): 1}
    assert (await store.history("buffered")).reason == "stale"
    assert await store.known_groups.remembered(RUN) == 3
    assert await store.admit(encoded(0, given="given-queued", version=1)) == [False], "it is not sent again"
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"fresh", "unversioned"}


async def test_only_so_many_groups_are_dropped_at_once(store: Store) -> None:
    await filled(store)
    view = await store.view()
    assert [await store.groups.drop_versions(RUN, OLD, 2, STALE, view) for _ in range(3)] == [2, 1, 0]
    assert (await store.books())["dropped"] == {"stale": 3}


async def test_payloads_of_dropped_groups_are_deleted_at_once_except_that_of_the_newest(store: Store) -> None:
    await filled(store)
    await store.admit(encoded(9, given="newest", version=1), ids=["newest"])
    assert await store.groups.drop_versions(RUN, OLD, 10, STALE, await store.view()) == 4
    assert await store.payloads() == {"fresh", "unversioned", "newest"}
    assert await store.redis.zcard(KEYS.unreferenced) == 0
    assert await store.groups.drop(RUN, [("fresh", (0, 2))], "deleted") == 1
    assert await store.payloads() == {"unversioned", "newest"}
    await store.admit(encoded(10), ids=["newer"])
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"unversioned", "newer"}


async def test_groups_of_later_versions_are_dropped_and_no_others(store: Store) -> None:
    await filled(store)
    assert await store.groups.drop_versions(RUN, ("(1", "+inf"), 10, "future_version", await store.view()) == 1
    books = await store.books()
    assert (books["queued"], books["buffered"]) == ({"queued", "foreign", "unversioned"}, {"buffered"})


async def test_versions_that_were_decided_on_before_a_change_of_the_run_drop_nothing(store: Store) -> None:
    """A rewind sets a lower version, and a change of settings may allow older groups."""
    await filled(store)
    view = await store.view()
    await store.runs.set_policy_version(RUN, 1, Trained(), 0)
    assert await store.groups.drop_versions(RUN, OLD, 10, STALE, view) is None
    view = await store.view()
    await store.runs.put(RUN, CONFIG, Policy(max_staleness=7), view.epoch)
    assert await store.groups.drop_versions(RUN, OLD, 10, STALE, view) is None
    assert (await store.books())["dropped"] == {}
