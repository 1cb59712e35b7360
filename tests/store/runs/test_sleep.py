"""A run in which nothing happens sleeps: nobody ticks it, and its clock goes on."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields, replace

import pytest

from app.core.runs.settings import Policy
from app.store.groups.entries import Placement
from app.store.redis import scripts
from app.store.redis.keys import PROCESSES, RUNS, SERVICE
from app.store.replay.samples import SampleManifest
from app.store.runs.processes import Maintained, ProcessStore
from app.store.runs.tick import NO_TICK, LastTick, PendingHeartbeats, Tick
from lachesis.wire.errors import StoreRefused
from tests.services.replay.moves import fragment
from tests.store.conftest import CONFIG, KEYS, RUN, Store, encoded
from tests.store.replay.moves import moves_on, replay_moves

Step = Callable[[Store], Awaitable[object]]
US, OTHER = "host/1/us", "host/2/other"
HOUR_MS = 3_600_000


async def is_due(store: Store) -> bool:
    """Return whether the process that maintains runs ticks this one."""
    maintained = await ProcessStore(store.connection).beat(US)
    assert maintained is not None
    return RUN in maintained.due


async def serve_for(store: Store, ms: int) -> None:
    """Let the service be served for a time."""
    await store.redis.hincrby(SERVICE, "clock_ms", ms)  # type: ignore[misc]


async def fall_asleep(store: Store) -> None:
    """Let the run sleep, also if it has leases or a replay buffer."""
    await tick_again(store, HOUR_MS)
    assert not await is_due(store)


async def test_a_run_with_nothing_to_do_is_not_ticked_and_its_clock_goes_on(store: Store) -> None:
    assert await is_due(store), "it is new"
    await store.tick()
    assert not await is_due(store)
    before_ms = (await store.view()).clock_ms
    await serve_for(store, HOUR_MS // 4)
    assert not await is_due(store)
    asleep_ms = (await store.view()).clock_ms
    assert asleep_ms >= before_ms + HOUR_MS // 4
    assert await store.members.put(RUN, 0, "one")
    awake_ms = (await store.view()).clock_ms
    assert asleep_ms <= awake_ms < asleep_ms + 60_000, "a script and a view read it by the same rule"
    assert await is_due(store)


async def test_an_outage_moves_the_clock_of_a_sleeping_run_like_any_other(store: Store) -> None:
    await fall_asleep(store)
    before_ms = (await store.view()).clock_ms
    await store.redis.hincrby(SERVICE, "time_ms", -HOUR_MS)  # type: ignore[misc]
    assert before_ms <= (await store.view()).clock_ms <= before_ms + 3000 + 1000
    await store.members.put(RUN, 0, "one")
    assert before_ms <= (await store.view()).clock_ms < before_ms + 60_000


async def test_a_service_clock_that_lost_its_last_writes_turns_no_run_back(store: Store) -> None:
    """Redis may lose its last writes in a crash. Then the service clock is before the moment the run fell asleep."""
    await fall_asleep(store)
    asleep_ms = int(await store.redis.hget(KEYS.run, "clock_ms"))  # type: ignore[misc, arg-type]
    await serve_for(store, -HOUR_MS)
    assert (await store.view()).clock_ms == asleep_ms
    await store.members.put(RUN, 0, "one")
    assert (await store.view()).clock_ms >= asleep_ms


async def change(store: Store, policy: Policy) -> None:
    """Change the policy of the run. No group waits, so the sweep for it is done."""
    await store.runs.put(RUN, CONFIG, policy, (await store.view()).epoch)
    sweep = await store.runs.requested_sweep(RUN)
    assert sweep is not None
    await store.runs.finish_sweep(RUN, sweep)


async def _aging(store: Store) -> None:
    await change(store, Policy(max_age_s=60.0))
    await store.admit(encoded())


async def _pending(store: Store) -> None:
    await store.admit(encoded(), encoded(), ids=["trained", "newest"])
    assert await store.acknowledge(await store.take("trained")) == 1


async def _leased(store: Store) -> None:
    await store.admit(encoded(), ids=["taken"])
    await store.take("taken")


BUSY: dict[str, Step] = {
    "a member": lambda store: store.members.put(RUN, 0, "one"),
    "a group in a buffer": lambda store: store.admit(encoded(), place=Placement(0, buffered=True)),
    "a payload to delete": _pending,
    "a lease": _leased,
    "a group that grows too old": _aging,
    "a replay buffer": replay_moves,
    "a trainer that waits": lambda store: store.runs.note_waiting(RUN),
}


@pytest.mark.parametrize("make", BUSY.values(), ids=BUSY)
async def test_a_run_is_ticked_while_anything_can_expire(store: Store, make: Step) -> None:
    await make(store)
    for _ in range(2):
        await store.tick()
        assert await is_due(store)


WITH_WORK_LATER = {name: BUSY[name] for name in ("a lease", "a replay buffer")}


async def tick_again(store: Store, in_ms: int | None, between: Step | None = None) -> None:
    """Tick twice. The second tick knows in which time leases and the buffer need work."""
    clock_ms = (await store.tick()).clock_ms
    if between is not None:
        await between(store)
    await store.runs.tick(RUN, LastTick(clock_ms, None if in_ms is None else clock_ms + in_ms))


@pytest.mark.parametrize("make", WITH_WORK_LATER.values(), ids=WITH_WORK_LATER)
async def test_a_run_sleeps_until_its_leases_and_its_buffer_need_work(store: Store, make: Step) -> None:
    await make(store)
    await tick_again(store, 600_000)
    assert not await is_due(store)
    await serve_for(store, 540_000)
    assert not await is_due(store)
    await serve_for(store, 120_000)
    assert await is_due(store)


STAYING_AWAKE: dict[str, tuple[int | None, Step | None]] = {
    "the time is not known": (None, None),
    "the time is soon": (20_000, None),
    "the time has passed": (-20_000, None),
    "something has happened": (HOUR_MS, lambda store: store.pass_time(1)),
}


@pytest.mark.parametrize("make", WITH_WORK_LATER.values(), ids=WITH_WORK_LATER)
@pytest.mark.parametrize(("in_ms", "between"), STAYING_AWAKE.values(), ids=STAYING_AWAKE)
async def test_a_run_whose_leases_or_buffer_may_need_work_stays_awake(
    store: Store, make: Step, in_ms: int | None, between: Step | None
) -> None:
    await make(store)
    await tick_again(store, in_ms, between)
    assert await is_due(store)


async def test_a_tick_says_whether_anything_has_happened_since_the_last_one(store: Store) -> None:
    first = await store.runs.tick(RUN)
    second = await store.runs.tick(RUN, LastTick(first.clock_ms))
    await store.pass_time(1)
    third = await store.runs.tick(RUN, LastTick(second.clock_ms))
    assert (first.calm, second.calm, third.calm) == (False, True, False)


@pytest.mark.parametrize(
    ("what", "fact"),
    [
        ("a group in a buffer", "buffered"),
        ("a payload to delete", "unreferenced"),
        ("a lease", "leased"),
        ("a group that grows too old", "aging"),
        ("a replay buffer", "replay"),
    ],
)
async def test_a_tick_says_what_there_is_to_do(store: Store, what: str, fact: str) -> None:
    await BUSY[what](store)
    true = {name for name, value in asdict(await store.tick()).items() if value is True}
    assert true - {"environments", "held"} == {fact}


def test_the_script_of_ticks_knows_every_fact_and_no_other() -> None:
    noted = re.findall(r"^note\('(\w+)'", scripts.paths()["tick"].read_text(), re.M)
    assert sorted(noted) == sorted(field.name for field in fields(Tick) if field.type is bool)


async def _kept(store: Store) -> None:
    await store.admit(encoded(), ids=["kept"])
    await store.acknowledge(await store.take("kept"), keep=True)
    await store.admit(encoded(), ids=["newest"])  # whose payload is kept in any case


async def _refused(store: Store) -> None:
    await store.redis.set(KEYS.known, "x")
    with pytest.raises(StoreRefused):
        await store.admit(encoded())


async def _change_lease(store: Store) -> None:
    (lease,) = (await store.view()).leases
    assert await store.batches.change(RUN, lease, replace(lease, state="returned"))


async def _with_chunk(store: Store) -> None:
    await (await replay_moves(store, fragments_per_chunk=1)).insert(fragment(0))


async def _sample(store: Store) -> None:
    assert isinstance(await moves_on(store).take(0), SampleManifest)


WAKING: dict[str, tuple[Step, Step]] = {
    "a submission": (lambda store: store.tick(), lambda store: store.admit(encoded())),
    "a refused submission": (lambda store: store.tick(), _refused),
    "a batch is taken": (lambda store: store.admit(encoded(), ids=["taken"]), lambda store: store.take("taken")),
    "a member joins": (lambda store: store.tick(), lambda store: store.members.put(RUN, 0, "one")),
    "an environment is heard": (
        lambda store: store.tick(),
        lambda store: store.runs.record_heartbeats({RUN: PendingHeartbeats({0: 1})}),
    ),
    "a lease is changed": (_leased, _change_lease),
    "a sample is taken": (_with_chunk, _sample),
    "a kept batch is released": (_kept, lambda store: store.batches.release_kept(RUN, ["batch1"])),
    "a reset": (lambda store: store.admit(encoded()), lambda store: store.runs.reset(RUN, "token")),
    "a trainer waits": (lambda store: store.tick(), lambda store: store.runs.note_waiting(RUN)),
}


@pytest.mark.parametrize(("prepare", "wake"), WAKING.values(), ids=WAKING)
async def test_what_happens_in_a_run_that_sleeps_wakes_it(store: Store, prepare: Step, wake: Step) -> None:
    await prepare(store)
    await fall_asleep(store)
    await wake(store)
    assert await is_due(store)


async def test_a_run_sleeps_half_a_minute_after_the_last_trainer_waited(store: Store) -> None:
    await store.runs.note_waiting(RUN)
    await store.pass_time(25_000)
    await store.tick()
    assert await is_due(store)
    await store.pass_time(5_000)
    await fall_asleep(store)


async def test_a_run_wakes_when_it_has_to_forget_something(store: Store) -> None:
    await change(store, Policy(history_retention_s=600.0, dedup_window_s=300.0))
    await store.admit(encoded(given="given"), place=Placement(0, dropped="stale"))
    await fall_asleep(store)
    await serve_for(store, 540_000)
    assert not await is_due(store)
    await serve_for(store, 120_000)
    assert await is_due(store)
    assert (await store.tick()).due


async def test_what_is_due_first_is_due_although_groups_are_remembered_for_longer(store: Store) -> None:
    await store.admit(encoded(), encoded(2), ids=["one", "two"])
    await store.acknowledge(await store.take("one"))
    await store.redis.hset(KEYS.run, "remembered_ms", 10 * HOUR_MS)  # type: ignore[misc]
    assert not (await store.tick()).due
    await store.pass_time(HOUR_MS + 1000)
    assert (await store.tick()).due, "the end of a batch"


async def test_one_process_maintains_runs_until_it_is_silent_or_leaves(store: Store) -> None:
    processes = ProcessStore(store.connection)
    assert await processes.beat(US) == Maintained(1, [RUN])
    assert await processes.beat(OTHER) is None
    assert await processes.beat(US) == Maintained(1, [RUN]), "it goes on in the same term"
    await store.redis.zincrby(PROCESSES, -2001, US)
    assert await processes.beat(OTHER) == Maintained(2, [RUN])
    assert await processes.beat(US) is None, "it was paused, and is not needed any more"
    await processes.remove(OTHER)
    assert await processes.beat(US) == Maintained(3, [RUN])


async def test_a_tick_of_an_earlier_term_changes_nothing(store: Store) -> None:
    processes = ProcessStore(store.connection)
    await store.members.put(RUN, 0, "silent")
    await processes.beat(US)
    await processes.remove(US)
    await processes.beat(OTHER)
    await store.pass_time(2 * HOUR_MS)
    before = await store.redis.hgetall(KEYS.run)  # type: ignore[misc]
    assert await store.runs.tick_all({RUN: NO_TICK}, 1) == {}
    assert await store.redis.hgetall(KEYS.run) == before  # type: ignore[misc]
    assert (await store.runs.tick_all({RUN: NO_TICK}, 2))[RUN].expired == ((0, "silent"),)


async def test_a_run_that_is_forgotten_is_not_due(store: Store) -> None:
    await store.runs.reset(RUN, "token")
    await store.garbage.delete_marked(RUN)
    assert await store.runs.forget(RUN)
    assert await store.redis.zscore(RUNS, RUN) is None
    assert not await is_due(store)
