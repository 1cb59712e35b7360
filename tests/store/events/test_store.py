"""The stream of a run: bounded, without repetitions, and gone with the run."""

import re

from app import events
from app.store.events.scripts import NewEvent
from app.store.events.store import OLDEST, EventStore, Flush
from app.store.groups.entries import Placement
from app.store.redis.keys import RunKeys
from app.store.redis.scripts import LUA_DIR
from app.store.runs.store import RunStore
from tests.core.views import TTL_MS
from tests.store.conftest import KEYS, RUN, Store, encoded

HELD_BACK_MS = 3_600_000


def flush(name: str, *kinds: str, since: str = OLDEST) -> dict[str, Flush]:
    return {RUN: Flush(name, since, [NewEvent(0, f'{{"kind":"{kind}"}}') for kind in kinds])}


async def hold_back(store: Store) -> None:
    """Make the last drops look as if they had been told an hour from now: the next ones wait for that and 5 s."""
    await store.redis.hincrby(KEYS.run, "drops_told_ms", HELD_BACK_MS - 5000)  # type: ignore[misc]


async def kinds(store: EventStore, after: str = OLDEST) -> list[str]:
    return [event.kind for event in (await store.read({RUN: after}, 10_000))[RUN].events]


async def test_a_repeated_flush_adds_nothing_also_after_events_of_others(store: Store) -> None:
    own = EventStore(store.connection)
    first = await own.add(flush("one", "a", "b"))
    await own.add(flush("other", "c"))
    assert await own.add(flush("one", "a", "b")) == first
    second = await own.add(flush("two", "d", since=first[RUN]))
    assert await own.add(flush("two", "d", since=first[RUN])) == second
    assert await kinds(own) == ["a", "b", "c", "d"]


async def test_an_event_has_the_time_at_which_it_happened(store: Store) -> None:
    own = EventStore(store.connection)
    await own.add({RUN: Flush("one", OLDEST, [NewEvent(1500, '{"kind":"a"}')])})
    (event,) = (await own.read({RUN: OLDEST}, 10))[RUN].events
    assert event.facts["time_s"] == (int(event.event_id.partition("-")[0]) - 1500) / 1000


async def test_a_run_that_is_gone_gets_no_events(store: Store) -> None:
    own = EventStore(store.connection)
    await own.add(flush("one", "a"))
    await store.runs.reset(RUN, "token")
    await store.garbage.delete_marked(RUN)
    assert await store.runs.forget(RUN)
    assert await own.add(flush("late", "b")) == {RUN: ""}
    await own.change_alerts(RUN, {"starvation": "nothing"})
    read = (await own.read({RUN: OLDEST}, 10))[RUN]
    assert (list(read.events), read.run_exists) == ([], False)
    assert await store.redis.keys(KEYS.called("*")) == []


async def test_what_is_no_longer_kept_is_missing_for_those_who_saw_older_events_only(store: Store) -> None:
    own = EventStore(store.connection, most=10)
    oldest = (await own.add(flush("first", "seen")))[RUN]
    young = (await own.read({RUN: "0-0"}, 10))[RUN]
    assert not young.missing, "nothing was removed"
    await own.add(flush("many", *(f"event {n}" for n in range(500))))
    kept = (await own.read({RUN: OLDEST}, 10_000))[RUN]
    assert 10 <= len(kept.events) <= 200
    assert not kept.missing, "nothing else was asked for"
    assert (await own.read({RUN: oldest}, 1))[RUN].missing
    assert (await own.read({RUN: "0-0"}, 1))[RUN].missing
    assert not (await own.read({RUN: kept.events[0].event_id}, 1))[RUN].missing
    assert not (await own.read({RUN: kept.events[-1].event_id}, 1))[RUN].missing


async def test_each_dropped_group_is_counted_once_with_its_environment(store: Store) -> None:
    own = EventStore(store.connection)
    for n in range(3):
        await store.admit(encoded(), place=Placement(0, dropped="zero_variance"))
        await store.admit(encoded(), place=Placement(None if n else 0, dropped="too_long"))
    await store.tick()
    await hold_back(store)
    await store.admit(encoded(), place=Placement(0, dropped="too_long"))
    await store.tick()
    told = [event.facts for event in (await own.read({RUN: OLDEST}, 10))[RUN].events]
    found = {one["reason"]: (one["groups"], one["environments"]) for one in told}
    assert found == {"too_long": (3, {"0": 1, "none": 2}), "zero_variance": (3, {"0": 3})}, "the last one waits"
    await store.pass_time(HELD_BACK_MS)
    await store.tick()
    assert [event.facts["environments"] for event in (await own.read({RUN: OLDEST}, 10))[RUN].events][2:] == [{"0": 1}]
    await store.tick()
    assert len(await kinds(own)) == 3


async def test_counts_that_were_told_move_with_those_of_a_forgotten_environment(store: Store) -> None:
    own = EventStore(store.connection)
    await store.admit(encoded(), place=Placement(0, dropped="too_long"))
    await store.tick()
    await store.admit(encoded(), place=Placement(0, dropped="too_long"))
    view = await store.view()
    assert await store.environments.forget(RUN, [view.environments[0]], view)
    await store.pass_time(5000)
    await store.tick()
    told = [event.facts["environments"] for event in (await own.read({RUN: OLDEST}, 10))[RUN].events]
    assert told == [{"0": 1}, {"none": 1}]


async def test_a_run_with_drops_to_tell_does_not_sleep(store: Store) -> None:
    await store.admit(encoded(), place=Placement(0, dropped="too_long"))
    await store.tick()
    await hold_back(store)
    await store.admit(encoded(), place=Placement(0, dropped="too_long"))
    await store.tick()
    assert not await store.redis.hexists(KEYS.run, "asleep_ms")  # type: ignore[misc]
    await store.redis.hset(KEYS.run, "drops_told_ms", -5000)  # type: ignore[misc]
    await store.tick()
    assert await store.redis.hexists(KEYS.run, "asleep_ms")  # type: ignore[misc]


async def test_an_alert_is_an_event_when_it_begins_and_when_it_ends(store: Store) -> None:
    own, other = EventStore(store.connection), EventStore(store.connection)
    for alerts in ({}, {"a": "why a"}, {"a": "later"}, {"a": "later", "b": "why b"}, {"b": "why b"}, {}):
        await own.change_alerts(RUN, alerts)
        await other.change_alerts(RUN, alerts)
    told = [event.facts for event in (await own.read({RUN: OLDEST}, 10))[RUN].events]
    assert [(one["kind"], one["alert"], one.get("detail")) for one in told] == [
        ("alert raised", "a", "why a"),
        ("alert raised", "b", "why b"),
        ("alert cleared", "a", None),
        ("alert cleared", "b", None),
    ]


async def test_events_survive_a_reset(store: Store) -> None:
    own = EventStore(store.connection)
    await own.add(flush("one", "a"))
    await store.runs.reset(RUN, "token")
    assert await kinds(own) == ["a"]


async def test_the_newest_id_of_a_run_without_events_comes_before_all(store: Store) -> None:
    own = EventStore(store.connection)
    assert await own.newest("none") == "0-1"
    assert await own.newest(RUN) == "0-1"
    added = await own.add(flush("one", "a", "b"))
    assert await own.newest(RUN) == added[RUN]
    assert RunKeys("none").events not in await store.redis.keys("*")
    assert await RunStore(store.connection, TTL_MS).names() == [RUN]


def test_scripts_tell_of_kinds_that_are_declared() -> None:
    told = {kind for path in LUA_DIR.rglob("*.lua") for kind in re.findall(r"kind = '([^']+)'", path.read_text())}
    declared = {object.__new__(one).message for one in events.Event.__subclasses__()}
    assert told == {"groups dropped", "alert raised", "alert cleared"}
    assert told <= declared


def test_no_event_has_a_field_that_every_event_has() -> None:
    for one in events.Event.__subclasses__():
        assert not one.is_stored or not {"id", "time_s", "kind", "shortened"} & one.__dataclass_fields__.keys(), one
