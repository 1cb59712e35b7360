"""A command that reaches Redis late, after later requests of others, takes nothing from them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.store.redis import scripts
from lachesis.wire.errors import StoreUnavailable
from tests.lossy_line import LossyLine, lossy_line
from tests.services.accounting import keys_of_runs
from tests.services.conftest import RUN, Process, config, encoded, join, marks
from tests.waiting import wait_until

PATIENCE_S = 1.0
FORMER, PRESENT = 1, 2  # marks of groups

Line = tuple[LossyLine, str]


@pytest.fixture
def others(process: Callable[..., Process]) -> Services:
    """A process whose connection to Redis has no trouble."""
    return process()[0]


@pytest.fixture
def stranded(process: Callable[..., Process], lossy: Line) -> Services:
    """A process whose commands may be held on their way to Redis."""
    return process(lossy[1], store_patience_s=PATIENCE_S)[0]


async def held(line: LossyLine, script: str, request: Awaitable[object]) -> None:
    """Make a request that fails, because its command does not reach Redis yet."""
    line.hold(scripts.load(script).digest.encode())
    with pytest.raises(StoreUnavailable):
        await request
    line.heal()


@asynccontextmanager
async def paused(line: LossyLine, script: str, request: Coroutine[object, object, object]) -> AsyncIterator[None]:
    """Stop the process of a request before its script runs, and let it continue after the block."""
    line.hold(scripts.load(script).digest.encode())
    pausing = asyncio.create_task(request)
    await wait_until(lambda: line.holds)
    line.heal()
    yield
    await line.deliver_late()
    await pausing


async def created(services: Services, **policy: object) -> None:
    await services.runs.administration.create(RUN, config(2), Policy(**policy))
    await join(services, "math")


async def submitted(services: Services, mark: int, version: int | None = None) -> None:
    group = encoded(2, mark)._replace(given_id=f"g{mark}", policy_version=version)
    await services.groups.native.submit(RUN, [group])


async def queued(services: Services) -> list[int]:
    """Take a batch, and return the marks of its groups."""
    return marks(await services.batches.dispatch.take(RUN))


async def test_a_late_deletion_spares_the_groups_of_a_run_that_was_made_again(
    stranded: Services, others: Services, lossy: Line
) -> None:
    await created(others)
    await submitted(others, FORMER)
    await held(lossy[0], "reset_run", stranded.runs.administration.delete(RUN))
    await others.runs.administration.delete(RUN)
    await created(others)
    await submitted(others, PRESENT)
    await lossy[0].deliver_late()
    assert await queued(others) == [PRESENT]


async def test_a_late_reset_spares_the_groups_that_came_after_another_reset(
    stranded: Services, others: Services, lossy: Line
) -> None:
    await others.runs.atropos.register(RUN, config(2))
    await submitted(others, FORMER)
    await held(lossy[0], "reset_run", stranded.runs.atropos.reset(RUN))
    await others.runs.atropos.reset(RUN)
    await others.runs.atropos.register(RUN, config(2))
    await submitted(others, PRESENT)
    await lossy[0].deliver_late()
    assert await queued(others) == [PRESENT]


async def test_a_late_policy_version_does_not_replace_a_later_one(
    stranded: Services, others: Services, lossy: Line
) -> None:
    """It made groups of the version in force too new, so that they were dropped."""
    await created(others, max_staleness=0, future_versions="refuse")
    administration = others.runs.administration
    await held(lossy[0], "set_policy_version", stranded.runs.administration.set_policy_version(RUN, 6))
    await administration.set_policy_version(RUN, 6)
    await administration.set_policy_version(RUN, 8)
    await submitted(others, PRESENT, version=8)
    await lossy[0].deliver_late()
    assert (await administration.get(RUN)).policy_version == 8
    assert await administration.set_policy_version(RUN, 8) == 0
    assert await queued(others) == [PRESENT]


@pytest.mark.parametrize(("other", "in_force"), [(3, 6), (8, 8)])
async def test_of_two_policy_versions_set_at_the_same_time_the_later_is_in_force(
    stranded: Services, others: Services, lossy: Line, other: int, in_force: int
) -> None:
    """The first one, 6, was decided on a version that is no longer in force, so it is decided again."""
    await created(others)
    async with paused(lossy[0], "set_policy_version", stranded.runs.administration.set_policy_version(RUN, 6)):
        await others.runs.administration.set_policy_version(RUN, other)
    assert (await others.runs.administration.get(RUN)).policy_version == in_force


@pytest.mark.parametrize("script", ["reset_run", "forget_run"])
async def test_a_paused_deletion_spares_the_groups_of_a_run_that_was_made_again(
    stranded: Services, others: Services, lossy: Line, script: str
) -> None:
    await created(others)
    await submitted(others, FORMER)
    async with paused(lossy[0], script, stranded.runs.administration.delete(RUN)):
        if script == "reset_run":
            await others.runs.administration.delete(RUN)
        else:
            await others.runs.atropos.reset(RUN)
        await created(others)
        await submitted(others, PRESENT)
    assert await queued(others) == [PRESENT]


async def test_a_deletion_removes_groups_that_come_while_it_is_paused(
    stranded: Services, others: Services, lossy: Line, redis_client: Redis
) -> None:
    """No other request deletes the run, so the deletion takes them, too."""
    await created(others)
    async with paused(lossy[0], "forget_run", stranded.runs.administration.delete(RUN)):
        await others.groups.atropos.submit(RUN, [encoded(2, FORMER)])
    assert await keys_of_runs(redis_client) == []


async def test_a_late_removal_of_a_refused_group_spares_it_once_it_is_stored(
    process: Callable[..., Process], others: Services, stranded: Services, lossy: Line, redis_url: str, tmp_path: Path
) -> None:
    """It was refused because the run was full, its sender did not hear of that, and a batch made room."""
    await created(others, max_queued_groups=1)
    await submitted(others, FORMER)
    async with lossy_line(redis_url, tmp_path / "sender.sock") as (line, url):
        sender = process(url)[0]
        line.lose_replies_to(scripts.load("admit_groups").digest.encode())
        sending = asyncio.create_task(submitted(sender, PRESENT))
        await wait_until(lambda: line.lost)
        await held(lossy[0], "delete_marked_payloads", stranded.maintenance.maintain(RUN))
        await others.maintenance.maintain(RUN)
        assert await queued(others) == [FORMER]
        line.heal()
        line.cut()
        await sending
    await lossy[0].deliver_late()
    assert await queued(others) == [PRESENT]
