"""With lookahead, a run chooses groups that balance the ranks, and no group waits forever."""

from typing import Any

import httpx
import numpy as np

from tests.scenarios.native_calls import RUN, change_run, end, ids, make_run, set_version, status, submit
from tests.scenarios.test_ranks import ask, shard

WORLD = 3


def long_group(name: str, tokens: int, **keys: Any) -> dict[str, Any]:
    """A group of one sequence."""
    row = [[7] * tokens]
    return {"id": name, "tokens": row, "masks": row, "scores": [0.0], **keys}


async def step(client: httpx.AsyncClient) -> list[str]:
    """Train on a batch with all ranks; its groups."""
    shards = [await shard(client, rank) for rank in range(WORLD)]
    for got in shards:
        assert (await end(client, got, rank=got["shard"]["rank"])).status_code == 200
    return sorted(name for got in shards for name in ids(got))


async def test_a_long_group_waits_for_its_like_as_long_as_it_may(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=3, balance_window=3, max_delay_batches=2)
    lengths = {"a": 300, "b": 10, "c": 10, "d": 10, "e": 10, "f": 10, "g": 10, "h": 300, "i": 300}
    await submit(client, *(long_group(name, tokens) for name, tokens in lengths.items()))
    assert await step(client) == ["b", "c", "d"]
    assert await step(client) == ["e", "f", "g"]
    assert await step(client) == ["a", "h", "i"], "they balance with each other"
    assert (await status(client))["ranks"]["mean_imbalance"] == 0


async def test_it_is_taken_when_it_was_passed_over_often_enough(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=3, balance_window=2, max_delay_batches=1)
    await submit(client, long_group("long", 300), *(long_group(f"s{number}", 10) for number in range(8)))
    assert await step(client) == ["s0", "s1", "s2"]
    assert "long" in await step(client)


async def test_without_lookahead_the_oldest_groups_come_first(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=3)
    await submit(client, long_group("long", 300), *(long_group(f"s{number}", 10) for number in range(8)))
    assert await step(client) == ["long", "s0", "s1"]
    await change_run(client, balance_window=3)
    whole = (await client.post(f"{RUN}/batches")).json()
    assert ids(whole) == ["s2", "s3", "s4"]


async def test_a_cost_that_no_group_declares_is_refused_with_or_without_lookahead(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=3)
    await submit(client, *(long_group(f"s{number}", 10) for number in range(6)))
    replies = []
    for window in (1, 2):
        await change_run(client, balance_window=window)
        replies.append((await ask(client, 0, cost="declared")).json())
    assert [(reply["status"], [one["loc"] for one in reply["errors"]]) for reply in replies] == [(422, [["cost"]])] * 2


async def test_minimums_and_sizes_are_kept_whatever_balances(client: httpx.AsyncClient) -> None:
    """Groups are exchanged for others of the same environment and size only."""
    await make_run(client, batch_size=6, balance_window=4)
    for name, share in (("math", 0.5), ("code", 0.3)):
        joined = await client.post(f"{RUN}/environments", json={"name": name, "min_share": share, "group_size": 1})
        assert joined.status_code == 201
    rng = np.random.default_rng(3)
    for number in range(24):
        tokens = int(rng.integers(1, 200))
        await submit(client, long_group(f"{number % 2}-{number}", tokens, environment=number % 2))
    for _ in range(4):
        taken = await step(client)
        assert len(taken) == 6
        assert sum(name.startswith("0-") for name in taken) >= 3
        assert sum(name.startswith("1-") for name in taken) >= 1
    assert (await status(client))["groups"]["delivered"] == 24


async def test_groups_that_became_too_old_are_not_chosen(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=3, balance_window=3, max_staleness=0)
    await submit(client, long_group("long", 300), *(long_group(f"s{number}", 10) for number in range(4)))
    await submit(client, *(long_group(f"old{number}", 10, policy_version=0) for number in range(4)))
    await set_version(client, 1)
    await submit(client, *(long_group(f"new{number}", 10) for number in range(2)))
    first = await step(client)
    assert not [name for name in first if name.startswith("old")]
    assert len(first) == 3
