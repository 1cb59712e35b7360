"""Many processes under one name: the SDK's `Environment` in each of them."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, TypeVar

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from lachesis import AsyncEnvironment, AsyncTrainer, Settings
from lachesis.errors import EnvironmentSettingsDiffer
from lachesis.wire.status import EnvironmentStatus
from tests.clients.proxy import CuttingProxy, Direction
from tests.clients.run import group, submitted
from tests.clients.silence import silent_service
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

WORKERS = 8

T = TypeVar("T")


@pytest.fixture
async def trainer(run: Settings) -> AsyncIterator[AsyncTrainer]:
    """A trainer of the run, whose batches have two sequences, none of them in advance."""
    async with AsyncTrainer(run) as trainer:
        await trainer.change_run(max_staleness=0)
        yield trainer


async def shown(trainer: AsyncTrainer) -> EnvironmentStatus:
    (environment,) = (await trainer.status()).environments
    return environment


async def test_one_of_many_leaves_and_the_others_stay(run: Settings, trainer: AsyncTrainer) -> None:
    async with AsyncEnvironment("gsm8k", run, min_share=0.5) as first:
        async with AsyncEnvironment("gsm8k", run) as second:
            assert first.id == second.id
            assert first.member != second.member
            assert (await shown(trainer)).members == 2
        environment = await shown(trainer)
        assert (environment.members, environment.alive, environment.needs_sequences) == (1, True, 1)
    assert not (await shown(trainer)).alive


async def test_one_that_is_cancelled_before_it_knows_that_it_has_joined_leaves(
    run: Settings, trainer: AsyncTrainer, proxy: CuttingProxy
) -> None:
    direct = replace(run, url=f"http://127.0.0.1:{proxy.upstream}")
    proxy.lets_replies_pass.clear()
    joining = asyncio.create_task(AsyncEnvironment("gsm8k", run, min_share=0.5).__aenter__())
    async with AsyncTrainer(direct) as other:
        await wait_until(lambda: _has_environments(other))
    joining.cancel()
    proxy.lets_replies_pass.set()
    await asyncio.wait([joining])
    assert joining.cancelled()
    assert (await shown(trainer)).members == 0


async def _has_environments(trainer: AsyncTrainer) -> bool:
    return bool((await trainer.status()).environments)


async def test_one_that_is_cancelled_twice_leaves_all_the_same(run: Settings, trainer: AsyncTrainer) -> None:
    """As `asyncio.run` does after Ctrl-C, if another task of a `gather` ends sooner: at any point of the exit."""
    for turns in range(1, 15):
        environment, joined = AsyncEnvironment("gsm8k", run), asyncio.Event()
        working = asyncio.create_task(_working(environment, joined))
        await joined.wait()
        working.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert (await shown(trainer)).members == 0, turns
        assert not environment._sender.is_open


async def test_one_that_is_cancelled_while_it_leaves_closes_its_connections(run: Settings, proxy: CuttingProxy) -> None:
    environment, joined = AsyncEnvironment("gsm8k", run, heartbeat_s=600), asyncio.Event()
    working = asyncio.create_task(_working(environment, joined))
    await joined.wait()

    async def cancelled_until_it_says_so() -> None:
        before = proxy.passed["request"]
        working.cancel()
        await wait_until(lambda: proxy.passed["request"] > before)

    async with silent_service(proxy):
        await cancelled_until_it_says_so()
        await cancelled_until_it_says_so()  # the first request may not have arrived
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert not environment._sender.is_open


async def test_one_that_has_left_does_not_join_again(
    run: Settings, trainer: AsyncTrainer, proxy: CuttingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer to a request that was under way says that the service does not know it any more."""
    environment = AsyncEnvironment("gsm8k", run, heartbeat_s=600)
    await environment.__aenter__()
    proxy.lets_replies_pass.clear()
    member = f"/v1/runs/math/environments/{environment.id}?member={environment.member}"
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{proxy.upstream}", trust_env=False) as direct:
        (await direct.delete(member)).raise_for_status()
    asking = await _begun(environment.credits(), proxy)
    await asyncio.sleep(0.2)  # until the proxy has the answer
    leaving = await _begun(environment.__aexit__(None, None, None), proxy)
    proxy.lets_replies_pass.set()
    await leaving
    with pytest.raises(RuntimeError, match=r"has left|closed"):
        await asking
    assert "Joining again" not in caplog.text
    assert (await shown(trainer)).members == 0


async def _begun(request: Coroutine[Any, Any, T], proxy: CuttingProxy) -> "asyncio.Task[T]":
    """Begin a request, and wait until something of it has been sent."""
    before = proxy.passed["request"]
    task = asyncio.create_task(request)
    await wait_until(lambda: proxy.passed["request"] > before)
    return task


async def _working(environment: AsyncEnvironment, joined: asyncio.Event) -> None:
    async with environment:
        joined.set()
        await asyncio.Event().wait()


async def test_workers_together_start_no_more_groups_than_are_wanted(run: Settings, trainer: AsyncTrainer) -> None:
    """Two groups fill the next batch, and all eight workers wait for a permit."""
    started: asyncio.Queue[AsyncEnvironment] = asyncio.Queue()
    done = asyncio.Event()

    async def work() -> None:
        async with AsyncEnvironment("gsm8k", run, heartbeat_s=0.05) as environment, environment.permit():
            await started.put(environment)
            await done.wait()
            await environment.submit(group(1, policy_version=0))

    async with asyncio.TaskGroup() as workers:
        tasks = [workers.create_task(work()) for _ in range(WORKERS)]
        await started.get()
        await started.get()
        await wait_until(lambda: _members_are(trainer, WORKERS))
        heard = (await shown(trainer)).running_groups
        assert (heard, started.qsize()) == (2, 0)
        done.set()
        await wait_until(lambda: _queued(trainer, 2))
        for task in tasks:
            task.cancel()


async def test_a_worker_that_is_done_makes_way_before_its_next_heartbeat(run: Settings, trainer: AsyncTrainer) -> None:
    """Neither beats of itself while this lasts."""
    first, second = (AsyncEnvironment("gsm8k", run, heartbeat_s=600) for _ in range(2))
    async with first, second:
        for policy_version in (0, 1):
            for _ in range(2):
                async with first.permit(wait_s=60):
                    await first.submit(group(1, policy_version=policy_version))
                await first.flush()
            await wait_until(lambda: _running(trainer, 0))
            batch = await trainer.take()
            assert batch is not None
            await batch.ack()
            await trainer.set_policy_version(policy_version + 1)
        async with second.permit(wait_s=60):
            assert (await shown(trainer)).running_groups == 1


async def test_a_worker_that_gave_up_a_group_makes_way_before_its_next_heartbeat(
    run: Settings, trainer: AsyncTrainer
) -> None:
    """Neither beats of itself while this lasts. The rollout failed, or its group had arrived before the block ended."""
    first, second = (AsyncEnvironment("gsm8k", run, heartbeat_s=600) for _ in range(2))
    async with first, second:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                async with first.permit(wait_s=60):
                    raise ZeroDivisionError
            await wait_until(lambda: _running(trainer, 0))
        async with first.permit(wait_s=60):
            await submitted(first, [group(1, policy_version=0)])
            assert (await first.credits()).granted_groups == 0
            assert (await shown(trainer)).running_groups == 1
        await wait_until(lambda: _running(trainer, 0))
        async with second.permit(wait_s=60):
            assert (await shown(trainer)).running_groups == 1


async def test_a_group_whose_permit_came_too_late_makes_way_before_the_next_heartbeat(
    run: Settings, proxy: CuttingProxy
) -> None:
    """The service has counted the group as running when the wait for the permit ends."""
    past_the_proxy = Settings(url=f"http://127.0.0.1:{proxy.upstream}", run=run.run)
    async with AsyncTrainer(past_the_proxy) as trainer, AsyncEnvironment("gsm8k", run, heartbeat_s=600) as environment:
        proxy.lets_replies_pass.clear()
        waiting = asyncio.create_task(environment.permit().__aenter__())
        await wait_until(lambda: _running(trainer, 1))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        proxy.lets_replies_pass.set()
        await wait_until(lambda: _running(trainer, 0), timeout_s=30)


async def test_a_worker_reports_the_requests_that_it_sent_again_since_it_joined(
    run: Settings, proxy: CuttingProxy
) -> None:
    async with httpx.AsyncClient(base_url=run.url) as client:

        async def retries(environment: AsyncEnvironment) -> int:
            await environment.credits()
            members = (await client.get(f"/v1/runs/{run.run}/environments/{environment.id}/members")).json()["members"]
            return int(members[0]["retries"])

        proxy.cut("reply", 0)  # of the join
        async with AsyncEnvironment("gsm8k", run, heartbeat_s=600) as environment:
            assert (proxy.cuts, await retries(environment)) == (1, 0)
            directions: tuple[Direction, ...] = ("request", "reply", "reply")
            for direction in directions:
                proxy.cut(direction, 0)
                await submitted(environment, [group(1)])
            assert (proxy.cuts, await retries(environment)) == (4, 3)


async def _running(trainer: AsyncTrainer, number: int) -> bool:
    return (await shown(trainer)).running_groups == number


async def _members_are(trainer: AsyncTrainer, number: int) -> bool:
    return (await shown(trainer)).members == number


async def _queued(trainer: AsyncTrainer, number: int) -> bool:
    return (await trainer.status()).groups.queued == number


async def test_other_settings_than_those_in_force_are_refused(run: Settings, trainer: AsyncTrainer) -> None:
    async with AsyncEnvironment("gsm8k", run, group_size=4):
        with pytest.raises(EnvironmentSettingsDiffer, match="group_size is 4, not 8"):
            async with AsyncEnvironment("gsm8k", run, group_size=8):
                raise AssertionError
        async with AsyncEnvironment("gsm8k", run, group_size=8, change_settings=True):
            assert (await shown(trainer)).group_size == 8


async def test_groups_of_a_run_that_was_created_again_count_for_their_environment(
    run: Settings, trainer: AsyncTrainer
) -> None:
    """The first group that is sent joins again: neither environment sends a heartbeat while this lasts."""
    algebra, geometry = (AsyncEnvironment(name, run, heartbeat_s=600) for name in ("algebra", "geometry"))
    async with algebra, geometry:
        assert (algebra.id, geometry.id) == (0, 1)
        await trainer.delete_run()
        await trainer.create_run(batch_size=2)
        await submitted(geometry, [group(1), group(2)])
        assert (await shown(trainer)).name == "geometry"
        assert [one.environment_name for one in (await trainer.list_groups()).groups] == ["geometry"] * 2
        assert (geometry.id, geometry.outcomes) == (0, {"accepted": 2})


async def test_groups_never_count_for_an_environment_that_has_got_the_id_of_theirs(
    run: Settings, trainer: AsyncTrainer
) -> None:
    """The run was created again, and the other environment joined first."""
    algebra, geometry = (AsyncEnvironment(name, run, heartbeat_s=600) for name in ("algebra", "geometry"))
    async with algebra, geometry:
        await trainer.delete_run()
        await trainer.create_run(batch_size=2)
        await geometry.credits()
        assert (algebra.id, geometry.id) == (0, 0)
        await submitted(algebra, [group(1)])
        await submitted(geometry, [group(2)])
        listed = (await trainer.list_groups()).groups
        assert {one.environment_name: one.environment for one in listed} == {"algebra": 1, "geometry": 0}
        assert (algebra.id, algebra.outcomes, geometry.outcomes) == (1, {"accepted": 1}, {"accepted": 1})


async def test_a_heartbeat_never_counts_for_an_environment_that_has_got_its_id(
    run: Settings, trainer: AsyncTrainer
) -> None:
    """Geometry has got the id of algebra. Algebra gets its own settings, not those of a new environment."""
    algebra, geometry = (
        AsyncEnvironment(name, run, member="pod-3", group_size=2, min_share=0.5, heartbeat_s=600)
        for name in ("algebra", "geometry")
    )
    async with algebra, geometry:
        await trainer.delete_run()
        await trainer.create_run(batch_size=8)
        await geometry.credits()
        await algebra.credits()
        environments = (await trainer.status()).environments
        assert [(one.name, one.group_size, one.members) for one in environments] == [
            ("geometry", 2, 1),
            ("algebra", 2, 1),
        ]
        assert [one.needs_sequences for one in environments] == [4, 4]


@pytest.mark.parametrize(("others", "change_settings"), [(0, False), (0, True), (1, True)])
async def test_a_worker_that_joins_again_keeps_the_settings_that_an_operator_has_changed(
    run: Settings, trainer: AsyncTrainer, others: int, change_settings: bool
) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=run.url))
        for _ in range(others):
            await stack.enter_async_context(AsyncEnvironment("gsm8k", run, heartbeat_s=600))
        environment = await stack.enter_async_context(
            AsyncEnvironment("gsm8k", run, group_size=4, weight=3, change_settings=change_settings, heartbeat_s=600)
        )
        place = f"/v1/runs/{run.run}/environments/{environment.id}"
        (await client.patch(place, json={"group_size": 2, "weight": 5})).raise_for_status()
        (await client.delete(place, params={"member": environment.member})).raise_for_status()
        await environment.credits()
        status = await shown(trainer)
        assert (status.group_size, status.weight, status.members) == (2, 5, 1 + others)


async def test_a_worker_that_the_service_lost_sight_of_joins_again(
    run: Settings, trainer: AsyncTrainer, redis_client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """This happens after a partition of the network, also if its settings were changed during it."""
    async with AsyncEnvironment("gsm8k", run, group_size=4) as environment:
        (known,) = (await trainer.status()).environments
        await redis_client.delete(*RunKeys(run.run).membership())
        async with AsyncEnvironment("gsm8k", run, group_size=8, change_settings=True):
            assert (await environment.credits()).policy_version == 0
            assert (await shown(trainer)).members == 2
        assert (environment.id, (await shown(trainer)).group_size) == (known.id, 8)
    (logged,) = [record.getMessage() for record in caplog.records if "Joining again" in record.getMessage()]
    assert logged.startswith("environment gsm8k: environment 0 of run math has no member ")
    assert "Join the environment again" not in logged, "the SDK does it"
    assert (await shown(trainer)).members == 0
