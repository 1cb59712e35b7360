"""A new policy version makes many groups stale: the request drops some of them, maintenance the rest."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.core.runs.settings import Policy
from app.services.batches import old_groups
from app.services.groups import staleness
from app.store.groups import store
from app.store.redis.keys import RunKeys
from lachesis.wire.states import DropReason
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded

FEW, STALE, FRESH = 4, 13, 2  # groups of a sweep's page; groups of each kind
KEYS = RunKeys(RUN)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (staleness, store):
        monkeypatch.setattr(module, "DROPPED_AT_ONCE", FEW)
    monkeypatch.setattr(staleness, "_PAGES_AT_ONCE", 1)


async def filled(process: Callable[..., Process], version: int = 0, **settings: object) -> tuple[Process, Process]:
    """Two processes, and a run with groups of one version and of none, in several lanes."""
    first, second = process(), process()
    services, _ = first
    policy = Policy(**settings)  # type: ignore[arg-type]
    await services.runs.administration.create(RUN, config(4), policy)
    await services.runs.administration.set_policy_version(RUN, version)
    for number in range(STALE + FRESH):
        of_version = version if number < STALE else None
        group = encoded(2 + number % 2 * 2, number)._replace(policy_version=of_version, given_id=f"g{number}")
        await services.groups.native.submit(RUN, [group])
    return first, second


async def dropped(process: Process, reason: DropReason) -> int:
    return (await process[0].runs.atropos.view(RUN)).dropped_by_reason.get(reason, 0)


async def test_another_process_drops_what_the_request_left(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    first, second = await filled(process, max_staleness=0)
    assert await first[0].runs.administration.set_policy_version(RUN, 5) == FEW
    await books_of(redis_client, RUN)
    await second[1].maintain(RUN)
    assert await dropped(second, "stale") == STALE
    assert len((await books_of(redis_client, RUN))["queued"]) == FRESH
    assert await redis_client.hget(KEYS.run, "unswept") is None  # type: ignore[misc]


async def test_no_stale_group_gets_into_a_batch_before_the_sweep_is_done(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    first, _ = await filled(process, max_staleness=0)
    await first[0].runs.administration.set_policy_version(RUN, 5)
    result = await first[0].batches.dispatch.take(RUN)
    if result.batch is not None:
        assert {group.policy_version for group in result.batch.groups} == {None}
    assert await dropped(first, "stale") == STALE, "a take drops what it meets, and the oldest come first"


async def test_a_take_drops_many_stale_groups_in_parts(process: Callable[..., Process], redis_client: Redis) -> None:
    """Redis serves no other request while a script drops groups."""
    first, _ = await filled(process, max_staleness=0)
    await first[0].runs.administration.change(RUN, {"batch_size": 40})
    await redis_client.hset(KEYS.run, "policy_version", 5)  # type: ignore[misc]  # no sweep
    await first[0].batches.dispatch.take(RUN)
    assert await dropped(first, "stale") > FEW
    for left in await redis_client.lrange(KEYS.left, 0, -1):  # type: ignore[misc]
        assert len(left.split()) <= 1 + FEW


async def test_a_request_says_that_groups_are_old_and_does_not_wait_for_the_sweep(
    process: Callable[..., Process], redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_groups, "MOST_DROPPING", 2)
    (services, maintenance), _ = await filled(process, max_staleness=0)
    await redis_client.hset(KEYS.run, "policy_version", 5)  # type: ignore[misc]  # no sweep
    found = await services.batches.diagnostics.of(RUN)
    taken = await services.batches.dispatch.take(RUN)
    for why in (found.not_ready, taken.not_ready):
        assert why is not None
        assert why.blocker == "old_groups"
    assert 0 < await dropped((services, maintenance), "stale") < STALE
    await maintenance.maintain(RUN)
    assert await dropped((services, maintenance), "stale") == STALE, "the request has asked for a sweep"
    assert (await services.batches.dispatch.take(RUN)).batch is not None


@pytest.mark.parametrize("future", ["refuse", "restamp"])
async def test_groups_of_the_future_are_dropped_or_count_as_fresh(
    process: Callable[..., Process], redis_client: Redis, future: str
) -> None:
    first, second = await filled(process, version=5, future_versions=future)
    refused = future == "refuse"
    assert await first[0].runs.administration.set_policy_version(RUN, 0) == FEW * refused
    await second[1].maintain(RUN)
    assert await dropped(first, "future_version") == STALE * refused
    assert len((await books_of(redis_client, RUN))["queued"]) == FRESH + STALE * (not refused)
    assert await redis_client.zcount(KEYS.versions, "(0", "+inf") == 0


async def test_a_version_that_is_set_during_a_sweep_gets_a_sweep_of_its_own(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    (services, maintenance), _ = await filled(process, max_staleness=0)
    await services.runs.administration.set_policy_version(RUN, 5)
    runs = services.runs.administration._runs
    sweep = await runs.requested_sweep(RUN)
    assert sweep is not None
    await services.runs.administration.set_policy_version(RUN, 6)
    await runs.finish_sweep(RUN, sweep)
    assert await runs.requested_sweep(RUN) == sweep + 1
    await maintenance.maintain(RUN)
    assert await runs.requested_sweep(RUN) is None
    assert await dropped((services, maintenance), "stale") == STALE


async def test_the_run_is_awake_until_the_sweep_is_done(process: Callable[..., Process], redis_client: Redis) -> None:
    (services, maintenance), _ = await filled(process, max_staleness=0)
    await maintenance.maintain(RUN)
    assert await redis_client.hexists(KEYS.run, "asleep_ms")  # type: ignore[misc]
    await services.runs.administration.set_policy_version(RUN, 5)
    assert not await redis_client.hexists(KEYS.run, "asleep_ms")  # type: ignore[misc]
    await maintenance.maintain(RUN)
    assert await dropped((services, maintenance), "stale") == STALE
