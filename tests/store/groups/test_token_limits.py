"""What tokens may have in the queue, in Redis: the script against the rule, together and one by one."""

import asyncio
from collections import Counter
from itertools import count
from random import Random

import pytest

from app.core.access.queue_limits import LimitedAccount
from app.core.runs.capacity import WaitingGroups
from app.store.access.rate_limits import LimitStore
from app.store.groups.entries import PendingGroup, Placement
from app.store.groups.store import GroupStore
from app.store.redis.client import RedisClient
from lachesis.wire.errors import QueueFull
from lachesis.wire.limits import QueueLimitSettings
from tests.core.access.rate_limits import exceeded_limit
from tests.seeds import FUZZ, seed_of
from tests.store.conftest import KEYS, LASTING_MS, RUN, Store, encoded

ONE = LimitedAccount("1" * 12, "token 111111111111", "math", QueueLimitSettings(max_queued_groups=2))
PLACES = [Placement(0), Placement(0, buffered=True), Placement(0, dropped="stale")]


def token(number: int, groups: int | None, size_bytes: int | None) -> LimitedAccount:
    return LimitedAccount(
        str(number) * 12, "token", None, QueueLimitSettings(max_queued_groups=groups, max_queued_bytes=size_bytes)
    )


async def submit(store: Store, *names: str, **limits: object) -> str:
    """Submit groups of a token with limits, each of 8 bytes; return why they are refused, or nothing."""
    try:
        await store.admit(*(encoded() for _ in names), ids=names, accounts=[ONE], **limits)
    except QueueFull as refused:
        return refused.detail
    return ""


async def queued(store: Store) -> dict[str, str]:
    found = await store.redis.hgetall(KEYS.token_queues)  # type: ignore[misc]
    return {name.decode(): text.decode() for name, text in found.items()}


async def test_the_script_decides_as_the_rule(store: Store) -> None:
    """Submissions of several tokens share a commit. Groups are buffered, dropped on arrival, sent again, and leave."""
    rng, numbers, outcomes = Random(seed_of(FUZZ)), count(), Counter[str]()
    held: dict[str, tuple[str | None, int]] = {}  # group in the queue -> its token, and bytes
    for _ in range(30):
        accounts = [rng.choice([None, token(1, 3, None), token(2, None, 60), token(3, 4, 50)]) for _ in range(4)]
        submissions = []
        for _ in accounts:
            places = rng.choices([Placement(0), Placement(0, buffered=True), Placement(0, dropped="stale")], k=3)
            new = [PendingGroup(f"g{next(numbers)}", encoded(rng.randint(0, 20)), place) for place in places]
            submissions.append(new[: rng.randint(1, 3)])
        stored = await store.groups.admit(RUN, submissions, await store.preconditions(accounts=accounts))
        for submission, sender, result in zip(submissions, accounts, stored.results, strict=True):
            kept = [group for group in submission if not group.place.dropped]
            new, limit = WaitingGroups(len(kept), sum(len(group.encoded.payload) for group in kept)), None
            if sender is not None:
                own = [size for name, size in held.values() if name == sender.account_id]
                limit = exceeded_limit(sender.limits, WaitingGroups(len(own), sum(own)), new)
            outcomes[str(limit)] += 1
            if limit is None:
                name = None if sender is None else sender.account_id
                held |= {group.group_id: (name, len(group.encoded.payload)) for group in kept}
                assert isinstance(result, list)
            else:
                assert isinstance(result, QueueFull)
                assert result.detail.startswith(f"{limit}=")
        # the answer was lost
        again = await store.groups.admit(RUN, submissions, await store.preconditions(accounts=accounts))
        for before, after in zip(stored.results, again.results, strict=True):
            assert isinstance(after, list) == isinstance(before, list) or after is None
        books = await store.books()
        assert books["queued"] | books["buffered"] == held.keys()
        for name in rng.sample(sorted(held), rng.randint(0, len(held))):
            if name in books["queued"] and rng.random() < 0.5:
                await store.acknowledge(await store.take(name))
            else:
                assert await store.groups.drop(RUN, [(name, (0, 2))], "expired") == 1
            del held[name]
        await store.books()
    assert outcomes.keys() == {"None", "max_queued_groups", "max_queued_bytes"}


async def test_a_group_counts_until_first_taken_and_not_after_its_return(store: Store) -> None:
    assert [await submit(store, name) for name in ("a", "b")] == ["", ""]
    detail = "max_queued_groups=2 of token 111111111111 (environment 'math') leaves no room: it has 2 groups queued"
    assert await submit(store, "c") == f"{detail}, 16 bytes"
    assert await queued(store) == {ONE.account_id: "2 16"}
    leased = await store.leased(["a"])
    lease = await store.take(groups=leased)
    assert await queued(store) == {ONE.account_id: "1 8"}
    assert await submit(store, "d") == ""
    assert await store.batches.dissolve(RUN, lease, leased, LASTING_MS)
    books = await store.books()
    assert (books["queued"], await queued(store)) == ({"a", "b", "d"}, {ONE.account_id: "2 16"}), "a counts no more"
    await store.take("b", "d")
    assert await queued(store) == {}
    assert await store.redis.exists(KEYS.token_groups) == 0
    await store.books()


async def test_stale_groups_and_those_of_a_run_that_starts_over_count_no_longer(store: Store) -> None:
    await store.admit(encoded(version=1), ids=["old"], accounts=[ONE])
    assert await submit(store, "a") == ""
    assert await store.groups.drop_versions(RUN, ("-inf", "(2"), 10, "stale", await store.view()) == 1
    assert await queued(store) == {ONE.account_id: "1 8"}
    await store.runs.reset(RUN, "token")
    assert await store.redis.exists(KEYS.token_groups, KEYS.token_queues) == 0


async def test_a_large_submission_is_stored_if_the_token_has_nothing_in_the_queue(store: Store) -> None:
    assert await submit(store, "a", "b", "c") == ""
    assert "it has 3 groups queued, 24 bytes" in await submit(store, "d")
    await store.groups.drop(RUN, [("a", (0, 2)), ("b", (0, 2))], "expired")
    assert await submit(store, "e") == ""
    assert "max_queued_groups=2" in await submit(store, "f", "g", "h")
    await store.garbage.delete_marked(RUN)
    assert await store.payloads() == {"c", "e"}, "what is refused leaves nothing"


async def test_the_limit_of_the_run_is_named_first(store: Store) -> None:
    assert await submit(store, "a", "b") == ""
    assert "max_queued_groups=2 of the run" in await submit(store, "c", max_groups=2)
    assert "max_queued_bytes=16 of the run" in await submit(store, "c", max_groups=3, max_bytes=16)


@pytest.mark.parametrize("transacts", [True, False], ids=["in one transaction", "one after the other"])
async def test_submissions_at_a_time_do_not_exceed_a_limit(store: Store, redis_url: str, transacts: bool) -> None:
    connections = [RedisClient(redis_url, 5.0) for _ in range(4)]
    try:
        preconditions = await store.preconditions(accounts=[ONE])
        for connection in connections:
            connection.transacts = transacts
        stored = await asyncio.gather(
            *(
                GroupStore(connections[n % 4]).admit(
                    RUN, [[PendingGroup(f"g{n}", encoded(), Placement(0))]], preconditions
                )
                for n in range(40)
            )
        )
    finally:
        for connection in connections:
            await connection.aclose()
    assert sum(isinstance(one.results[0], list) for one in stored) == 2
    assert await queued(store) == {ONE.account_id: "2 16"}
    await store.books()


async def test_what_tokens_have_in_the_queue_is_listed_by_run(store: Store) -> None:
    limits = LimitStore(store.connection)
    assert await limits.queued() == {}
    await submit(store, "a", "b")
    await store.admit(encoded(), ids=["c"])
    assert await limits.queued() == {ONE.account_id: {RUN: WaitingGroups(2, 16)}}
