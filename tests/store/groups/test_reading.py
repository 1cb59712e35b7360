"""The oldest groups of lanes are read in order, and many of them leave other requests their turns."""

import asyncio
from collections import Counter

import pytest

from app.core.model import QueuedGroup
from tests.store.conftest import KEYS, RUN, Store, encoded


async def test_others_have_turns_while_many_groups_of_lanes_are_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, parsed = 0, Counter[int]()

    def watched(arrival: int, group_id: str) -> QueuedGroup:
        parsed[turns] += 1
        return QueuedGroup(arrival, group_id)

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counts = {(0, 1): 7000, (0, 2): 1500, (None, 2): 1500, (0, 3): 1}
    for (environment, size), count in counts.items():
        key = KEYS.lane(f"{'-' if environment is None else environment}:{size}")
        await store.redis.zadd(key, {f"g{n}": n for n in range(count)})
    monkeypatch.setattr("app.store.groups.store.QueuedGroup", watched)
    others = asyncio.create_task(take_turns())
    lanes = await store.groups.heads(RUN, {lane: (count, count) for lane, count in counts.items()})
    others.cancel()
    assert {lane.id: lane.queued for lane in lanes} == counts
    for lane in lanes:
        assert lane.heads == tuple(QueuedGroup(n, f"g{n}") for n in range(lane.queued))
    assert max(parsed.values()) < 4000, "of 10,001"


async def test_the_age_of_a_group_is_that_of_its_entry(store: Store) -> None:
    for name, version in (("a", 3), ("b", None)):
        await store.admit(encoded(1, given=name, version=version), ids=[name])
        await store.pass_time(1000)
    names = ["b", "missing", "a"]
    entries = await store.groups.entries(RUN, names)
    ages = await store.groups.ages(RUN, names)
    assert [entry and (entry.accepted_ms, entry.policy_version) for entry in entries] == ages
    assert ages[1] is None
    assert {age.policy_version for age in ages if age is not None} == {3, None}
    assert len({age.accepted_ms for age in ages if age is not None}) == 2
