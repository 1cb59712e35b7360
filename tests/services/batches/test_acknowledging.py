"""Acknowledge batches. The process that handed out a batch knows its lease, and asks Redis once."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.batches.leases import Lease
from app.core.runs.settings import Policy
from app.services.batches import recent_leases
from app.services.batches.request import BatchRequest
from lachesis.wire.errors import LeaseLost, RunNotFound
from tests.services.batches.test_round_trips import commands
from tests.services.conftest import RUN, Process, config, encoded


@pytest.fixture
async def processes(process: Callable[..., Process]) -> list[Services]:
    """Of two processes, with a run that keeps no batches."""
    services = [process()[0] for _ in range(2)]
    await services[0].runs.administration.create(RUN, config(2), Policy(keep_batches=0))
    return services


async def take(services: Services, name: str = "g") -> Lease:
    await services.groups.native.submit(RUN, [encoded(2, 0)._replace(given_id=name)])
    batch = (await services.batches.dispatch.take(RUN, BatchRequest())).batch
    assert batch is not None
    return batch.lease


async def acknowledge(services: Services, lease: Lease) -> None:
    assert lease.lease_id is not None
    await services.batches.leases.acknowledge(RUN, lease.batch_id, lease.lease_id)


async def test_the_process_that_handed_out_a_batch_ends_it_without_reading_it(
    processes: list[Services], redis_client: Redis
) -> None:
    """Another process reads the lease first."""
    await acknowledge(processes[0], await take(processes[0], "first"))  # the first of a run leaves an example
    own, other = [await take(processes[0], name) for name in ("own", "other")]
    unread = await commands(redis_client, partial(acknowledge, processes[0], own))
    assert await commands(redis_client, partial(acknowledge, processes[1], other)) > unread


async def test_a_batch_ends_by_the_settings_of_now(processes: list[Services]) -> None:
    """Not by those of the time when it was handed out."""
    lease = await take(processes[0])
    await processes[1].runs.administration.change(RUN, {"keep_batches": 1, "keep_bytes": 2**20})
    await acknowledge(processes[0], lease)
    assert (await processes[0].runs.administration.get(RUN)).kept.batches == 1


async def test_a_batch_whose_lease_was_extended_ends(processes: list[Services]) -> None:
    lease = await take(processes[0])
    assert lease.lease_id is not None
    await processes[1].batches.leases.extend(RUN, lease.batch_id, lease.lease_id, 10_000)
    await acknowledge(processes[0], lease)
    assert (await processes[0].runs.administration.get(RUN)).leases == ()


async def test_an_acknowledgement_may_be_repeated(processes: list[Services]) -> None:
    lease = await take(processes[0])
    for services in (processes[0], processes[0], processes[1]):
        await acknowledge(services, lease)
        run = await services.runs.administration.get(RUN)
        assert (run.leases, run.totals.leased_groups, run.totals.delivered_groups) == ((), 0, 1)


async def test_an_acknowledgement_under_another_lease_ends_nothing(processes: list[Services]) -> None:
    lease = await take(processes[0])
    with pytest.raises(LeaseLost):
        await acknowledge(processes[0], replace(lease, lease_id="other"))
    await acknowledge(processes[0], lease)


async def test_a_batch_of_a_run_that_is_gone_is_not_found(processes: list[Services]) -> None:
    lease = await take(processes[0])
    await processes[1].runs.administration.delete(RUN)
    with pytest.raises(RunNotFound):
        await acknowledge(processes[0], lease)


async def test_only_the_last_leases_are_known(
    processes: list[Services], redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_leases, "_MOST_LEASES", 2)
    leases = [await take(processes[0], f"g{number}") for number in range(3)]
    oldest, *others = [await commands(redis_client, partial(acknowledge, processes[0], lease)) for lease in leases]
    assert oldest > max(others)


async def test_a_lease_that_names_many_environments_is_not_known(
    processes: list[Services], redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take memory for each of them."""
    small = await take(processes[0], "small")
    monkeypatch.setattr(recent_leases, "_MOST_SHARES", 0)
    large = await take(processes[0], "large")
    read, unread = [await commands(redis_client, partial(acknowledge, processes[0], one)) for one in (large, small)]
    assert read > unread
