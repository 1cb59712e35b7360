"""What was taken may come back in unusual ways; a run's memory of it stays right."""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.main import build_services
from app.services.batches import retention
from app.services.batches.request import BatchRequest, OutgoingBatch
from app.settings import ServiceSettings
from app.store.batches import store
from app.store.groups.encoded_group import EncodedGroup
from app.store.redis import scripts
from app.store.redis.client import RedisClient
from app.store.redis.pipeline import Command
from lachesis.wire.errors import InvalidField, LeaseLost, RewindImpossible
from tests.lossy_line import LossyLine
from tests.script_names import name_of
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded, join
from tests.waiting import wait_until

BYTES = len(encoded(2, 0).payload)
NEW_CONFIG = config(2).model_copy(update={"wandb_group": "anew"})
FEW = 4  # kept batches that are read when a batch ends
KEEPING = Policy(keep_batches=8, keep_bytes=1024**2, max_deliveries=1)


def named(name: str, *, version: int | None = None) -> EncodedGroup:
    return encoded(2, 0)._replace(given_id=name, policy_version=version)


async def taken(services: Services, lease_s: float = 600.0) -> OutgoingBatch:
    answer = await services.batches.dispatch.take(RUN, BatchRequest(lease_s=lease_s))
    assert answer.batch is not None
    return answer.batch


async def rewound_to(services: Services, step: int) -> list[str]:
    """Rewind; the batches that come again."""
    return [lease.batch_id for lease in (await services.batches.retention.rewind(RUN, step)).batches]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (store, retention):
        monkeypatch.setattr(module, "OLDEST_KEPT_READ", FEW)
    monkeypatch.setattr(store, "_KEPT_LEASES_READ_AT_ONCE", FEW)


@pytest.fixture
async def services(process: Callable[..., Process]) -> Services:
    found, _ = process()
    await found.runs.administration.create(RUN, config(2), KEEPING)
    return found


async def test_a_rewind_does_not_promise_batches_that_are_quarantined(services: Services) -> None:
    await services.groups.native.submit(RUN, [named("a"), named("b")])
    poison = await taken(services, lease_s=0.001)
    second = await taken(services)
    assert second.lease.step == 2
    rewound = await services.batches.retention.rewind(RUN, 0)
    assert [lease.batch_id for lease in rewound.batches] == [second.lease.batch_id]
    assert [lease.batch_id for lease in rewound.quarantined] == [poison.lease.batch_id]
    with pytest.raises(LeaseLost):
        await services.batches.leases.acknowledge(RUN, poison.lease.batch_id, poison.lease.lease_id)


async def test_a_rewind_ends_a_lease_of_its_state_that_is_extended_at_the_same_moment(
    services: Services, redis_url: str
) -> None:
    """The batch was handed out again, and trained on twice, if its old trainer died before it acknowledged."""
    await services.groups.native.submit(RUN, [named("a")])
    lease, tries = (await taken(services)).lease, Counter[str | None]()

    class Meanwhile(RedisClient):
        async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
            name = name_of(commands[0])
            tries[name] += 1
            if name == "acknowledge_batches" and tries[name] == 1:
                await services.batches.leases.extend(RUN, lease.batch_id, lease.lease_id, 1200.0)
            return await super().pipeline(commands)

    connection = Meanwhile(redis_url, 5.0)
    other = build_services(ServiceSettings(redis_url=SecretStr(redis_url)), connection, "tested")
    assert await rewound_to(other, lease.step) == []
    assert tries["acknowledge_batches"] == 2
    assert (await services.runs.administration.get(RUN)).leases == ()
    assert (await services.groups.histories.of(RUN, "a")).group.state == "delivered"
    await connection.aclose()


async def test_a_group_that_waits_again_after_a_rewind_is_leased_not_delivered(services: Services) -> None:
    await services.groups.native.submit(RUN, [named("a")])
    batch = await taken(services)
    await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    assert (await services.groups.histories.of(RUN, "a")).group.state == "delivered"
    await services.batches.retention.rewind(RUN, 0)
    assert (await services.groups.histories.of(RUN, "a")).group.state == "leased"
    again = await taken(services)
    await services.batches.leases.give_back(RUN, again.lease.batch_id, again.lease.lease_id, None)
    assert (await services.groups.histories.of(RUN, "a")).group.state == "leased", "its batch waits whole"


async def test_a_trainer_that_registers_with_another_configuration_can_rewind_to_its_own_steps(
    services: Services, redis_client: Redis
) -> None:
    await services.runs.administration.change(RUN, {"keep_batches": 0})
    await services.groups.native.submit(RUN, [named(name) for name in "abcd"])
    for _ in range(3):
        batch = await taken(services)
        await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    with pytest.raises(RewindImpossible, match="step 3"):
        await services.batches.retention.rewind(RUN, 1)
    await services.runs.administration.change(RUN, {"keep_batches": 8})
    await services.runs.atropos.register(RUN, NEW_CONFIG)
    batch = await taken(services)
    assert batch.lease.step == 1
    await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    assert await rewound_to(services, 0) == [batch.lease.batch_id]
    await books_of(redis_client, RUN)


@pytest.mark.parametrize(("keep_batches", "step", "comes_again"), [(8, 0, True), (0, 1, False)])
async def test_a_rewind_hands_out_no_batch_from_before_another_configuration(
    services: Services, redis_client: Redis, keep_batches: int, step: int, comes_again: bool
) -> None:
    """The step of the new configuration is before theirs. Its trainer can save a state that has them."""
    await services.runs.administration.change(RUN, {"keep_batches": keep_batches})
    await services.groups.native.submit(RUN, [named(name) for name in "abc"])
    old = [await taken(services) for _ in range(2)]
    await services.runs.atropos.register(RUN, NEW_CONFIG)
    new = await taken(services)
    for batch in (*old, new):
        await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    assert await rewound_to(services, step) == [new.lease.batch_id] * comes_again
    await books_of(redis_client, RUN)


async def test_a_batch_that_is_taken_during_a_registration_comes_before_the_new_ones(
    process: Callable[..., Process], services: Services, lossy: tuple[LossyLine, str]
) -> None:
    line, url = lossy
    registering, _ = process(url)
    await services.groups.native.submit(RUN, [named("a")])
    line.hold(scripts.load("register_trainer").digest.encode())
    registration = asyncio.create_task(registering.runs.atropos.register(RUN, NEW_CONFIG))
    await wait_until(lambda: line.holds)
    await taken(services)
    line.heal()
    await line.deliver_late()
    await registration
    (lease,) = (await services.runs.administration.get(RUN)).leases
    assert lease.step == NEW_CONFIG.starting_step


async def test_of_two_rewinds_with_one_request_id_at_once_one_counts(
    process: Callable[..., Process], services: Services, lossy: tuple[LossyLine, str]
) -> None:
    """The run counted both, and refused the trainer that had the answer of the first."""
    line, url = lossy
    slow, _ = process(url)
    await services.groups.native.submit(RUN, [named(name) for name in "abc"])
    first = await taken(services)
    await services.batches.leases.acknowledge(RUN, first.lease.batch_id, first.lease.lease_id)
    poison = await taken(services, lease_s=0.001)
    await taken(services)
    line.hold(scripts.load("rewind_run").digest.encode())
    late = asyncio.create_task(slow.runs.administration.rewind(RUN, 0, "once"))
    await wait_until(lambda: line.holds)
    rewound = await services.runs.administration.rewind(RUN, 0, "once")
    line.heal()
    await line.deliver_late()
    assert await late == rewound
    assert ([lease.step for lease in rewound.batches], rewound.rewinds) == ([1, 3], 1)
    assert [lease.batch_id for lease in rewound.quarantined] == [poison.lease.batch_id]
    assert (await services.runs.administration.rewind(RUN, 0, "another")).rewinds == 2


async def test_the_id_of_a_rewind_is_refused_for_another_step(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    """The trainer got the batches of the other step, and never those that it asked for."""
    await services.groups.native.submit(RUN, [named(name) for name in "abc"])
    for _ in "abc":
        await taken(services)
    caplog.set_level(logging.INFO)
    rewound = await services.runs.administration.rewind(RUN, 1, "one")
    for step in (0, 2, 99):
        with pytest.raises(InvalidField, match="'one' is the id of a rewind to step 1"):
            await services.runs.administration.rewind(RUN, step, "one")
    assert await services.runs.administration.rewind(RUN, 1, "one") == rewound
    assert caplog.messages.count("rewind completed") == 1


async def test_a_rewind_whose_reply_redis_lost_counts_once(
    process: Callable[..., Process], services: Services, lossy: tuple[LossyLine, str]
) -> None:
    line, url = lossy
    unlucky, _ = process(url)
    line.lose_replies_to(scripts.load("rewind_run").digest.encode())
    rewinding = asyncio.create_task(unlucky.runs.administration.rewind(RUN, 0))
    await wait_until(lambda: line.lost)
    line.heal()
    line.cut()
    assert (await rewinding).rewinds == 1
    assert (await services.runs.administration.get(RUN)).rewinds == 1


async def test_a_rewind_to_a_step_that_is_yet_to_come_ends_nothing(services: Services) -> None:
    """It would count all that is in trainers' hands as trained on."""
    await services.groups.native.submit(RUN, [named("a")])
    await taken(services)
    with pytest.raises(InvalidField, match=r"^step: is 2, but the run is only at step 1"):
        await services.batches.retention.rewind(RUN, 2)
    assert len((await services.runs.administration.get(RUN)).leases) == 1


async def test_a_checkpoint_of_a_step_that_is_yet_to_come_takes_no_rewind_away(services: Services) -> None:
    """A checkpoint ends all rewinds to steps before it, so one in the future would end all rewinds."""
    await services.groups.native.submit(RUN, [named("a")])
    batch = await taken(services)
    await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    with pytest.raises(InvalidField, match=r"^step: is 2, but the run is only at step 1"):
        await services.batches.retention.checkpoint(RUN, 2)
    assert await rewound_to(services, 0) == [batch.lease.batch_id]


async def test_a_trainer_ahead_of_a_restored_service_follows_the_message_and_continues(services: Services) -> None:
    await services.groups.native.submit(RUN, [named("a")])
    batch = await taken(services)
    await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    remedy = "If the service was restored to an earlier state, rewind to step 1, then set the policy version"
    for ahead in (services.batches.retention.rewind(RUN, 9), services.batches.retention.checkpoint(RUN, 9)):
        with pytest.raises(InvalidField, match=remedy):
            await ahead
    assert await rewound_to(services, 1) == []
    await services.runs.administration.set_policy_version(RUN, 9)
    assert (await services.runs.administration.get(RUN)).policy_version == 9


async def test_a_run_that_is_set_to_keep_less_releases_the_rest_at_once(
    services: Services, redis_client: Redis
) -> None:
    for name in "abc":
        await services.groups.native.submit(RUN, [named(name)])
        batch = await taken(services)
        await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    for most, left in ((2, 2), (0, 0)):
        await services.runs.administration.change(RUN, {"keep_batches": most})
        view = await services.runs.administration.get(RUN)
        assert (view.kept.batches, view.kept.unkept_step) == (left, 3 - left)
        assert len((await books_of(redis_client, RUN))["kept"]) == left
    with pytest.raises(RewindImpossible):
        await services.batches.retention.rewind(RUN, 2)


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"keep_batches": 2}, 2),
        ({"keep_bytes": 2 * BYTES}, 2),
        ({"keep_bytes": 2 * BYTES - 1}, 1),
        ({"keep_bytes": 1}, 0),
    ],
)
async def test_with_each_batch_that_ends_the_oldest_beyond_a_limit_are_released(
    services: Services, redis_client: Redis, limits: dict[str, int], left: int
) -> None:
    await services.runs.administration.change(RUN, limits)
    for name in "abcd":
        await services.groups.native.submit(RUN, [named(name)])
        batch = await taken(services)
        await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    kept = (await services.runs.administration.get(RUN)).kept
    assert (kept.batches, kept.payload_bytes, kept.unkept_step) == (left, left * BYTES, 4 - left)
    assert len((await books_of(redis_client, RUN))["kept"]) == left


@pytest.mark.parametrize("limits", [{"keep_batches": 0}, {"keep_bytes": 0}], ids=["batches", "bytes"])
async def test_other_settings_release_any_number_of_kept_batches(
    services: Services, redis_client: Redis, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    monkeypatch.setattr(store, "_GROUPS_RELEASED_AT_ONCE", 2)
    await services.runs.administration.change(RUN, {"keep_batches": 3 * FEW})
    await keep(services, 3 * FEW - 1)
    await services.runs.administration.change(RUN, limits)
    kept = (await services.runs.administration.get(RUN)).kept
    assert (kept.batches, kept.payload_bytes, kept.unkept_step) == (0, 0, 3 * FEW - 1)
    assert (await books_of(redis_client, RUN))["kept"] == set()


async def test_a_run_of_atropos_keeps_batches_once_keep_batches_is_set(process: Callable[..., Process]) -> None:
    services, _ = process()
    await services.runs.atropos.register(RUN, config(2))
    await services.runs.administration.change(RUN, {"keep_batches": FEW})
    await keep(services, 2)
    assert (await services.runs.administration.get(RUN)).kept.batches == 2


async def test_a_batch_that_ends_costs_the_same_however_many_are_kept(services: Services, redis_client: Redis) -> None:
    """What Redis sends does not grow. The limit of bytes binds, so each batch that ends releases another one."""
    sent = []
    for kept in (FEW, 5 * FEW):
        await services.runs.administration.change(RUN, {"keep_batches": 1000, "keep_bytes": kept * BYTES})
        await keep(services, kept)
        await services.groups.native.submit(RUN, [named(uuid.uuid4().hex)])
        lease = (await taken(services)).lease
        before = (await redis_client.info())["total_net_output_bytes"]
        await services.batches.leases.acknowledge(RUN, lease.batch_id, lease.lease_id)
        sent.append((await redis_client.info())["total_net_output_bytes"] - before)
        assert (await services.runs.administration.get(RUN)).kept.batches == kept
    assert sent[1] < 1.2 * sent[0]


async def keep(services: Services, batches: int) -> None:
    """Take batches and acknowledge them."""
    for _ in range(batches):
        await services.groups.native.submit(RUN, [named(uuid.uuid4().hex)])
        lease = (await taken(services)).lease
        await services.batches.leases.acknowledge(RUN, lease.batch_id, lease.lease_id)


async def test_a_batch_that_ends_in_a_run_that_keeps_none_is_released(services: Services) -> None:
    """Who ends it has read the settings before."""
    await services.groups.native.submit(RUN, [named("a")])
    lease = (await taken(services)).lease
    await services.runs.administration.change(RUN, {"keep_batches": 0})
    assert await services.batches.retention.deliver(RUN, [lease], KEEPING) == 1
    assert (await services.runs.administration.get(RUN)).kept.batches == 0


async def test_a_batch_that_comes_back_by_a_rewind_says_what_it_was(
    process: Callable[..., Process], services: Services
) -> None:
    """Groups of three make a minimum of half of two sequences impossible, so the batch was relaxed."""
    impatient, _ = process(relax_after_s=0)
    for name in ("half", "other half"):
        await join(impatient, name, min_share=0.5)
    await services.groups.native.submit(RUN, [named("a")._replace(environment=0), named("b")._replace(environment=1)])
    first = await taken(impatient)
    assert first.lease.relaxed
    await services.batches.leases.acknowledge(RUN, first.lease.batch_id, first.lease.lease_id)
    await services.batches.retention.rewind(RUN, 0)
    again = (await taken(services)).lease
    assert (again.batch_id, again.relaxed, again.contents) == (first.lease.batch_id, True, first.lease.contents)
