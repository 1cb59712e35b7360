"""The ranks of a trainer share a batch: each gets its own shard, in any order and after crashes."""

import asyncio
from itertools import permutations
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from tests.scenarios.native_calls import (
    RUN,
    Batch,
    change_run,
    content,
    end,
    group,
    ids,
    lease_runs_out,
    leased_batches,
    make_run,
    status,
    submit,
    take,
    taken,
    trainers_wait,
)

WORLD = 3
SHORT_S = 0.2


async def ask(
    client: httpx.AsyncClient,
    rank: int,
    wait_s: float = 0,
    lease_s: float = 600,
    request_id: str | None = None,
    **query: Any,
) -> httpx.Response:
    asked = {"rank": rank, "world_size": WORLD, "wait_s": wait_s, **query}
    return await client.post(f"{RUN}/batches", params=asked, json={"lease_s": lease_s, "request_id": request_id})


async def shard(client: httpx.AsyncClient, rank: int, **query: Any) -> Batch:
    """Take the shard of a rank of a batch that is available."""
    reply = await ask(client, rank, **query)
    assert reply.status_code == 201, reply.text
    got: Batch = reply.json()
    assert got["shard"]["rank"] == rank
    assert float(reply.headers["lachesis-imbalance"]) == pytest.approx(got["shard"]["balance"]["imbalance"], abs=1e-4)
    assert got["shard"]["size"] == sum(one["size"] for one in got["groups"])
    return got


async def filled(client: httpx.AsyncClient, batches: int = 1, **settings: Any) -> list[str]:
    """A run with a queue of groups of two, six in each batch; returns their ids."""
    await make_run(client, batch_size=12, **settings)
    names = [f"g{number:02}" for number in range(6 * batches)]
    await submit(client, *names)
    return names


@pytest.mark.parametrize("order", list(permutations(range(WORLD))), ids=str)
async def test_the_shards_are_one_batch_and_disjoint_in_any_order_of_ranks(
    client: httpx.AsyncClient, order: tuple[int, ...]
) -> None:
    names = await filled(client)
    shards = {rank: await shard(client, rank) for rank in order}
    assert len({got["batch"] for got in shards.values()}) == 1
    assert len({got["lease"] for got in shards.values()}) == 1
    assert sorted(name for got in shards.values() for name in ids(got)) == names
    assert {got["shard"]["size"] for got in shards.values()} == {4}, "the same number of sequences, as it divides"
    again = await shard(client, order[0])
    assert content(again) == content(shards[order[0]])
    assert again["delivery_count"] == 1


async def test_a_short_extension_does_not_shorten_the_lease(
    client: httpx.AsyncClient,
) -> None:
    await filled(client)
    batch = await shard(client, 0, lease_s=600)
    short = await shard(client, 1, lease_s=1)
    reply = await end(client, short, "extend", lease_s=1)
    assert reply.json()["lease_s"] > 500, "the answer is how long the lease really lasts"
    (held,) = await leased_batches(client)
    assert held["expires_s"] > 500
    longer = await end(client, batch, "extend", lease_s=1200)
    assert longer.json()["lease_s"] == 1200


async def test_ranks_that_ask_at_once_get_one_batch(client: httpx.AsyncClient) -> None:
    names = await filled(client, batches=2)
    got = await asyncio.gather(*(shard(client, rank) for rank in range(WORLD) for _ in range(3)))
    assert {one["step"] for one in got} == {1}
    assert sorted({name for one in got for name in ids(one)}) == names[:6]


async def test_ranks_that_wait_are_all_woken_by_one_batch(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=12)
    waiting = [asyncio.create_task(shard(client, rank, wait_s=20)) for rank in range(WORLD)]
    await trainers_wait(client, WORLD)
    await submit(client, *(f"g{number}" for number in range(6)))
    got = await asyncio.gather(*waiting)
    assert {one["step"] for one in got} == {1}
    assert len({name for one in got for name in ids(one)}) == 6


async def test_a_rank_gets_its_shard_while_others_wait_for_the_next_batch(client: httpx.AsyncClient) -> None:
    await filled(client)
    first = await shard(client, 0)
    await end(client, first, rank=0)
    ahead = asyncio.create_task(ask(client, 0, wait_s=1))
    await trainers_wait(client, 1)
    assert (await shard(client, 1, wait_s=20))["batch"] == first["batch"]
    waited = await ahead
    assert waited.status_code == 204
    assert waited.headers["Lachesis-Waiting"].endswith("the batch of step 1 awaits ranks 1, 2")


async def test_explain_names_the_ranks_that_others_wait_for(client: httpx.AsyncClient) -> None:
    """The SDK logs this reason while a loop waits."""
    await filled(client)
    shards = [await shard(client, rank) for rank in range(WORLD)]
    for rank, said in ((2, "the batch of step 1 awaits ranks 0, 1"), (0, "the batch of step 1 awaits rank 1")):
        await end(client, shards[rank], rank=rank)
        assert said in (await client.get(f"{RUN}/batches/explain")).json()["detail"].split("; ")
    await end(client, shards[1], rank=1)
    assert "awaits" not in (await client.get(f"{RUN}/batches/explain")).json()["detail"]


async def test_a_batch_ends_when_every_rank_has_trained_on_its_shard(client: httpx.AsyncClient) -> None:
    await filled(client, batches=2)
    shards = [await shard(client, rank) for rank in range(WORLD)]
    first = (await end(client, shards[2], rank=2)).json()
    assert (first["state"], first["awaited_ranks"]) == ("held", [0, 1])
    assert (await end(client, shards[2], rank=2)).json() == first, "its answer may have been lost"
    (held,) = await leased_batches(client)
    assert (held["world_size"], held["taken_by"], held["acknowledged_by"]) == (3, [0, 1, 2], [2])
    await end(client, shards[0], rank=0)
    assert (await status(client))["groups"]["delivered"] == 0
    last = (await end(client, shards[1], rank=1)).json()
    assert (last["state"], last["awaited_ranks"]) == ("acknowledged", [])
    assert (await status(client))["groups"]["delivered"] == 6
    assert (await end(client, shards[0], rank=0)).json()["state"] == "acknowledged"
    assert [(await shard(client, rank))["step"] for rank in range(WORLD)] == [2, 2, 2]


async def test_all_ranks_can_acknowledge_at_once(client: httpx.AsyncClient) -> None:
    await filled(client)
    shards = [await shard(client, rank) for rank in range(WORLD)]
    replies = await asyncio.gather(*(end(client, got, rank=got["shard"]["rank"]) for got in shards))
    assert [reply.status_code for reply in replies] == [200] * WORLD
    assert (await status(client))["groups"]["delivered"] == 6


async def test_rank_0_can_speak_for_all(client: httpx.AsyncClient) -> None:
    await filled(client)
    shards = [await shard(client, rank, ended_by="rank_0") for rank in range(WORLD)]
    assert (await end(client, shards[1], rank=1)).json()["awaited_ranks"] == [0]
    assert (await end(client, shards[0], rank=0)).json()["state"] == "acknowledged"
    assert (await end(client, shards[2], rank=2)).json()["state"] == "acknowledged", "it says what is so"


async def test_a_rank_asks_for_the_batch_after_the_one_it_has(client: httpx.AsyncClient) -> None:
    """A rank can prefetch. Without `after` it gets the oldest shard that it has not acknowledged."""
    await filled(client, batches=3)
    steps = [(await shard(client, 0, after=after))["step"] for after in (0, 1, 2)]
    assert steps == [1, 2, 3]
    ahead = await shard(client, 1, after=1)
    assert ahead["step"] == 2
    assert (await shard(client, 1))["step"] == 1
    await end(client, await shard(client, 1), rank=1)
    assert (await shard(client, 1))["batch"] == ahead["batch"]
    assert (await ask(client, 0, after=3)).status_code == 204


async def test_ranks_that_disagree_learn_in_what(client: httpx.AsyncClient) -> None:
    await filled(client, batches=2)
    await shard(client, 0)
    for other, named in (({"world_size": 4}, "world_size is 3"), ({"split_groups": True}, "split_groups is False")):
        reply = await ask(client, 1, **other)
        assert (reply.status_code, reply.json()["code"]) == (409, "ranks_disagree")
        assert named in reply.json()["detail"]
    late = await ask(client, 1, step=2)
    assert (late.status_code, late.json()["code"]) == (409, "step_mismatch")
    assert "step 2" in late.json()["detail"]
    assert (await ask(client, 1, step=1)).status_code == 201
    early = await ask(client, 0, after=1, step=3)
    assert early.json()["code"] == "step_mismatch", "a batch that nobody has yet is of a step, too"


@pytest.mark.parametrize("wait_s", [0, 20])
async def test_ranks_do_not_continue_in_a_run_that_was_created_again(client: httpx.AsyncClient, wait_s: float) -> None:
    """Each would get another batch, as it says it has the others."""
    await filled(client, batches=2)
    for rank in range(WORLD):
        for after in (0, 1):
            await shard(client, rank, after=after)
    assert (await client.delete(RUN)).status_code == 204
    await make_run(client, batch_size=12)
    if not wait_s:
        await submit(client, *(f"g{number}" for number in range(6)))
    for reply in [await ask(client, rank, after=2, wait_s=wait_s) for rank in range(WORLD)]:
        assert (reply.status_code, reply.json()["code"]) == (409, "step_mismatch")
    if not wait_s:
        assert {(await shard(client, rank))["step"] for rank in range(WORLD)} == {1}


async def test_a_rank_that_disagrees_is_no_harm_to_others_who_wait(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=12)
    good = asyncio.create_task(shard(client, 0, wait_s=20))
    await trainers_wait(client, 1)
    bad = asyncio.create_task(ask(client, 1, wait_s=20, world_size=2))
    whole = asyncio.create_task(take(client, wait_s=20))
    await trainers_wait(client, 3)
    await submit(client, *(f"g{number}" for number in range(6)))
    assert (await good)["step"] == 1
    assert (await bad).json()["code"] == "ranks_disagree"
    assert not whole.done()
    await submit(client, *(f"h{number}" for number in range(6)))
    taken = await whole
    assert taken is not None
    assert "shard" not in taken


async def test_a_dead_rank_holds_up_the_others_until_the_lease_expires(client: httpx.AsyncClient) -> None:
    """All ranks get the same shards under a new lease; the old lease is refused."""
    await filled(client)
    before = [await shard(client, rank, lease_s=SHORT_S) for rank in range(WORLD)]
    await end(client, before[0], rank=0)
    await end(client, before[1], rank=1)
    await lease_runs_out(client, before[0])
    after = [await shard(client, rank) for rank in (2, 0, 1)]
    assert {got["delivery_count"] for got in after} == {2}
    assert {got["batch"] for got in after} == {before[0]["batch"]}
    assert [content(got) for got in after] == [content(before[rank]) for rank in (2, 0, 1)]
    late = await end(client, before[2], rank=2)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    for got in after:
        assert (await end(client, got, rank=got["shard"]["rank"])).status_code == 200
    assert (await status(client))["groups"]["delivered"] == 6


async def test_another_world_size_shards_a_redelivered_batch_again(
    client: httpx.AsyncClient,
) -> None:
    names = await filled(client)
    await shard(client, 0)
    assert (await ask(client, 0, world_size=2)).status_code == 409
    assert (await client.post(f"{RUN}/rewind", json={"step": 0})).status_code == 200
    halves = [await shard(client, rank, world_size=2) for rank in range(2)]
    assert sorted(ids(halves[0]) + ids(halves[1])) == names
    assert {got["shard"]["world_size"] for got in halves} == {2}


async def test_a_rank_that_gives_back_gives_back_for_all(client: httpx.AsyncClient) -> None:
    names = await filled(client)
    first, second = await shard(client, 0), await shard(client, 1)
    assert (await end(client, first, "nack")).status_code == 200
    assert (await end(client, second, rank=1)).json()["code"] == "lease_lost"
    again = [await shard(client, rank) for rank in range(WORLD)]
    assert sorted(name for got in again for name in ids(got)) == names
    assert {got["step"] for got in again} == {2}


async def test_a_whole_batch_and_a_divided_one_can_follow_each_other(client: httpx.AsyncClient) -> None:
    """A trainer without ranks takes over a sharded batch, and the reverse."""
    names = await filled(client)
    divided = await shard(client, 0, lease_s=SHORT_S)
    await lease_runs_out(client, divided)
    whole = await take(client, lease_s=SHORT_S)
    assert whole is not None
    assert ids(whole) == names
    await lease_runs_out(client, whole)
    assert (await shard(client, 1))["delivery_count"] == 3


async def test_ranks_that_are_past_it_get_the_batch_of_a_dead_trainer_without_ranks(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    names = await filled(client, batches=2)
    assert await take(client, lease_s=600) is not None
    ahead = [await shard(client, rank, after=1, lease_s=7200) for rank in range(WORLD)]
    assert [got["step"] for got in ahead] == [2, 2, 2]
    await redis_client.hincrby(RunKeys("run").run, "clock_ms", 3_600_000)  # type: ignore[misc]
    again = [await shard(client, rank, after=2, request_id=f"{rank}") for rank in range(WORLD)]
    assert {(got["step"], got["delivery_count"]) for got in again} == {(1, 2)}
    assert sorted(name for got in again for name in ids(got)) == names[:6]
    assert (await ask(client, 0, after=2)).status_code == 204


async def test_sequences_of_a_group_are_spread_if_they_may_be(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=6)
    await submit(client, group("g", size=6, item="x"))
    shards = [await shard(client, rank, split_groups=True) for rank in range(WORLD)]
    parts = [got["groups"][0]["sequences"] for got in shards]
    assert sorted(position for part in parts for position in part) == list(range(6))
    for got, part in zip(shards, parts, strict=True):
        (one,) = got["groups"]
        assert one["tokens"] == [[position, 7] for position in part]
        assert one["scores"] == [float(position) for position in part]
        assert (one["id"], one["item"], one["size"]) == ("g", "x", 2)
        assert got["batch_size"] == 6
        assert got["shard"]["split_groups"] is True


async def test_groups_stay_whole_unless_equal_numbers_are_asked_for(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=12)
    await submit(client, *(group(name, size=6) for name in ("a", "b")))
    whole = [await shard(client, rank) for rank in range(WORLD)]
    assert sorted(got["shard"]["size"] for got in whole) == [0, 6, 6]
    assert whole[0]["shard"]["equal_sequences"] is False
    await end(client, whole[0], "nack")
    equal = [await shard(client, rank, equal_sequences=True) for rank in range(WORLD)]
    assert [got["shard"]["size"] for got in equal] == [4, 4, 4]
    assert {(got["shard"]["equal_sequences"], got["shard"]["split_groups"]) for got in equal} == {(True, True)}


async def test_the_cost_decides_who_gets_what_and_is_reported(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4)
    lengths = {"a": 60, "b": 10, "c": 40, "d": 10}
    for name, length in lengths.items():
        tokens = [list(range(length))]
        await submit(client, {"id": name, "tokens": tokens, "masks": tokens, "scores": [0.0]})
    shards = [await shard(client, rank, world_size=2, equal_sequences=False) for rank in range(2)]
    assert {tuple(ids(got)) for got in shards} == {("a",), ("b", "c", "d")}
    balance = shards[0]["shard"]["balance"]
    assert balance == shards[1]["shard"]["balance"]
    assert (balance["imbalance"], balance["bound"], balance["max_over_min"]) == (0.0, 0.0, 1.0)
    assert balance["contiguous"] == pytest.approx(70 / 60 - 1)
    ranks = (await status(client))["ranks"]
    assert (ranks["batches"], ranks["world_size"], ranks["last"]) == (1, 2, balance)
    assert ranks["mean_contiguous"] == balance["contiguous"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"rank": 0}, "go together"),
        ({"world_size": 2}, "go together"),
        ({"rank": 2, "world_size": 2}, "ranks are 0 to 1"),
        ({"rank": -1, "world_size": 2}, "greater than or equal to 0"),
        ({"rank": 0, "world_size": 5000}, "less than or equal to 4096"),
        ({"split_groups": "true"}, "only with rank"),
        ({"rank": 2, "world_size": 2}, "query: rank 2"),
        ({"rank": 0, "world_size": 2, "cost": "gold"}, "expected `tokens`, `declared`, or a sum like"),
        ({"rank": 0, "world_size": 2, "cost": "2*L L^2"}, "a plus is written %2B"),
        ({"rank": 0, "world_size": 5, "equal_sequences": "true"}, "12 sequences"),
        ({"rank": 0, "world_size": 2, "ended_by": "me"}, "rank_0"),
        ({"rank": [0, 1], "world_size": 2}, "query.rank: duplicate parameter"),
        ({"rank": 0, "world_size": 2, "cost": "1e308*L^2"}, "cost: the cost of job 0 is inf"),
    ],
    ids=str,
)
async def test_what_no_rank_can_mean_is_refused(client: httpx.AsyncClient, query: dict[str, Any], said: str) -> None:
    await filled(client)
    reply = await client.post(f"{RUN}/batches", params=query)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field")
    assert said in reply.json()["detail"]
    assert (await status(client))["groups"]["leased"] == 0


async def test_an_acknowledgement_names_its_rank_where_there_are_ranks(client: httpx.AsyncClient) -> None:
    await filled(client, batches=2)
    divided = await shard(client, 0)
    for said in ({}, {"rank": WORLD}):
        reply = await end(client, divided, **said)
        assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["rank"])
    whole = await take(client)
    assert whole is not None
    assert (await end(client, whole, rank=0)).status_code == 422


async def test_a_new_batch_size_does_not_change_a_batch_in_use(client: httpx.AsyncClient) -> None:
    await filled(client)
    await shard(client, 0)
    await change_run(client, batch_size=6)
    assert (await shard(client, 1))["batch_size"] == 12


async def test_every_rank_gets_the_same_number_of_micro_batches(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=8)
    for number, length in enumerate((60, 30, 30, 20, 20, 20, 10, 10)):
        tokens = [list(range(length))]
        await submit(client, {"id": f"g{number}", "tokens": tokens, "masks": tokens, "scores": [0.0]})
    asked = {"world_size": 2, "equal_sequences": False, "micro_batch_tokens": 60}
    shards = [await shard(client, rank, **asked) for rank in range(2)]
    for got in shards:
        lengths = [len(one["tokens"][0]) for one in got["groups"]]
        packing = got["shard"]["packing"]
        rows = packing["micro_batches"]
        assert sorted(row for batch in rows for row in batch) == list(range(len(lengths)))
        assert all(sum(lengths[row] for row in batch) <= 60 for batch in rows)
        assert packing["bound"] <= len(rows)
    assert len({len(got["shard"]["packing"]["micro_batches"]) for got in shards}) == 1
    too_small = await ask(client, 0, after=1, **asked | {"micro_batch_tokens": 5})
    assert too_small.status_code == 204
    await submit(client, group("long", size=8))
    too_small = await ask(client, 0, after=1, **asked | {"micro_batch_tokens": 1})
    assert (too_small.status_code, too_small.json()["code"]) == (422, "sequence_too_long")
    said = "query.micro_batch_tokens: sequence 0 of group long in the next batch has 2 tokens, more than the 1 of"
    assert said in too_small.json()["detail"]
    assert (await status(client))["groups"]["queued"] == 1, "it is taken by nobody"


async def test_a_redelivered_batch_stays_equal(client: httpx.AsyncClient) -> None:
    await filled(client)
    await lease_runs_out(client, await shard(client, 0, lease_s=SHORT_S))
    reply = await ask(client, 0, world_size=5, equal_sequences=True)
    assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["equal_sequences"])
    assert (await shard(client, 0, world_size=4, equal_sequences=True))["shard"]["size"] == 3


async def test_who_takes_whole_batches_does_not_get_one_that_ranks_have(client: httpx.AsyncClient) -> None:
    """The request id of a rank is valid for that rank only."""
    await filled(client)
    request = {"lease_s": 600, "request_id": "mine"}
    first = await client.post(f"{RUN}/batches", params={"rank": 0, "world_size": WORLD}, json=request)
    assert first.status_code == 201
    assert await take(client, request_id="mine") is None
    assert (await end(client, first.json(), rank=0)).status_code == 200


@pytest.mark.parametrize(("asks", "wait_s"), [("a rank", 5.0), ("a rank", 0.0), ("a whole trainer", 5.0)])
async def test_a_rank_that_waits_for_a_later_batch_is_in_nobody_s_way(
    client: httpx.AsyncClient, asks: str, wait_s: float
) -> None:
    """It had the batch to redeliver, so the ranks behind it get that first. Then it gets it again, too."""
    await filled(client, batches=2)
    first = await shard(client, 0, lease_s=SHORT_S)
    await shard(client, 0, after=1)
    ahead = asyncio.create_task(ask(client, 0, wait_s=20, after=2))
    await lease_runs_out(client, first)
    got = await shard(client, 1, wait_s=wait_s) if asks == "a rank" else await taken(client, wait_s=wait_s)
    assert (got["batch"], got["delivery_count"]) == (first["batch"], 2)
    if asks == "a rank":
        again = (await ahead).json()
        assert (again["batch"], again["lease"]) == (got["batch"], got["lease"])
    else:
        assert not ahead.done()
        ahead.cancel()


async def test_a_batch_that_comes_again_comes_to_ranks_that_are_past_it(client: httpx.AsyncClient) -> None:
    """A rank that was restarted alone would else wait for ranks that wait for a later batch."""
    await filled(client, batches=3)
    first = await shard(client, 0, lease_s=SHORT_S)
    await shard(client, 0, after=1)
    await end(client, first, rank=0)
    await lease_runs_out(client, first)
    assert (await shard(client, 0, after=2))["step"] == 3, "it waits until another rank has the batch"
    restarted = await shard(client, 1)
    assert (restarted["step"], restarted["delivery_count"]) == (1, 2)
    again = await shard(client, 0, after=3, request_id="r1")
    assert (again["lease"], content(again)) == (restarted["lease"], content(first))
    assert content(await shard(client, 0, after=3, request_id="r1")) == content(first), "it may not have got the reply"
    assert (await ask(client, 0, after=3, request_id="r2")).status_code == 204
    assert (await ask(client, 0, after=3)).status_code == 204, "it has this delivery"
    for got in (restarted, again, await shard(client, 2, after=3)):
        await end(client, got, rank=got["shard"]["rank"])
    assert (await status(client))["groups"]["delivered"] == 6
