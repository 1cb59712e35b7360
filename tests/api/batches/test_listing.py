"""The latest batches of a run: what they consist of, where they are, and how evenly they were divided."""

import asyncio
from typing import Any, get_args

import httpx
import pytest
from redis.asyncio import Redis

from app.api.wire.batches import STATE_OF_END
from app.store.batches.records import MOST_RECORDS
from lachesis.wire.batches import BATCHES_SHOWN
from lachesis.wire.states import BatchOutcome
from tests.scenarios.native_calls import RUN, change_run, end, group, make_run, submit, taken
from tests.waiting import wait_until

RECENT = f"{RUN}/batches/recent"


async def recent(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    """Read all pages."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        reply = await client.get(RECENT, params={**query, **({"cursor": cursor} if cursor else {})})
        assert reply.status_code == 200, reply.text
        found += (page := reply.json()["batches"])
        assert len(page) <= query.get("limit", BATCHES_SHOWN)
        cursor = reply.json()["cursor"]
    return found


async def state_of(client: httpx.AsyncClient, batch: str) -> str:
    return str((await client.get(f"{RUN}/batches/{batch}")).json()["state"])


async def test_a_batch_is_listed_with_what_it_consists_of_and_follows_its_way(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4, keep_batches=1)
    assert await recent(client) == []
    await client.post(f"{RUN}/environments", json={"name": "math"})
    await submit(client, group("a", environment=0), group("b"), *(group(f"c{n}", environment=0) for n in range(4)))
    first = await taken(client, trainer="t0")
    (listed,) = await recent(client)
    assert {name: listed[name] for name in ("batch", "step", "state", "delivery_count", "trainer", "ranks")} == {
        "batch": first["batch"],
        "step": 1,
        "state": "held",
        "delivery_count": 1,
        "trainer": "t0",
        "ranks": None,
    }
    assert (listed["groups"], listed["size"], listed["relaxed"], listed["rewound"]) == (2, 4, False, False)
    assert listed["environments"] == [
        {"environment": None, "name": None, "groups": 1, "sequences": 2, "replayed_groups": 0},
        {"environment": 0, "name": "math", "groups": 1, "sequences": 2, "replayed_groups": 0},
    ]
    assert 0 <= listed["formed_age_s"] < 60

    shown = (await client.get(f"{RUN}/batches/{first['batch']}")).json()
    assert [one["id"] for one in shown["contents"]] == ["a", "b"]
    assert shown["contents"][0]["name"] == "math"
    await end(client, first)
    assert await state_of(client, first["batch"]) == "kept"
    second = await taken(client)
    await end(client, second)
    states = [(one["step"], one["state"], one["delivery_count"]) for one in await recent(client, limit=1)]
    assert states == [(2, "kept", 1), (1, "delivered", None)]
    gone = (await client.get(f"{RUN}/batches/{first['batch']}")).json()
    assert (gone["contents"], gone["size"]) == (None, 4)
    third = await taken(client)
    await end(client, third, "nack")
    assert await state_of(client, third["batch"]) == "given_back"


def test_every_end_of_a_batch_is_a_state_of_the_listing() -> None:
    assert STATE_OF_END.keys() == {*get_args(BatchOutcome)}


async def test_loads_of_ranks_are_those_of_their_shards(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4)
    await submit(client, *(group(f"g{n}", size=1, tokens=[[7] * (n + 1)], masks=[[7] * (n + 1)]) for n in range(4)))
    sizes = {}
    for rank in range(2):
        query = {"rank": rank, "world_size": 2, "equal_sequences": "false"}
        reply = await client.post(f"{RUN}/batches", params=query, json={})
        assert reply.status_code == 201, reply.text
        batch = reply.json()
        sizes[rank] = float(sum(len(tokens) for one in batch["groups"] for tokens in one["tokens"]))
    ranks = (await recent(client))[0]["ranks"]
    assert ranks["loads"] == [sizes[0], sizes[1]]
    assert ranks["imbalance"] == pytest.approx(max(sizes.values()) / 5 - 1)
    assert 0 <= ranks["bound"] <= ranks["imbalance"]
    assert (ranks["cost"], ranks["taken_by"], ranks["acknowledged_by"]) == ("tokens", [0, 1], [])


@pytest.mark.parametrize(("ended_by", "ranks"), [("all", [1, 0]), ("rank_0", [0])])
async def test_a_kept_batch_names_all_ranks_whose_acknowledgements_ended_it(
    client: httpx.AsyncClient, ended_by: str, ranks: list[int]
) -> None:
    """The lease that is kept with the batch does not have the last acknowledgement."""
    await make_run(client, batch_size=4)
    await submit(client, *(group(f"g{n}") for n in range(2)))
    query: dict[str, str | int] = {"world_size": 2, "ended_by": ended_by}
    shards = {
        rank: (await client.post(f"{RUN}/batches", params=query | {"rank": rank}, json={})).json() for rank in range(2)
    }
    for rank in ranks:
        body = {"lease": shards[rank]["lease"], "rank": rank}
        assert (await client.post(f"{RUN}/batches/{shards[rank]['batch']}/ack", json=body)).status_code == 200
    (listed,) = await recent(client)
    assert (listed["state"], listed["ranks"]["acknowledged_by"]) == ("kept", sorted(ranks))


async def test_old_batches_are_forgotten_and_those_in_use_come_last(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2, keep_batches=0, max_deliveries=1)
    await submit(client, "stuck")
    stuck = await taken(client, lease_s=0.01)

    async def is_quarantined() -> bool:
        return await state_of(client, stuck["batch"]) == "quarantined"

    await wait_until(is_quarantined)
    for first in range(0, MOST_RECORDS + 1, 64):
        await submit(client, *(f"g{n}" for n in range(first, first + 64)))

    async def train() -> None:
        await end(client, await taken(client))

    for _ in range(0, MOST_RECORDS, 32):
        await asyncio.gather(*(train() for _ in range(32)))
    await train()
    found = await recent(client, limit=100)
    assert len(found) == MOST_RECORDS + 1
    steps = [*range(MOST_RECORDS + 2, 2, -1), 1]
    assert [one["step"] for one in found] == steps
    for limit in (MOST_RECORDS, MOST_RECORDS // 2, 1):
        assert [one["step"] for one in await recent(client, limit=limit)] == steps
    assert (found[-1]["batch"], found[-1]["state"], found[-1]["formed_age_s"]) == (stuck["batch"], "quarantined", None)
    assert found[-1]["size"] == 2
    shown = (await client.get(f"{RUN}/batches/{stuck['batch']}")).json()
    assert [one["id"] for one in shown["contents"]] == ["stuck"]
    await change_run(client, archived=True)
    assert len(await recent(client)) == MOST_RECORDS + 1


async def test_a_range_of_time_has_the_batches_that_were_formed_in_it(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    await make_run(client, batch_size=2, keep_batches=0)
    steps_until = {}

    async def now_s() -> float:
        seconds, microseconds = await redis_client.time()
        return float(seconds + microseconds / 1e6)

    async def is_past(moment_s: float) -> bool:
        return await now_s() > moment_s

    for step in range(1, 6):
        await submit(client, f"g{step}")
        await end(client, await taken(client))
        steps_until[step] = await now_s() + 0.001  # the run clock has milliseconds
        await wait_until(lambda: is_past(steps_until[step] + 0.001), pause_s=0)  # noqa: B023 - it is called here
    for first, last in ((1, 5), (2, 4), (3, 3)):
        between = {"from": steps_until[first - 1] if first > 1 else 0, "to": steps_until[last]}
        expected = list(range(last, first - 1, -1))
        for limit in (1, 2, 128):
            assert [one["step"] for one in await recent(client, limit=limit, **between)] == expected
    assert [one["step"] for one in await recent(client, **{"from": steps_until[4]})] == [5]
    assert [one["step"] for one in await recent(client, to=steps_until[1])] == [1]
    assert await recent(client, **{"from": steps_until[5] + 3600}) == []
    full = (await client.get(RECENT, params={"limit": 2, "to": steps_until[2]})).json()
    assert full["cursor"] is None, "the page has all there are"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("batches/recent?limit=0", 422, "invalid_field"),
        ("batches/recent?limit=129", 422, "invalid_field"),
        ("batches/recent?cursor=x", 422, "invalid_field"),
        ("batches/recent?cursor=abc", 422, "invalid_field"),
        ("batches/recent?from=-1", 422, "invalid_field"),
        ("batches/recent?to=nan", 422, "invalid_field"),
        ("batches/recent?from=2&to=2", 422, "invalid_field"),
        ("batches/abc", 404, "batch_not_found"),
        ("batches/NO", 422, "invalid_field"),
    ],
)
async def test_what_is_not_there_is_refused(client: httpx.AsyncClient, path: str, status: int, code: str) -> None:
    await make_run(client)
    reply = await client.get(f"{RUN}/{path}")
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    missing = await client.get(f"/v1/runs/none/{path}")
    assert missing.status_code in (404, status)
