"""Submissions that come at the same time: each fares as if it had come by itself, and they share what that costs."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.enrolment import Application
from app.core.errors import GroupExists, LachesisError, QueueFull, RunNotFound, StoreUnavailable
from app.core.policy import Policy, fields_of
from app.services.maintenance import Maintenance
from app.store.codec import EncodedGroup
from app.store.group_entries import Outcome
from app.store.keys import RunKeys
from tests.seeds import FUZZ, seed_of
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded
from tests.services.test_round_trips import calls

Fate = list[Outcome] | tuple[type, str]

OTHER_RUN = "other"
MATH = Application("math", 2, 512, 1.0)
NEW, AGAIN = [Outcome()], [Outcome(repeated=True)]


def named(name: str, mark: int = 1, *, version: int | None = None, environment: int = 0) -> EncodedGroup:
    return replace(encoded(2, mark, environment), group_id=name, policy_version=version, rewards=np.array([1.0, 1.0]))


async def run_with(services: Services, run: str = RUN, **settings: object) -> None:
    await services.administration.create(run, config(4), Policy(**fields_of(settings)))
    await services.registry.join(run, MATH)


async def submit(services: Services, run: str, groups: Sequence[EncodedGroup]) -> Fate:
    """What a sender is told: what became of its groups, or an error."""
    try:
        return await services.submissions.submit(run, groups)
    except LachesisError as error:
        return type(error), str(error)


async def at_once(services: Services, parcels: Sequence[Sequence[EncodedGroup]], run: str = RUN) -> list[Fate]:
    return list(await asyncio.gather(*(submit(services, run, parcel) for parcel in parcels)))


def parcels(rng: Random) -> list[list[EncodedGroup]]:
    """Groups with ids of their own, new or sent before, alike or not; a few too old, or of an unknown environment."""
    made: list[list[EncodedGroup]] = [[]]
    for name in rng.sample(range(13), rng.randint(1, 12)):
        if made[-1] and rng.random() < 0.5:
            made.append([])
        version, environment = rng.choice([None, 9, 0]), rng.choice([0, 0, 0, 0, 0, 7])
        made[-1].append(named(f"g{name}", rng.choice([1, 1, 1, 2]), version=version, environment=environment))
    return made


@pytest.mark.parametrize("transacts", [True, False], ids=["in one transaction", "one after the other"])
async def test_submissions_that_come_together_fare_as_one_after_the_other(
    process: Callable[..., Process], redis_client: Redis, transacts: bool
) -> None:
    """Of those that are refused nothing is stored, whatever came with them."""
    services, _ = process()
    services.connection.transacts = transacts
    rng = Random(seed_of(FUZZ))
    fates: Counter[str] = Counter()
    for attempt in range(60):
        runs = [f"{name}{attempt}" for name in ("together", "alone")]
        most = rng.choice([None, 2, 5])
        for run in runs:
            await run_with(services, run, max_staleness=5, max_queued_groups=most)
            await services.administration.set_policy_version(run, 9)
            await submit(services, run, [named("g0"), named("g1", version=0)])
        sent = parcels(rng)
        together = await at_once(services, sent, runs[0])
        assert together == [await submit(services, runs[1], parcel) for parcel in sent]
        fates.update(fate[0].__name__ if isinstance(fate, tuple) else "stored" for fate in together)
        books = [await settled(services, redis_client, run) for run in runs]
        assert books[0] == books[1]
    assert fates.keys() == {"stored", "QueueFull", "GroupExists", "InvalidField"}


async def settled(services: Services, redis: Redis, run: str) -> dict[str, object]:
    """The books once garbage is gone, with a number for each set of ids; and nothing but what waits has a payload."""
    await services.groups.sweep(run)
    books = await books_of(redis, run)
    keys = RunKeys(run)
    payloads = {key.decode().rpartition(":")[2] async for key in redis.scan_iter(keys.payload("*"))}
    assert payloads - {(await redis.hget(keys.run, "latest") or b"").decode()} <= books["queued"]
    return {name: len(found) if isinstance(found, set) else found for name, found in books.items()}


async def test_they_share_a_round_trip_and_those_that_are_large_have_one_each(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await run_with(services)
    await submit(services, RUN, [named("first")])

    async def transactions(parcels: list[list[EncodedGroup]]) -> int:
        counted = await calls(redis_client, lambda: at_once(services, parcels))
        assert counted["evalsha"] == counted["exec"]
        return counted["exec"]

    small = [[named(f"small{n}")] for n in range(40)]
    assert await transactions(small) == 2, "the first one does not wait for others"
    large = [[replace(named(f"large{n}"), payload=b"x" * 300_000)] for n in range(3)]
    assert await transactions(large) == 3
    assert await transactions([[named("alone"), named("with-it")]]) == 1
    assert len((await books_of(redis_client, RUN))["queued"]) == 1 + 40 + 3 + 2


async def test_one_id_at_the_same_time_is_one_group(process: Callable[..., Process], redis_client: Redis) -> None:
    """As when a worker gives up on a reply and repeats itself while the first request is still under way."""
    services, _ = process()
    await run_with(services)
    told = await at_once(services, [[named("a")], [named("b")], [named("a")], [named("c"), named("a")]])
    assert sorted(map(str, (told[0], told[2]))) in ([str(AGAIN), str(AGAIN)], sorted(map(str, (NEW, AGAIN))))
    assert told[1] == NEW
    assert sum(outcome.repeated for fate in told for outcome in fate if isinstance(outcome, Outcome)) == 2
    unlike = await at_once(services, [[named("d", 1)], [named("d", 2)]])
    assert sorted(unlike, key=str) == [(GroupExists, "group d is there, with other contents"), NEW]
    assert len((await books_of(redis_client, RUN))["queued"]) == 4


async def test_runs_and_limits_do_not_mix(process: Callable[..., Process], redis_client: Redis) -> None:
    """Environments of Atropos are steered otherwise than by capacity."""
    services, _ = process()
    await run_with(services, max_queued_groups=1)
    await run_with(services, OTHER_RUN)
    await services.intake.submit(RUN, [encoded(2, 0, 0)])

    async def from_atropos() -> list[bool]:
        return [receipt.buffered for receipt in await services.intake.submit(RUN, [encoded(2, 1, 0)])]

    refused, receipts, stored, unknown = await asyncio.gather(
        submit(services, RUN, [named("a")]),
        from_atropos(),
        submit(services, OTHER_RUN, [named("a")]),
        submit(services, "nobody", [named("a")]),
    )
    assert (refused[0], receipts, stored, unknown[0]) == (QueueFull, [False], NEW, RunNotFound)
    books = [await books_of(redis_client, run) for run in (RUN, OTHER_RUN)]
    assert [len(each["queued"]) for each in books] == [2, 1]


async def test_what_another_process_changed_is_seen_by_all_of_them(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    (here, _), (there, _) = process(), process()
    await run_with(here, max_staleness=1)
    await submit(there, RUN, [named("first", version=0)])
    await here.administration.set_policy_version(RUN, 9)
    told = await at_once(there, [[named(f"g{n}", version=9 * (n % 2))] for n in range(6)])
    assert [fate[0].dropped is None for fate in told if isinstance(fate[0], Outcome)] == [False, True] * 3
    books = await books_of(redis_client, RUN)
    assert (len(books["queued"]), books["dropped"]["stale"]) == (3 + 1, 3) or books["dropped"]["stale"] == 4


@pytest.mark.parametrize("turns", [1, 2], ids=["before they are committed", "while they are"])
async def test_a_sender_that_goes_away_takes_nobody_with_it(
    process: Callable[..., Process], redis_client: Redis, turns: int
) -> None:
    """Neither the first of those that meet nor another; theirs is committed all the same."""
    services, _ = process()
    await run_with(services)
    await submit(services, RUN, [named("first")])
    senders = [asyncio.create_task(submit(services, RUN, [named(f"g{n}")])) for n in range(5)]
    for _ in range(turns):
        await asyncio.sleep(0)
    senders[1].cancel()
    senders[3].cancel()
    told = await asyncio.gather(*senders, return_exceptions=True)
    assert [told[0], told[2], told[4]] == [NEW, NEW, NEW]
    assert all(isinstance(told[n], asyncio.CancelledError) for n in (1, 3))
    assert await at_once(services, [[named("g1")], [named("g3")]]) == [AGAIN, AGAIN]
    assert len((await books_of(redis_client, RUN))["queued"]) == 6


async def test_a_store_that_cannot_be_reached_is_told_to_all(process: Callable[..., Process]) -> None:
    services, _ = process()
    await run_with(services)
    await submit(services, RUN, [named("first")])
    gone: tuple[Services, Maintenance] = process("redis://127.0.0.1:1", store_patience_s=0.05)
    told = await at_once(gone[0], [[named("a")], [named("b")]])
    assert [fate[0] for fate in told] == [StoreUnavailable] * 2


async def test_a_drought_that_they_bring_together_is_told_once(
    process: Callable[..., Process], caplog: pytest.LogCaptureFixture
) -> None:
    """None of them would have reached it alone."""
    services, _ = process()
    await run_with(services, filter_zero_variance={}, alert_after_batches=2)
    caplog.set_level(logging.WARNING, "lachesis.admission")
    await at_once(services, [[named(f"g{n}")] for n in range(3)])
    assert caplog.messages == []
    await at_once(services, [[named(f"h{n}")] for n in range(3)])
    assert len(caplog.messages) == 1
    await at_once(services, [[named(f"i{n}")] for n in range(3)])
    assert len(caplog.messages) == 1
