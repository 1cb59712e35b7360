"""Members: who is there, what they run, and who is gone."""

from app.core.runs.ledger import ledger_of_run
from app.store.environments.members import MemberRecord
from app.store.groups.entries import Placement
from app.store.redis.keys import RunKeys
from app.store.runs.tick import PendingHeartbeats
from tests.store.conftest import LASTING_MS, RUN, Store, encoded

KEYS = RunKeys(RUN)


async def environment(store: Store) -> tuple[int, int]:
    """The members of environment 0, and the groups they run, as a view has them."""
    view = await store.view()
    return view.environments[0].members, view.running.get(0, 0)


async def run_groups(
    store: Store, member: str, running: int | None, start: int = 0, allowed: int = 0
) -> tuple[int, int]:
    """Report running groups. Return how many more the member may start, and what all members then run."""
    granted = await store.members.note_running(RUN, 0, member, running=running, start=start, allowed=allowed, after=0)
    return granted, (await environment(store))[1]


async def test_a_member_is_new_once(store: Store) -> None:
    assert await store.members.put(RUN, 0, "one") is True
    assert await store.members.put(RUN, 0, "one") is False
    assert await store.members.put(RUN, 0, "two") is True
    assert await store.members.put(RUN, 1, "one") is None, "there is no environment 1"
    assert [member.member for member in await store.members.of_environment(RUN, 0)] == ["one", "two"]
    assert await environment(store) == (2, 0)


async def test_running_groups_are_summed_over_members(store: Store) -> None:
    for member in ("one", "two"):
        await store.members.put(RUN, 0, member)
    assert await run_groups(store, "one", 3) == (0, 3)
    assert await run_groups(store, "two", 2) == (0, 5)
    assert await run_groups(store, "one", 1) == (0, 3)
    assert await run_groups(store, "one", None) == (0, 3), "as it said before"
    assert await environment(store) == (2, 3)


async def test_groups_start_as_long_as_the_environment_may_run_more(store: Store) -> None:
    for member in ("one", "two", "three"):
        await store.members.put(RUN, 0, member)
    assert await run_groups(store, "one", 0, start=1, allowed=2) == (1, 1)
    assert await run_groups(store, "two", 0, start=5, allowed=2) == (1, 2)
    assert await run_groups(store, "three", 0, start=1, allowed=2) == (0, 2)
    assert await run_groups(store, "one", 0) == (0, 1)
    assert await run_groups(store, "three", 0, start=1, allowed=2) == (0, 1), "a group that ended gives no room"


async def test_a_member_that_leaves_takes_its_groups_with_it_and_no_others(store: Store) -> None:
    for member in ("one", "two"):
        await store.members.put(RUN, 0, member)
        await run_groups(store, member, 4)
    assert await store.members.remove(RUN, 0, ["one", "nobody"]) == (["one"], 1)
    assert await environment(store) == (1, 4)
    assert await store.members.remove(RUN, 0, ["one", "two"]) == (["two"], 0)
    assert await environment(store) == (0, 0)
    left = [key for key in KEYS.membership() if await store.redis.exists(key)]
    assert left == []


async def test_a_member_that_joins_again_runs_nothing(store: Store) -> None:
    """Its process has started again, or the service lost sight of it."""
    await store.members.put(RUN, 0, "one")
    await run_groups(store, "one", 4)
    await store.members.put(RUN, 0, "one")
    assert await environment(store) == (1, 0)


async def test_a_record_of_an_earlier_version_reads_and_its_groups_count_as_granted(store: Store) -> None:
    await store.members.put(RUN, 0, "one")
    await run_groups(store, "one", 3)
    await store.redis.hset(KEYS.members, "0:one", "7 3")
    assert await store.members.caller(RUN, 0, "one")
    (old,) = await store.members.of_environment(RUN, 0)
    assert old == MemberRecord("one", 7, 3, 3, None, old.heard_ms)
    assert await run_groups(store, "one", 2) == (0, 2)
    (new,) = await store.members.of_environment(RUN, 0)
    assert new == MemberRecord("one", 7, 2, 2, None, new.heard_ms)
    assert await environment(store) == (1, 2)


async def test_retries_stay_until_others_are_reported(store: Store) -> None:
    await store.members.put(RUN, 0, "one")
    for retries, known in ((None, None), (0, 0), (4, 4), (None, 4)):
        await store.members.note_running(RUN, 0, "one", running=1, start=0, allowed=0, after=0, retries=retries)
        (member,) = await store.members.of_environment(RUN, 0)
        assert member.retries == known
    await store.members.put(RUN, 0, "one")
    (member,) = await store.members.of_environment(RUN, 0)
    assert member.retries is None, "its process has started again"


async def test_silent_members_expire_and_no_others(store: Store) -> None:
    for member in ("silent", "heard"):
        await store.members.put(RUN, 0, member)
        await run_groups(store, member, 2)
    await store.pass_time(LASTING_MS // 2)
    heard = PendingHeartbeats(members={(0, "heard"), (0, "stranger")})
    assert (await store.tick(heard)).expired == ()
    await store.pass_time(LASTING_MS // 2)
    assert (await store.tick()).expired == ((0, "silent"),)
    (left,) = await store.members.of_environment(RUN, 0)
    assert left == MemberRecord("heard", left.joined_ms, 2, 0, None, left.heard_ms)
    assert await environment(store) == (1, 2)


async def test_a_beat_that_is_written_late_does_not_bring_a_member_back(store: Store) -> None:
    await store.members.put(RUN, 0, "one")
    await store.members.remove(RUN, 0, ["one"])
    await store.tick(PendingHeartbeats(members={(0, "one")}))
    assert await environment(store) == (0, 0)
    assert await store.redis.hget(KEYS.seen, "0") is None


async def test_a_sign_of_life_later_than_the_clock_is_not_of_this_run(store: Store) -> None:
    """It is of a deleted run of the same name. An environment would stay alive until the clock gets there."""
    later_ms, known = (await store.view()).clock_ms + LASTING_MS, await store.redis.hget(KEYS.seen, "0")
    await store.tick(PendingHeartbeats({0: later_ms}))
    assert await store.redis.hget(KEYS.seen, "0") == known
    await store.pass_time(LASTING_MS)
    await store.tick(PendingHeartbeats({0: later_ms}))
    assert await store.redis.hget(KEYS.seen, "0") == str(later_ms).encode()


async def test_a_forgotten_environment_leaves_its_counts_behind(store: Store) -> None:
    await store.admit(encoded(1), ids=["a"])
    await store.acknowledge(await store.take("a"))
    await store.admit(encoded(2), encoded(3), place=Placement(0, dropped="zero_variance"))
    before = await store.view()
    assert await store.environments.forget(RUN, [before.environments[0]], before)
    after = await store.view()
    assert after.environments == {}
    assert after.dropped_by_reason == before.dropped_by_reason == {"zero_variance": 2}
    assert (after.served, before.served) == ({None: 2}, {0: 2})
    assert {owner for _, owner in before.tokens} == {0}
    assert {owner for _, owner in after.tokens} == {None}
    assert ledger_of_run(after.tokens) == ledger_of_run(before.tokens)
    assert after.next_environment == 1, "ids are never given twice"
    assert 0 not in after.sent
    await store.books()


async def test_an_environment_is_not_forgotten_on_what_is_no_longer_so(store: Store) -> None:
    view = await store.view()
    await store.members.put(RUN, 0, "one")
    assert not await store.environments.forget(RUN, [view.environments[0]], view), "a member has joined"
    await store.members.remove(RUN, 0, ["one"])
    await store.admit(encoded(1))
    assert not await store.environments.forget(RUN, [view.environments[0]], view), "a group has come"
    assert list((await store.view()).environments) == [0]
