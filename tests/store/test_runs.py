"""A run's configuration and policy: changed by whoever saw it as it is, and by nobody else."""

from dataclasses import replace

from app.core.leasing import LeaseState
from app.core.policy import FutureVersions, Policy
from tests.store.conftest import CONFIG, RUN, Store, encoded

POLICY = Policy(max_staleness=3, future_versions=FutureVersions.REFUSE, lease_s=5.0, keep_batches=2, keep_bytes=9)


async def test_a_policy_is_written_once_however_often_it_is_sent(store: Store) -> None:
    epoch = (await store.view()).epoch
    for _ in range(2):
        assert await store.runs.put(RUN, CONFIG, POLICY, epoch, step=7)
    view, roster = await store.view(), await store.runs.roster(RUN)
    assert (view.config, view.policy, view.step, view.epoch) == (CONFIG, POLICY, 7, epoch + 1)
    assert (roster.policy, roster.epoch, roster.configured) == (POLICY, epoch + 1, True)


async def test_a_policy_that_was_decided_on_an_older_run_changes_nothing(store: Store) -> None:
    epoch = (await store.view()).epoch
    assert await store.runs.put(RUN, CONFIG, POLICY, epoch)
    assert not await store.runs.put(RUN, replace(CONFIG, batch_size=8), Policy(), epoch)
    view = await store.view()
    assert (view.config, view.policy, view.epoch) == (CONFIG, POLICY, epoch + 1)


async def test_a_run_goes_on_at_its_step_unless_it_is_told_another(store: Store) -> None:
    await store.admit(encoded(), ids=["one"])
    await store.take("one")
    assert await store.runs.put(RUN, CONFIG, POLICY, (await store.view()).epoch)
    assert (await store.view()).step == 1


async def test_what_is_running_is_noted_of_environments_that_are_there(store: Store) -> None:
    for environment in (0, 1):
        await store.runs.note_running(RUN, environment, 3)
    await store.runs.note_running(RUN, 0, 4)
    assert (await store.view()).running == {0: 4}


async def test_what_environments_sent_adds_up(store: Store) -> None:
    await store.admit(encoded(1), encoded(2))
    await store.pass_time(1000)
    await store.admit(encoded(3))
    view = await store.view()
    assert (view.sent[0].sequences, view.sent[0].last_size) == (6, 2)
    assert 1000 <= view.sent[0].last_ms <= view.clock_ms
    assert view.environments[0].heard_ms == view.sent[0].last_ms


async def test_a_trainer_of_atropos_that_registers_takes_no_batch_from_one_that_holds_it(store: Store) -> None:
    for number, state in enumerate((LeaseState.HELD, LeaseState.SENT, LeaseState.QUARANTINED)):
        await store.admit(encoded(), ids=[f"group{number}"])
        lease = await store.take(f"group{number}")
        assert await store.batches.change(RUN, lease, replace(lease, state=state))
    assert await store.runs.register(RUN, replace(CONFIG, batch_size=8))
    assert not await store.runs.register(RUN, replace(CONFIG, batch_size=8))
    states = [lease.state for lease in (await store.view()).leases]
    assert sorted(states) == [LeaseState.HELD, LeaseState.QUARANTINED, LeaseState.RETURNED]
    await store.books()
