"""A run's configuration and policy: a change succeeds only if its caller saw the present version."""

from dataclasses import replace

from redis.asyncio import Redis

from app.core.batches.leases import Lease, as_returned
from app.core.model import PlannedGroup
from app.core.runs.settings import Policy
from app.store.groups.entries import Placement
from app.store.redis.keys import RUNS
from app.store.redis.settings_text import settings_text
from app.store.replay.store import ReplayStore
from app.store.runs import scripts
from app.store.runs.lease_codec import lease_text
from lachesis.wire.filters import PassRateFilter, RewardRangeFilter, ZeroVarianceFilter
from lachesis.wire.replay import ReplaySettings
from tests.store.conftest import CONFIG, KEYS, LASTING_MS, RUN, Store, encoded

POLICY = Policy(
    max_staleness=3,
    future_versions="refuse",
    lease_s=5.0,
    keep_batches=2,
    keep_bytes=9,
    filter_zero_variance=ZeroVarianceFilter(),
    filter_reward_range=RewardRangeFilter(above=-1.0, loss_weight=0.5),
    filter_pass_rate=PassRateFilter(below=None),
)


async def test_a_policy_is_written_once_however_often_it_is_sent(store: Store) -> None:
    epoch = (await store.view()).epoch
    assert await store.runs.put(RUN, CONFIG, POLICY, epoch, step=7, made_by="request")
    written = await store.view()
    assert await store.runs.put(RUN, CONFIG, POLICY, epoch, step=7, made_by="request")
    assert not await store.runs.put(RUN, CONFIG, POLICY, epoch, step=7, made_by="another")
    view, context = await store.view(), await store.runs.admission_context(RUN)
    assert view.epoch == written.epoch > epoch
    assert (view.config, view.policy, view.step) == (CONFIG, POLICY, 7)
    assert (context.policy, context.epoch, context.batch_size) == (POLICY, view.epoch, CONFIG.batch_size)


async def test_a_policy_that_was_decided_on_an_older_run_changes_nothing(store: Store) -> None:
    epoch = (await store.view()).epoch
    assert await store.runs.put(RUN, CONFIG, POLICY, epoch)
    written = await store.view()
    assert not await store.runs.put(RUN, CONFIG.model_copy(update={"batch_size": 8}), Policy(), epoch)
    view = await store.view()
    assert (view.config, view.policy, view.epoch) == (CONFIG, POLICY, written.epoch)


async def test_what_cannot_be_a_run_is_none(store: Store, redis_client: Redis) -> None:
    await redis_client.zadd(RUNS, dict.fromkeys(["-x", "x" * 65, b"\xff", "", "b"], 0))
    assert await store.runs.names() == ["b", RUN]


async def test_a_run_continues_at_its_step_unless_a_trainer_gives_another(store: Store) -> None:
    await store.admit(encoded(), ids=["one"])
    await store.take("one")
    assert await store.runs.put(RUN, CONFIG, POLICY, (await store.view()).epoch)
    assert (await store.view()).step == 1


async def test_epochs_of_a_run_that_is_made_again_do_not_repeat(store: Store) -> None:
    epoch = (await store.view()).epoch
    await store.runs.reset(RUN, "token")
    assert await store.runs.forget(RUN)
    assert await store.runs.put(RUN, CONFIG, POLICY, 0)
    assert (await store.view()).epoch >= epoch
    assert await store.runs.names() == [RUN]


async def test_a_reset_repeats_no_epoch_although_the_clock_of_redis_went_back(store: Store) -> None:
    """New epochs of a run without one begin with that clock."""
    later = 10 * (await store.view()).epoch
    await store.redis.hset(KEYS.run, "epoch", later)  # type: ignore[misc]
    await store.runs.reset(RUN, "token")
    assert (await store.view()).epoch > later


async def test_a_run_is_kept_for_a_day_after_a_reset(store: Store) -> None:
    """It knows the reset, and so deletes nothing when the command is repeated late."""
    await store.runs.reset(RUN, "token")
    await store.garbage.delete_marked(RUN)
    assert (await store.tick()).held
    await store.pass_time(24 * LASTING_MS)
    assert not (await store.tick()).held


async def test_a_repeated_reset_deletes_nothing_that_came_since(store: Store) -> None:
    """The first answer was lost."""
    await store.admit(encoded(), ids=["before"])
    assert await store.runs.reset(RUN, "token") == "reset"
    await store.admit(encoded(), ids=["since"])
    assert await store.runs.reset(RUN, "token") == "reset"
    assert (await store.books())["queued"] == {"since"}
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"since"}
    assert await store.runs.reset(RUN, "another") == "reset"
    assert (await store.books())["queued"] == set()


async def test_a_repeated_reset_succeeds_though_the_run_is_a_native_one_since(store: Store) -> None:
    assert await store.runs.reset(RUN, "token", spare_native=True) == "reset"
    assert await store.runs.put(RUN, CONFIG, POLICY, (await store.view()).epoch, made_by="request")
    assert await store.runs.reset(RUN, "token", spare_native=True) == "reset"
    assert await store.runs.reset(RUN, "another", spare_native=True) == "spared"
    assert (await store.view()).config == CONFIG


async def test_who_waits_for_a_batch_is_woken_by_all_that_could_make_one(store: Store) -> None:
    async def told() -> list[str]:
        messages = []
        while message := await listener.get_message(ignore_subscribe_messages=True, timeout=0.05):
            messages.append(message["data"].decode())
        return messages

    async with store.redis.pubsub() as listener:
        await listener.subscribe(KEYS.run)
        await listener.get_message(timeout=5)  # that we listen now
        await store.admit(encoded(), ids=["one"])
        assert await told() == ["admitted"]
        lease = await store.take("one")
        assert await told() == []
        assert await store.batches.mark_returned(RUN, lease)
        assert await told() == ["returned"]
        lease = as_returned(lease)
        groups = await store.batches.groups_of(RUN, lease.batch_id) or []
        assert await store.batches.dissolve(RUN, lease, groups, LASTING_MS)
        assert await told() == ["given back"]
        await store.acknowledge(await store.take("one"), keep=True)
        again = Lease("batch2", "returned", "", 1, 2, relaxed=False)
        assert await store.rewind(0, [again])
        assert await told() == ["rewound"]
        assert await store.runs.put(RUN, CONFIG, POLICY, (await store.view()).epoch)
        assert await told() == ["changed"]
        await store.admit(encoded(), ids=["two"], place=Placement(0, buffered=True))
        assert await told() == ["admitted"]
        (lane,) = await store.groups.buffer_heads(RUN, {(0, 2): (1, 1)})
        head = lane.heads[0]
        assert await store.groups.release_buffered(RUN, [PlannedGroup(head.arrival, head.group_id, 0, 2)])
        assert await told() == ["released"]


async def test_what_environments_sent_adds_up(store: Store) -> None:
    await store.admit(encoded(1), encoded(2))
    await store.pass_time(1000)
    await store.admit(encoded(3))
    view = await store.view()
    assert (view.sent[0].sequences, view.sent[0].last_size) == (6, 2)
    assert 1000 <= view.sent[0].last_ms <= view.clock_ms
    assert view.environments[0].heard_ms == view.sent[0].last_ms


async def test_a_trainer_of_atropos_that_registers_takes_no_batch_from_one_that_holds_it(store: Store) -> None:
    for number, state in enumerate(("held", "sent", "quarantined")):
        await store.admit(encoded(), ids=[f"group{number}"])
        lease = await store.take(f"group{number}")
        assert await store.batches.change(RUN, lease, replace(lease, state=state))
    assert await store.runs.register(RUN, CONFIG.model_copy(update={"batch_size": 8}))
    assert not await store.runs.register(RUN, CONFIG.model_copy(update={"batch_size": 8}))
    states = [lease.state for lease in (await store.view()).leases]
    assert sorted(states) == ["held", "quarantined", "returned"]
    await store.books()


async def test_a_registration_with_the_configuration_of_another_build_continues_the_step(store: Store) -> None:
    """Builds may encode the same configuration differently."""
    await store.admit(encoded(), ids=["one"])
    await store.take("one")
    text = '{"batch_size":4,"max_token_len":512,"num_steps":100}'
    await store.redis.hset(KEYS.run, "config", text)  # type: ignore[misc]
    before = await store.view()
    assert not await store.runs.register(RUN, CONFIG)
    after = await store.view()
    assert (after.config, after.step, after.epoch) == (CONFIG, 1, before.epoch)


async def test_what_comes_too_late_for_a_run_that_was_removed_leaves_no_key(store: Store) -> None:
    await store.admit(encoded(1), ids=["one"])
    lease = await store.take("one")
    await store.runs.reset(RUN, "token")
    await store.garbage.delete_marked(RUN)
    assert await store.runs.forget(RUN)
    assert await store.acknowledge(lease) == 0
    assert await store.batches.release_kept(RUN, [lease.batch_id], checkpoint=1) == 0
    assert await store.groups.drop(RUN, [("one", (0, 2))], "stale") == 0
    assert not await ReplayStore(store.connection).put(RUN, ReplaySettings(), 0, 0.0, "", settle=False)
    assert [key async for key in store.redis.scan_iter("*")] == []


async def test_a_registration_that_read_an_older_lease_changes_nothing(store: Store) -> None:
    """Else a batch that was acknowledged in the meantime had a lease again, without groups."""
    await store.admit(encoded(), ids=["one"])
    lease = await store.take("one")
    assert await store.acknowledge(lease) == 1
    view = await store.view()
    change = scripts.LeaseChange(lease.batch_id, lease_text(lease), lease_text(replace(lease, state="returned")))
    registration = scripts.register_trainer(
        KEYS,
        epoch=view.epoch,
        step=view.step,
        config=settings_text(CONFIG.model_copy(update={"batch_size": 8})),
        starting_step=3,
        leases=[change],
    )
    assert await store.connection.run(registration) == -1
    after = await store.view()
    assert (after.leases, after.config, after.epoch) == ((), CONFIG, view.epoch)


async def test_a_reset_that_does_not_name_a_new_buffer_changes_nothing(store: Store) -> None:
    """Else its groups would be in the next run of this name."""
    await store.admit(encoded(), ids=["buffered"], place=Placement(0, buffered=True))
    reset = scripts.reset_run(
        KEYS,
        payload_hashes=[],
        deleted=list(KEYS.state()),
        spare_native=False,
        spare_archived=False,
        tokens=["token"],
        name=RUN,
        epoch=str((await store.view()).epoch),
        names=[],
    )
    assert await store.connection.run(reset) == 0
    assert (await store.books())["buffered"] == {"buffered"}
