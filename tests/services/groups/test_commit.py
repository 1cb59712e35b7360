"""Submissions that come at the same time: each fares as if it had come by itself, and they share what that costs."""

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from threading import Thread

import numpy as np
import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.access.queue_limits import LimitedAccount
from app.core.runs.settings import Policy
from app.services.groups.commit import GroupCommit, PlacedGroups
from app.services.groups.commit_lock import PATH_VARIABLE, CommitLock
from app.store.groups.admission_context import AdmissionContext
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Outcome, Placement
from app.store.groups.garbage import GarbageStore
from app.store.groups.store import GroupStore
from app.store.redis.keys import RunKeys
from lachesis.wire.errors import GroupExists, QueueFull, RunNotFound, ServiceError, StoreUnavailable
from lachesis.wire.limits import QueueLimitSettings
from tests.lossy_line import LossyLine
from tests.seeds import FUZZ, seed_of
from tests.services.accounting import books_of
from tests.services.batches.test_round_trips import calls
from tests.services.conftest import RUN, Process, config, encoded, join

Told = list[Outcome] | tuple[type, str]

OTHER_RUN = "other"
ACCOUNTS = [
    None,
    *(LimitedAccount(str(most) * 12, "token", None, QueueLimitSettings(max_queued_groups=most)) for most in (1, 2)),
]
NEW, AGAIN = [Outcome()], [Outcome(repeated=True)]


def named(name: str, mark: int = 1, *, version: int | None = None, environment: int = 0) -> EncodedGroup:
    return encoded(2, mark, environment)._replace(given_id=name, policy_version=version, rewards=np.array([1.0, 1.0]))


async def run_with(services: Services, run: str = RUN, **settings: object) -> None:
    await services.runs.administration.create(run, config(4), Policy.model_validate(settings))
    await join(services, run=run)


async def context_of_a_new_run(services: Services) -> AdmissionContext:
    await run_with(services)
    view = await services.runs.atropos.view(RUN)
    return AdmissionContext(view.epoch, view.first_epoch, {})


async def commit_in_turn(
    group_commit: GroupCommit, sent: Sequence[PlacedGroups], turns: int
) -> list[asyncio.Task[list[Outcome] | None]]:
    """Start to commit submissions, one after so many turns of the event loop."""
    senders = []
    for each in sent:
        senders.append(asyncio.create_task(group_commit.commit(RUN, each)))
        for _ in range(turns):
            await asyncio.sleep(0)
    return senders


async def submit(
    services: Services, run: str, groups: Sequence[EncodedGroup], account: LimitedAccount | None = None
) -> Told:
    """Submit groups. Return the answer of the sender: the outcome of each group, or an error."""
    try:
        return await services.groups.native.submit(run, groups, None, account)
    except ServiceError as error:
        return type(error), error.detail


async def together(
    services: Services,
    sent: Sequence[Sequence[EncodedGroup]],
    run: str = RUN,
    accounts: Sequence[LimitedAccount | None] = (),
) -> list[Told]:
    senders = accounts or [None] * len(sent)
    return await asyncio.gather(*(submit(services, run, *each) for each in zip(sent, senders, strict=True)))


def submissions(rng: Random) -> list[list[EncodedGroup]]:
    """Groups with ids of their own, new or sent before, alike or not; a few too old, or of an unknown environment."""
    made: list[list[EncodedGroup]] = [[]]
    for name in rng.sample(range(13), rng.randint(1, 12)):
        if made[-1] and rng.random() < 0.5:
            made.append([])
        version, environment = rng.choice([None, 9, 0]), rng.choice([0, 0, 0, 0, 0, 7])
        made[-1].append(named(f"g{name}", rng.choice([1, 1, 1, 2]), version=version, environment=environment))
    return made


@pytest.mark.parametrize("commits_alone", [True, False], ids=["of one process", "of several processes"])
@pytest.mark.parametrize("transacts", [True, False], ids=["in one transaction", "one after the other"])
async def test_submissions_that_come_together_fare_as_one_after_the_other(
    process: Callable[..., Process],
    redis_client: Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    transacts: bool,
    commits_alone: bool,
) -> None:
    """Of those that are refused nothing is stored, whatever came with them."""
    if not commits_alone:
        monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "lock"))
    services, _ = process()
    services.connection.transacts = transacts
    rng = Random(seed_of(FUZZ))
    results, refused = Counter[str](), 0
    for attempt in range(25):
        runs = [f"{name}{attempt}" for name in ("together", "alone")]
        most = rng.choice([None, 2, 5])
        for run in runs:
            await run_with(services, run, max_staleness=5, max_queued_groups=most)
            await services.runs.administration.set_policy_version(run, 9)
            await submit(services, run, [named("g0"), named("g1", version=0)])
        sent = [(groups, rng.choice(ACCOUNTS)) for groups in submissions(rng)]
        # Those with an unknown environment read the run again first: they would come in any order.
        direct = [each for each in sent if all(group.environment == 0 for group in each[0])]
        others = [each for each in sent if any(group.environment != 0 for group in each[0])]
        told = await together(services, [groups for groups, _ in direct], runs[0], [token for _, token in direct])
        told += [await submit(services, runs[0], *each) for each in others]
        assert told == [await submit(services, runs[1], *each) for each in (*direct, *others)]
        results.update(result[0].__name__ if isinstance(result, tuple) else "stored" for result in told)
        refused += sum("of token" in result[1] for result in told if isinstance(result, tuple))
        books = [await settled(services, redis_client, run) for run in runs]
        assert books[0] == books[1]
    assert results.keys() == {"stored", "QueueFull", "GroupExists", "EnvironmentNotFound"}
    assert refused, "by the limit of a token"


async def settled(services: Services, redis: Redis, run: str) -> dict[str, object]:
    """Delete garbage, and return the books with a number for each set of ids. Only waiting groups have payloads."""
    await GarbageStore(services.connection).delete_marked(run)
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

    async def transactions(sent: list[list[EncodedGroup]]) -> int:
        counted = await calls(redis_client, lambda: together(services, sent))
        assert counted["evalsha"] == counted["exec"]
        return counted["exec"]

    small = [[named(f"small{n}")] for n in range(40)]
    assert await transactions(small) == 1
    large = [[named(f"large{n}")._replace(payload=b"x" * 400_000)] for n in range(3)]
    assert await transactions(large) == 3
    assert await transactions([[named("alone"), named("with-it")]]) == 1
    assert len((await books_of(redis_client, RUN))["queued"]) == 1 + 40 + 3 + 2


@pytest.mark.parametrize(
    ("longest_wait_s", "commits_alone", "commits"),
    [(3600.0, True, 2), (3600.0, False, 2), (0.0, True, 10), (0.0, False, 10)],
    ids=["until it ends", "until that of one of several processes ends", "not that long", "not that long for others"],
)
async def test_those_that_come_while_a_commit_is_in_progress_wait_and_share_the_next(
    process: Callable[..., Process],
    redis_client: Redis,
    tmp_path: Path,
    longest_wait_s: float,
    commits_alone: bool,
    commits: int,
) -> None:
    services, _ = process()
    now = await context_of_a_new_run(services)
    lock = None if commits_alone else CommitLock(str(tmp_path / "lock"))
    group_commit = GroupCommit(GroupStore(services.connection), lock, longest_wait_s)

    async def submit_in_turn() -> None:
        await redis_client.client_pause(3_600_000, all=False)  # nothing is written until the test allows it
        senders = await commit_in_turn(group_commit, [placed(f"g{n}", now) for n in range(10)], 10)
        await redis_client.client_unpause()
        assert await asyncio.gather(*senders) == [NEW] * 10

    counted = await calls(redis_client, submit_in_turn)
    assert counted["exec"] == commits


@pytest.mark.parametrize(("groups", "payload_bytes", "commits"), [(10, 100, 1), (16, 60_000, 2)])
async def test_one_of_several_processes_waits_while_more_come_until_a_commit_is_full(
    process: Callable[..., Process], redis_client: Redis, tmp_path: Path, groups: int, payload_bytes: int, commits: int
) -> None:
    services, _ = process()
    now = await context_of_a_new_run(services)
    sent = [placed(f"g{n}", now, payload_bytes) for n in range(groups)]
    group_commit = GroupCommit(GroupStore(services.connection), CommitLock(str(tmp_path / "lock")))

    async def submit_in_turn() -> None:
        senders = await commit_in_turn(group_commit, sent, 1)
        assert await asyncio.gather(*senders) == [NEW] * groups

    counted = await calls(redis_client, submit_in_turn)
    assert counted["exec"] == commits


async def test_those_that_come_while_another_process_commits_share_the_next(
    process: Callable[..., Process], redis_client: Redis, tmp_path: Path
) -> None:
    services, _ = process()
    now = await context_of_a_new_run(services)
    of_another_process, own = (CommitLock(str(tmp_path / "lock")) for _ in range(2))
    group_commit = GroupCommit(GroupStore(services.connection), own, longest_wait_s=3600)
    await of_another_process.acquire(0)

    async def submit_in_turn() -> None:
        senders = await commit_in_turn(group_commit, [placed(f"g{n}", now) for n in range(10)], 10)
        assert not any(sender.done() for sender in senders)
        of_another_process.release()
        assert await asyncio.gather(*senders) == [NEW] * 10

    counted = await calls(redis_client, submit_in_turn)
    assert counted["exec"] == 1
    await asyncio.wait_for(of_another_process.acquire(3600), 60)


@pytest.mark.parametrize(("longest_wait_s", "payload_bytes"), [(0.01, 100), (3600.0, 200_000)], ids=["long", "large"])
async def test_a_large_one_and_one_that_waited_long_do_not_wait_for_another_process(
    process: Callable[..., Process], tmp_path: Path, longest_wait_s: float, payload_bytes: int
) -> None:
    services, _ = process()
    now = await context_of_a_new_run(services)
    of_another_process, own = (CommitLock(str(tmp_path / "lock")) for _ in range(2))
    await of_another_process.acquire(0)
    group_commit = GroupCommit(GroupStore(services.connection), own, longest_wait_s)
    for name in ("first", "second"):
        assert await asyncio.wait_for(group_commit.commit(RUN, placed(name, now, payload_bytes)), 60) == NEW
    of_another_process.release()


async def test_one_to_which_submissions_come_one_by_one_does_not_wait_for_another_process(
    process: Callable[..., Process], tmp_path: Path
) -> None:
    services, _ = process()
    now = await context_of_a_new_run(services)
    of_another_process, own = (CommitLock(str(tmp_path / "lock")) for _ in range(2))
    group_commit = GroupCommit(GroupStore(services.connection), own, longest_wait_s=3600)
    for n in range(8):
        assert await group_commit.commit(RUN, placed(f"alone{n}", now)) == NEW
    await of_another_process.acquire(0)
    together = (group_commit.commit(RUN, placed(f"together{n}", now)) for n in range(3))
    assert await asyncio.wait_for(asyncio.gather(*together), 60) == [NEW] * 3
    waits = asyncio.create_task(group_commit.commit(RUN, placed("after", now)))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waits), 0.05)
    of_another_process.release()
    assert await waits == NEW


async def test_the_ids_of_groups_are_in_the_order_of_arrival(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await run_with(services)
    for number in range(20):
        assert await submit(services, RUN, [named(f"g{number}")]) == NEW
        await asyncio.sleep(0.002)  # ids count milliseconds
    ((lane, count),) = (await redis_client.hgetall(RunKeys(RUN).lanes)).items()
    in_order = await redis_client.zrange(RunKeys(RUN).lane(lane.decode()), 0, -1)
    assert int(count) == 20
    assert in_order == sorted(in_order)


async def test_one_id_at_the_same_time_is_one_group(process: Callable[..., Process], redis_client: Redis) -> None:
    """As when a worker gives up on a reply and repeats itself while the first request is still under way."""
    services, _ = process()
    await run_with(services)
    await submit(services, RUN, [named("first")])
    told = await together(services, [[named("a")], [named("b")], [named("a")], [named("c"), named("a")]])
    assert told[1] == NEW
    assert sum(outcome.repeated for result in told for outcome in result if isinstance(outcome, Outcome)) == 2
    unlike = await together(services, [[named("d", 1)], [named("d", 2)]])
    assert sorted(unlike, key=str) == [(GroupExists, "the run has a group d with other contents"), NEW]
    assert len((await books_of(redis_client, RUN))["queued"]) == 1 + 3 + 1


async def test_runs_and_limits_do_not_mix(process: Callable[..., Process], redis_client: Redis) -> None:
    """Environments of Atropos are steered otherwise than by capacity."""
    services, _ = process()
    await run_with(services, max_queued_groups=1)
    await run_with(services, OTHER_RUN)
    await services.groups.atropos.submit(RUN, [encoded(2, 0, 0)])
    await submit(services, OTHER_RUN, [named("first")])

    async def from_atropos() -> list[bool]:
        return [receipt.buffered for receipt in await services.groups.atropos.submit(RUN, [encoded(2, 1, 0)])]

    receipts, refused, more, stored, unknown = await asyncio.gather(
        from_atropos(),
        submit(services, RUN, [named("a")]),
        from_atropos(),
        submit(services, OTHER_RUN, [named("a")]),
        submit(services, "nobody", [named("a")]),
    )
    assert (receipts, refused[0], more, stored, unknown[0]) == ([False], QueueFull, [False], NEW, RunNotFound)
    books = [await books_of(redis_client, run) for run in (RUN, OTHER_RUN)]
    assert [len(each["queued"]) for each in books] == [1 + 2, 1 + 1]


async def test_what_another_process_changed_is_seen_by_all_of_them(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Each one reads the run again. Those that meet again share a commit again."""
    (here, _), (there, _) = process(), process()
    await run_with(here, max_staleness=1)
    await submit(there, RUN, [named("first", version=0)])
    await here.runs.administration.set_policy_version(RUN, 9)
    told: list[Told] = []

    async def submit_all() -> None:
        told.extend(await together(there, [[named(f"g{n}", version=9 * (n % 2))] for n in range(30)]))

    counted = await calls(redis_client, submit_all)
    assert [result[0].dropped is None for result in told if isinstance(result[0], Outcome)] == [False, True] * 15
    books = await books_of(redis_client, RUN)
    assert (len(books["queued"]), books["dropped"]["stale"]) == (15, 15 + 1)
    assert counted["exec"] < 30


async def test_those_that_come_as_a_commit_ends_do_not_wait_long_for_the_next(
    process: Callable[..., Process], lossy: tuple[LossyLine, str]
) -> None:
    """Also those of the moment in which one commit has ended, and the next has not begun."""
    line, url = lossy
    services, _ = process(url)
    now = await context_of_a_new_run(services)
    group_commit = GroupCommit(GroupStore(services.connection), longest_wait_s=0.05)
    line.hold(rb"never-stored")
    first = asyncio.create_task(group_commit.commit(RUN, placed("first", now)))
    slow = asyncio.create_task(group_commit.commit(OTHER_RUN, placed("never-stored", now)))
    others = []
    for n in count():
        if first.done() and n > 100:
            break
        others.append(asyncio.create_task(group_commit.commit(f"new{n}", placed(f"g{n}", now))))
        await asyncio.sleep(0)
    assert await asyncio.gather(*others) == [None] * len(others), "there are no such runs"
    assert not slow.done()
    slow.cancel()


async def test_they_go_on_without_a_lock_if_no_thread_can_start(
    process: Callable[..., Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, _ = process()
    now = await context_of_a_new_run(services)
    of_another_process, own = (CommitLock(str(tmp_path / "lock")) for _ in range(2))
    group_commit = GroupCommit(GroupStore(services.connection), own, longest_wait_s=3600)
    await of_another_process.acquire(0)

    def start(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", start)
        assert await asyncio.wait_for(group_commit.commit(RUN, placed("first", now)), 60) == NEW
    assert await asyncio.wait_for(group_commit.commit(RUN, placed("second", now)), 60) == NEW


@pytest.mark.parametrize("turns", [1, 2], ids=["before they are committed", "while they are"])
async def test_a_sender_that_goes_away_takes_nobody_with_it(
    process: Callable[..., Process], redis_client: Redis, turns: int
) -> None:
    """Neither the first of those that meet nor another; what is under way is committed all the same."""
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
    assert await together(services, [[named("g1")], [named("g3")]]) == [AGAIN, AGAIN]
    assert len((await books_of(redis_client, RUN))["queued"]) == 6


def placed(name: str, context: AdmissionContext, payload_bytes: int = 100) -> PlacedGroups:
    return PlacedGroups(context, [named(name)._replace(payload=b"x" * payload_bytes)], [Placement(0)])


async def test_what_was_placed_on_another_view_of_the_run_is_committed_apart(process: Callable[..., Process]) -> None:
    services, _ = process()
    now = await context_of_a_new_run(services)
    before = replace(now, epoch=now.epoch - 1)
    commits = GroupCommit(GroupStore(services.connection))
    views = [now, before, now, now, before]
    told = await asyncio.gather(*(commits.commit(RUN, placed(f"g{n}", view)) for n, view in enumerate(views)))
    assert told == [NEW, None, NEW, NEW, None]


async def test_the_error_of_a_store_that_cannot_be_reached_goes_to_all_that_ask(
    process: Callable[..., Process], caplog: pytest.LogCaptureFixture
) -> None:
    services, _ = process("redis://127.0.0.1:1", store_patience_s=0.05)
    commits = GroupCommit(GroupStore(services.connection))
    senders = [asyncio.create_task(commits.commit(RUN, placed(f"g{n}", AdmissionContext(0, 0, {})))) for n in range(4)]
    await asyncio.sleep(0)
    senders[1].cancel()
    told = await asyncio.gather(*senders, return_exceptions=True)
    assert [type(each) for each in told] == [StoreUnavailable, asyncio.CancelledError, *[StoreUnavailable] * 2]
    del told, senders
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()
    assert caplog.messages == [], "such as of an exception that was never retrieved"


async def test_starvation_that_they_bring_together_is_logged_once(
    process: Callable[..., Process], caplog: pytest.LogCaptureFixture
) -> None:
    """None of them would have reached it alone."""
    services, _ = process()
    await run_with(services, filter_zero_variance={}, alert_after_batches=2)
    caplog.set_level(logging.WARNING, "lachesis.commits")
    await together(services, [[named(f"g{n}")] for n in range(3)])
    assert caplog.messages == []
    await together(services, [[named(f"h{n}")] for n in range(3)])
    assert len(caplog.messages) == 1
    again = [[named(f"{letter}{n}")] for letter in "gh" for n in range(3)]
    await together(services, [*again, *([named(f"i{n}")] for n in range(3))])
    assert len(caplog.messages) == 1


async def test_filtered_groups_after_accepted_ones_begin_starvation_within_one_commit(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Of one submission it is what comes best that counts."""
    services, _ = process()
    await run_with(services, filter_zero_variance={})
    await submit(services, RUN, [named("first")])

    def good(name: str) -> EncodedGroup:
        return named(name)._replace(rewards=np.array([1.0, 0.0]))

    starvations = []
    for turn in range(3):
        vain = [[named(f"vain{turn}-{n}")] for n in range(2)]
        both = [good(f"good{turn}"), named(f"with-it{turn}")]
        await together(services, [*vain[:turn], both, *vain[turn:]])
        starvations.append((await redis_client.hget(RunKeys(RUN).starvation, "sequences") or b"0").decode())
    assert starvations == ["4", "2", "0"]
