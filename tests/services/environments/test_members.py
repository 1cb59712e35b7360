"""Environments that nothing is left of are forgotten, and members add up whatever they do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import cached_property
from random import Random
from typing import Any

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.environments.registration import RegistrationRequest
from app.core.runs.settings import Policy
from app.main import build_services
from app.services.batches.request import BatchRequest
from app.services.environments import registry
from app.services.environments.registry import Membership
from app.settings import ServiceSettings
from app.store.environments.members import MemberStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Command
from lachesis.wire.errors import (
    EnvironmentNotFound,
    EnvironmentSettingsDiffer,
    MemberNotFound,
    RunFull,
    RunNotFound,
    UnreadableRecord,
)
from tests.lossy_line import LossyLine
from tests.script_names import name_of
from tests.services.conftest import RUN, Process, config, encoded, join
from tests.waiting import wait_until

HISTORY_S = 3600


@pytest.fixture
async def alone(process: Callable[..., Process]) -> Process:
    """One process, and a run whose batches are of two."""
    made = process()
    await made[0].runs.administration.create(
        RUN, config(2), Policy(history_retention_s=HISTORY_S, keep_batches=1, keep_bytes=10**6)
    )
    return made


async def pass_time(redis: Redis, seconds: float) -> None:
    await redis.hincrby(RunKeys(RUN).run, "clock_ms", round(1000 * seconds))  # type: ignore[misc]


async def names(of: Process) -> list[str]:
    return [env.name for env in (await of[0].runs.atropos.view(RUN)).environments.values()]


async def come_and_go(of: Process, name: str) -> int:
    joined = await join(of[0], name)
    await of[0].environments.registry.leave(RUN, joined.environment, "one")
    return joined.environment


async def test_counts_of_environments_are_read_only_where_they_matter(alone: Process, redis_client: Redis) -> None:
    """There are many of them in a run of many environments. Here they cannot be read at all."""
    services, _ = alone
    registry, runs = services.environments.registry, services.runs.administration
    joined = await join(services, "math")
    await redis_client.hset(RunKeys(RUN).ledger, "nonsense", "none")  # type: ignore[misc]
    with pytest.raises(UnreadableRecord):
        await registry.known(RUN, joined.environment)
    assert [one.member for one in (await registry.members(RUN, joined.environment))[0]] == ["one"]
    await runs.set_policy_version(RUN, 1)
    await runs.change(RUN, {"max_staleness": 2})
    assert (await runs.get(RUN)).policy_version == 1
    await registry.leave(RUN, joined.environment, "one")
    assert (await runs.get(RUN)).environments[joined.environment].left_ms is not None


async def test_a_repeated_leave_completes_the_first_one(alone: Process, redis_url: str) -> None:
    """A process died between the two steps of the first."""
    services, _ = alone
    joined = await join(services, "math")
    client = RedisClient(redis_url, 5.0)
    assert await MemberStore(client).remove(RUN, joined.environment, ["one"]) == (["one"], 0)
    await client.aclose()
    with pytest.raises(MemberNotFound):
        await services.environments.registry.leave(RUN, joined.environment, "one")
    (record,) = (await services.runs.atropos.view(RUN)).environments.values()
    assert not record.connected


async def test_an_environment_without_members_groups_and_history_is_forgotten(
    alone: Process, redis_client: Redis
) -> None:
    services, maintenance = alone
    await come_and_go(alone, "pod-1")
    await join(services, "here")

    async def names_after(seconds: float) -> list[str]:
        await pass_time(redis_client, seconds)
        await services.environments.allowances.heartbeat(RUN, 1, "one", 0)
        await maintenance.maintain(RUN)
        return await names(alone)

    assert await names_after(HISTORY_S - 60) == ["pod-1", "here"], "the history of its groups is still known"
    assert await names_after(60) == ["here"]
    assert await come_and_go(alone, "pod-2") == 2, "no id is given twice"


async def test_an_environment_stays_as_long_as_groups_of_it_are_held(alone: Process, redis_client: Redis) -> None:
    """Queued, with a trainer, or kept for a rewind."""
    services, maintenance = alone
    environment = await come_and_go(alone, "math")
    group = encoded(2, 0, environment)._replace(given_id="g")
    await services.groups.native.submit(RUN, [group])

    async def stays() -> bool:
        await pass_time(redis_client, 3 * HISTORY_S)
        await maintenance.maintain(RUN)
        return await names(alone) == ["math"]

    assert await stays()
    answer = await services.batches.dispatch.take(RUN, BatchRequest())
    assert answer.batch is not None
    lease = answer.batch.lease
    await pass_time(redis_client, -HISTORY_S)
    assert (await services.runs.atropos.view(RUN)).leases
    await services.batches.leases.acknowledge(RUN, lease.batch_id, lease.lease_id)
    assert await stays(), "its batch is kept"
    await services.runs.administration.change(RUN, {"keep_batches": 0})
    await services.batches.retention.forget(RUN)
    assert not await stays()
    assert sum((await services.runs.atropos.view(RUN)).served.values()) == 2


async def test_a_repeated_group_gets_its_first_answer_after_its_environment_was_forgotten(
    alone: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new group of the environment is refused, and the message names the group."""
    monkeypatch.setattr(registry, "MAX_ENVIRONMENTS", 1)
    services, _ = alone
    await services.runs.administration.change(RUN, {"keep_batches": 0})
    environment = (await join(services, "math")).environment
    group = encoded(2, 0, environment)._replace(given_id="g")
    (first,) = await services.groups.native.submit(RUN, [group])
    batch = (await services.batches.dispatch.take(RUN, BatchRequest())).batch
    assert batch is not None
    await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    await services.environments.registry.leave(RUN, environment, "one")
    await join(services, "another")
    assert await names(alone) == ["another"]
    assert await services.groups.native.submit(RUN, [group]) == [first._replace(repeated=True)]
    with pytest.raises(EnvironmentNotFound, match="no environment 0, which group new names"):
        await services.groups.native.submit(RUN, [group, group._replace(given_id="new")])


async def test_names_that_were_used_once_do_not_close_a_run(alone: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not before their history is forgotten; names that are alive do."""
    monkeypatch.setattr(registry, "MAX_ENVIRONMENTS", 3)
    for number in range(8):
        await come_and_go(alone, f"pod-{number}")
    assert len(await names(alone)) <= 3
    for number in range(3):
        await join(alone[0], f"live-{number}")
    with pytest.raises(RunFull, match="3 environments that are alive or have groups"):
        await join(alone[0], "one-too-many")
    assert await names(alone) == ["live-0", "live-1", "live-2"]


async def test_names_that_take_the_room_of_others_at_the_same_time_all_join(
    alone: Process, process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MAX_ENVIRONMENTS", 4)
    processes = [process()[0] for _ in range(4)]
    for number in range(4):
        await come_and_go(alone, f"pod-{number}")
    await asyncio.gather(*(each.runs.atropos.view(RUN) for each in processes))
    await asyncio.gather(*(join(each, f"live-{number}") for number, each in enumerate(processes)))
    assert sorted(await names(alone)) == ["live-0", "live-1", "live-2", "live-3"]


async def test_a_run_that_another_process_made_room_in_is_not_full(
    alone: Process,
    process: Callable[..., Process],
    lossy: tuple[LossyLine, str],
    redis_client: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process has read a full run. Before it looks for room, another one forgets the only environment."""
    monkeypatch.setattr(registry, "MAX_ENVIRONMENTS", 1)
    line, url = lossy
    late, _ = process(url)
    await come_and_go(alone, "pod")
    line.hold(RunKeys(RUN).ledger.encode())
    joining = asyncio.create_task(join(late, "live"))
    await wait_until(lambda: line.holds)
    await pass_time(redis_client, HISTORY_S)
    assert [one.name for one in await alone[0].environments.registry.forget_idle(RUN)] == ["pod"]
    line.heal()
    await line.deliver_late()
    assert (await joining).new
    assert await names(alone) == ["live"]


async def test_no_process_keeps_an_environment_that_redis_has_lost(
    process: Callable[..., Process], alone: Process, redis_client: Redis
) -> None:
    """Redis lost its last writes. Another environment then gets the id, and a process that knew the lost one asks."""
    other, _ = process()
    await join(alone[0], "base")
    saved = {key: await redis_client.dump(key) for key in await redis_client.keys()}
    await join(alone[0], "lost", group_size=2)
    assert [env.name for env in (await other.runs.atropos.view(RUN)).environments.values()] == ["base", "lost"]
    await redis_client.flushall()
    for key, value in saved.items():
        await redis_client.restore(key, 0, value)
    await join(alone[0], "new", group_size=4)
    assert [env.name for env in (await other.runs.atropos.view(RUN)).environments.values()] == ["base", "new"]


async def test_of_members_that_come_back_at_once_with_other_settings_one_sets_them(
    alone: Process, process: Callable[..., Process], redis_client: Redis
) -> None:
    """The environment was silent for long. Its first member sets what the others must agree with."""
    processes = [process()[0] for _ in range(6)]
    await come_and_go(alone, "math")
    await pass_time(redis_client, 60)
    await asyncio.gather(*(each.runs.atropos.view(RUN) for each in processes))
    joins = [join(each, "math", f"m{size}", group_size=size) for size, each in enumerate(processes, 1)]
    answers = await asyncio.gather(*joins, return_exceptions=True)
    (one,) = [answer for answer in answers if isinstance(answer, Membership)]
    refused = [answer for answer in answers if isinstance(answer, EnvironmentSettingsDiffer)]
    assert len(refused) == 5
    view = await alone[0].runs.atropos.view(RUN)
    assert (view.environments[0].members, f"m{view.environments[0].group_size}") == (1, one.member)


async def test_leaving_through_another_process_is_not_taken_back(process: Callable[..., Process]) -> None:
    """A client of Atropos polls one process, and leaves through another, before the first one ticks."""
    (services, maintenance), (others, _) = process(), process()
    await services.runs.atropos.register(RUN, config(4))
    await services.batches.dispatch.take(RUN)
    assert await services.environments.registry.register_environment(RUN, RegistrationRequest("math", 4, 512, 1.0, 0.5))
    await services.environments.allowances.pace(RUN, 0)
    assert await others.environments.registry.disconnect_environment(RUN, 0)
    await maintenance.maintain(RUN)
    assert not (await services.runs.atropos.view(RUN)).environments[0].connected


class Removals(RedisClient):
    """Notes how many members each script removes."""

    async def run(self, command: Command) -> Any:
        answer = await super().run(command)
        if name_of(command) == "remove_members":
            self.sizes.append(len(answer[0]))
        return answer

    @cached_property
    def sizes(self) -> list[int]:
        """Members that were removed, script by script."""
        return []


@pytest.mark.usefixtures("alone")
async def test_very_many_members_leave_in_steps(redis_url: str) -> None:
    """One script for 100,000 of them blocked Redis for 0.7 s. The members of other environments stay."""
    async with aclosing(Removals(redis_url, 5.0)) as connection:
        services = build_services(ServiceSettings(redis_url=SecretStr(redis_url)), connection, "removals")
        many, others = [(await join(services, name)).environment for name in ("many", "others")]
        members = MemberStore(connection)
        await asyncio.gather(*(members.put(RUN, many, f"m{number}") for number in range(3000)))
        await services.environments.registry.leave(RUN, many, None)
        assert sum(connection.sizes) == 3001
        assert max(connection.sizes) < 2000
        environments = (await services.runs.atropos.view(RUN)).environments
    assert (environments[many].members, environments[others].members) == (0, 1)
    assert not environments[many].connected


class Interrupted(RedisClient):
    """Does something else, once, before or after it runs a script."""

    before: str | None = None
    after: str | None = None
    meanwhile: Callable[[], Awaitable[object]]

    async def run(self, command: Command) -> Any:
        script = name_of(command)
        if script == self.before:
            self.before = None
            await self.meanwhile()
        answer = await super().run(command)
        if script == self.after:
            self.after = None
            await self.meanwhile()
        return answer


@pytest.fixture
async def interrupted(redis_url: str, redis_client: Redis) -> AsyncIterator[tuple[Services, Interrupted]]:
    """One more process, and its connection."""
    async with aclosing(Interrupted(redis_url, 5.0)) as connection:
        services = build_services(ServiceSettings(redis_url=SecretStr(redis_url)), connection, "interrupted")
        yield services, connection


async def test_a_run_that_is_deleted_while_a_member_joins_is_not_there(
    alone: Process, interrupted: tuple[Services, Interrupted]
) -> None:
    services, connection = interrupted
    connection.after, connection.meanwhile = "put_member", lambda: alone[0].runs.administration.delete(RUN)
    with pytest.raises(RunNotFound):
        await join(services, "math")
    assert connection.after is None


async def test_an_environment_whose_run_is_deleted_while_it_is_changed_is_not_there(
    alone: Process, interrupted: tuple[Services, Interrupted]
) -> None:
    await join(alone[0], "math")
    services, connection = interrupted
    connection.after, connection.meanwhile = "put_environment", lambda: alone[0].runs.administration.delete(RUN)
    with pytest.raises(RunNotFound):
        await services.environments.registry.change_environment(RUN, 0, {"weight": 2.0})
    assert connection.after is None


async def test_groups_that_end_while_a_member_asks_give_no_room_twice(
    process: Callable[..., Process], interrupted: tuple[Services, Interrupted]
) -> None:
    """Its credits were computed before another's group was queued, and a third one has got that group's place."""
    services, _ = process()
    await services.runs.administration.create(RUN, config(4), Policy(max_staleness=0))
    for member in "abc":
        await join(services, "math", member)
    allowances = services.environments.allowances
    assert (await allowances.heartbeat(RUN, 0, "a", 0, 1)).started == 1

    async def meanwhile() -> None:
        await services.groups.native.submit(RUN, [encoded(2, 0, 0)._replace(given_id="g")])
        await allowances.heartbeat(RUN, 0, "a", 0)
        assert (await allowances.heartbeat(RUN, 0, "c", 0, 1)).started == 1

    slow, connection = interrupted
    connection.before, connection.meanwhile = "update_running_groups", meanwhile
    assert (await slow.environments.allowances.heartbeat(RUN, 0, "b", 0, 1)).started == 0
    assert connection.before is None


async def test_a_heartbeat_that_says_nothing_new_writes_nothing(
    alone: Process, interrupted: tuple[Services, Interrupted]
) -> None:
    await join(alone[0], "math")
    services, connection = interrupted

    async def writes(retries: int | None) -> bool:
        connection.before, connection.meanwhile = "update_running_groups", lambda: asyncio.sleep(0)
        await services.environments.allowances.heartbeat(RUN, 0, "one", 0, 0, retries)
        return connection.before is None

    said = {None: False, 0: True, 2: True}
    for retries, is_new in said.items():
        assert await writes(retries) == is_new
        assert not await writes(retries)
    assert not await writes(None)


MOVES = ("join", "leave", "run", "start", "expire")


@pytest.mark.parametrize("seed", range(8))
async def test_what_members_run_adds_up(process: Callable[..., Process], redis_client: Redis, seed: int) -> None:
    """Against a plain model: who is there, what each runs, and what was granted of it."""
    rnd = Random(seed)
    services, maintenance = process()
    await services.runs.administration.create(RUN, config(4), Policy(max_staleness=0))
    await join(services, "math", "always")
    model, permits = {"always": 0}, {"always": 0}
    for _ in range(40):
        what, member, number = rnd.choice(MOVES), rnd.choice("abc"), rnd.randint(0, 3)
        if what == "join":
            await join(services, "math", member)
            model[member] = permits[member] = 0
        elif member in model and what == "leave":
            await services.environments.registry.leave(RUN, 0, member)
            del model[member]
        elif member in model and what == "run":
            await services.environments.allowances.heartbeat(RUN, 0, member, number)
            model[member] = number
            permits[member] = min(number, permits[member])
        elif member in model and what == "start":
            told = await services.environments.allowances.heartbeat(RUN, 0, member, None, number)
            assert told.started == max(0, min(number, 2 - sum(model.values()))), "a batch holds two groups"
            model[member] += told.started
            permits[member] += told.started
        elif what == "expire":
            await maintenance.maintain(RUN)
            await pass_time(redis_client, 121)
            await services.environments.allowances.heartbeat(RUN, 0, "always", None)
            await maintenance.maintain(RUN)
            model = {"always": model["always"]}
        view = await services.runs.atropos.view(RUN)
        assert (view.environments[0].members, view.running.get(0, 0)) == (len(model), sum(model.values()))
        listed, _ = await services.environments.registry.members(RUN, 0)
        assert {one.member: (one.running_groups, one.permits) for one in listed} == {
            name: (model[name], permits[name]) for name in model
        }
    await services.runs.administration.delete(RUN)
    with pytest.raises(RunNotFound):
        await services.environments.allowances.heartbeat(RUN, 0, "always", None)
