"""Groups that filters find: where they go, what is counted, and that all API processes say the same."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest, OutgoingBatch
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Outcome
from app.store.groups.store import GroupStore
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded, join

SAME, MIXED = (1.0, 1.0), (1.0, 0.0)
DROPPED, ACCEPTED = Outcome("zero_variance"), Outcome()


def rewarded(name: str, rewards: Sequence[float], environment: int | None = 0) -> EncodedGroup:
    group = encoded(len(rewards), 1, environment)
    return group._replace(given_id=name, rewards=np.array(rewards), payload=f"{name}|".encode())


async def run_with(services: Services, batch_size: int = 4, **settings: Any) -> None:
    await services.runs.administration.create(RUN, config(batch_size), Policy.model_validate(settings))
    await join(services)


async def taken(services: Services) -> OutgoingBatch:
    answer = await services.batches.dispatch.take(RUN, BatchRequest())
    assert answer.batch is not None
    return answer.batch


def marks_of(batch: OutgoingBatch) -> list[tuple[str | None, str | None, float]]:
    return [(group.given_id, group.filtered_by, group.loss_weight) for group in batch.groups]


async def test_a_dropped_group_is_counted_for_its_environment_and_never_outstanding(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await run_with(services, filter_zero_variance={})
    before = (await services.environments.allowances.heartbeat(RUN, 0, "one", 0)).allowance.groups
    sent = [rewarded("same", SAME), rewarded("mixed", MIXED), rewarded("nobodys", SAME, None)]
    assert await services.groups.native.submit(RUN, sent) == [DROPPED, ACCEPTED, DROPPED]
    again = [outcome._replace(repeated=True) for outcome in (DROPPED, ACCEPTED, DROPPED)]
    assert await services.groups.native.submit(RUN, sent) == again
    books = await books_of(redis_client, RUN)
    assert (len(books["queued"]), books["dropped"]) == (1, {"zero_variance": 2})
    view = await services.runs.administration.with_counts(RUN)
    assert view.dropped == {("zero_variance", 0): 1, ("zero_variance", None): 1}
    assert view.sent[0].sequences == 2, "forecasts are made from what was stored"
    assert (await services.environments.allowances.heartbeat(RUN, 0, "one", 0)).allowance.groups == before - 1, (
        "others may be started for those dropped"
    )
    life = (await services.groups.histories.of(RUN, "same")).group
    assert (life.state, life.reason) == ("dropped", "zero_variance")


async def test_a_group_of_atropos_that_is_dropped_waits_for_no_set(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await run_with(services, filter_zero_variance={}, filter_pass_rate={"loss_weight": 0.0})
    smaller = rewarded("", (1.0,))._replace(given_id=None)
    whole = [rewarded("", rewards)._replace(given_id=None) for rewards in (SAME, MIXED)]
    receipts = await services.groups.atropos.submit(RUN, [smaller, *whole])
    assert [(receipt.buffered, receipt.waiting_sequences) for receipt in receipts] == [
        (True, 1),
        (False, 0),
        (False, 0),
    ]
    books = await books_of(redis_client, RUN)
    assert (len(books["buffered"]), len(books["queued"]), books["dropped"]) == (1, 1, {"zero_variance": 1})
    (entry,) = await GroupStore(services.connection).entries(RUN, list(books["buffered"]))
    assert entry is not None
    assert entry.mark is not None, "a group of one sequence has a pass rate, though no variance"
    await services.runs.administration.change(RUN, {"filter_pass_rate": {}})
    (receipt,) = await services.groups.atropos.submit(RUN, [smaller])
    assert (receipt.buffered, (await books_of(redis_client, RUN))["dropped"]) == (
        False,
        {"zero_variance": 1, "pass_rate": 1},
    )


async def test_a_mark_stays_with_its_group_however_often_that_is_handed_out(process: Callable[..., Process]) -> None:
    services, _ = process()
    await run_with(services, filter_zero_variance={"loss_weight": 0.25}, keep_batches=1, keep_bytes=10**6)
    outcomes = await services.groups.native.submit(RUN, [rewarded("same", SAME), rewarded("mixed", MIXED)])
    assert outcomes == [ACCEPTED, ACCEPTED]
    expected = [("same", "zero_variance", 0.25), ("mixed", None, 1.0)]
    batch = await taken(services)
    assert marks_of(batch) == expected
    await services.batches.leases.give_back(RUN, batch.lease.batch_id, batch.lease.lease_id, None)
    await services.runs.administration.change(RUN, {"filter_zero_variance": None})
    batch = await taken(services)
    assert marks_of(batch) == expected
    await services.batches.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)
    await services.batches.retention.rewind(RUN, 0)
    assert marks_of(await taken(services)) == expected


async def test_a_filter_holds_for_all_that_any_process_answers_after_the_change(
    process: Callable[..., Process],
) -> None:
    here, there = process()[0], process()[0]
    await run_with(here)
    assert await there.groups.native.submit(RUN, [rewarded("a", SAME)]) == [ACCEPTED]
    await here.runs.administration.change(RUN, {"filter_zero_variance": {"epsilon": 0.0}})
    assert await there.groups.native.submit(RUN, [rewarded("b", SAME)]) == [DROPPED]
    await here.runs.administration.change(RUN, {"filter_zero_variance": None})
    assert await there.groups.native.submit(RUN, [rewarded("c", SAME)]) == [ACCEPTED]
    assert (await here.runs.atropos.view(RUN)).totals.queued_groups == 2, "what is queued is looked at no more"


async def test_a_group_that_is_too_old_is_that_whatever_its_rewards(process: Callable[..., Process]) -> None:
    services, _ = process()
    await run_with(services, filter_zero_variance={"loss_weight": 0.5}, max_staleness=0)
    await services.runs.administration.set_policy_version(RUN, 3)
    old = rewarded("old", SAME)._replace(policy_version=2)
    assert await services.groups.native.submit(RUN, [old]) == [Outcome("stale")]


async def test_starvation_is_seen_by_all_processes_told_once_and_ended_by_one_group(
    process: Callable[..., Process], caplog: pytest.LogCaptureFixture
) -> None:
    here, there = process()[0], process()[0]
    await run_with(here, filter_zero_variance={}, alert_after_batches=2, max_staleness=0)
    await here.runs.administration.set_policy_version(RUN, 1)
    caplog.set_level(logging.WARNING, "lachesis.commits")
    for number in range(3):
        await here.groups.native.submit(RUN, [rewarded(f"here{number}", SAME)])
    await there.groups.native.submit(RUN, [rewarded("here0", SAME)])
    for services in (here, there):
        assert (await services.runs.status.of(RUN)).alert is None
        assert "filters dropped 3 of the last 3 groups" in str((await services.batches.diagnostics.of(RUN)).not_ready)
    assert caplog.messages == []
    old = rewarded("old", MIXED)._replace(policy_version=0)
    await there.groups.native.submit(RUN, [old, rewarded("there", SAME)])
    await here.groups.native.submit(RUN, [rewarded("more", SAME)])
    for services in (here, there):
        alert = (await services.runs.status.of(RUN)).alert
        assert alert is not None
        assert (alert.sequences, alert.dropped) == (12, {"zero_variance": 5, "stale": 1})
        assert alert.age_ms >= 0
    told = "nothing to train on in the last 10 sequences; dropped groups: stale 1, zero_variance 4"
    assert caplog.messages == [f"run {RUN}: {told}"]
    await there.groups.native.submit(RUN, [rewarded("one", SAME), rewarded("good", MIXED)])
    for services in (here, there):
        assert (await services.runs.status.of(RUN)).alert is None
    await here.groups.native.submit(RUN, [rewarded("two", SAME)])
    assert (await there.runs.atropos.view(RUN)).starvation.sequences == 2, "it is counted again"


@pytest.mark.parametrize(("loss_weight", "sequences"), [(0.0, 4), (0.1, 0)])
async def test_what_is_kept_with_a_weight_of_0_ends_no_starvation(
    process: Callable[..., Process], loss_weight: float, sequences: int
) -> None:
    services = process()[0]
    await run_with(services, filter_zero_variance={"loss_weight": loss_weight}, max_staleness=0)
    await services.runs.administration.set_policy_version(RUN, 1)
    await services.groups.native.submit(RUN, [rewarded("old", MIXED)._replace(policy_version=0)])
    await services.groups.native.submit(RUN, [rewarded("same", SAME)])
    starvation = (await services.runs.atropos.view(RUN)).starvation
    assert (starvation.sequences, sum(starvation.dropped.values())) == (sequences, sequences // 2)
