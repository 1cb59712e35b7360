"""Operators list the groups of a run over HTTP: filtered, page by page, while everything moves."""

import asyncio
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys

RUN = "/v1/runs/math"
GROUPS = f"{RUN}/groups"
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\u2066 &amp; \x00 \"'"


def group(name: str, score: float = 0.5, **more: Any) -> dict[str, Any]:
    return {"id": name, "tokens": [[1, 2, 3], [4]], "masks": [[-100, 2, 3], [4]], "scores": [score, score]} | more


async def made(client: httpx.AsyncClient, batch_size: int = 4, **settings: Any) -> None:
    created = await client.post("/v1/runs", json={"name": "math", "batch_size": batch_size} | settings)
    assert created.status_code == 201, created.text
    for name in ("gsm8k", "code"):
        assert (await client.post(f"{RUN}/environments", json={"name": name})).status_code == 201


async def send(client: httpx.AsyncClient, *groups: dict[str, Any]) -> None:
    reply = await client.post(GROUPS, json={"groups": groups})
    assert reply.status_code == 201, reply.text


async def listed(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    """Return all groups of a list, page by page."""
    found: list[dict[str, Any]] = []
    while True:
        reply = await client.get(GROUPS, params=query)
        assert reply.status_code == 200, reply.text
        page = reply.json()
        assert len(page["groups"]) <= query.get("limit", 50)
        found += page["groups"]
        if page["cursor"] is None:
            return found
        query["cursor"] = page["cursor"]


async def ids(client: httpx.AsyncClient, **query: Any) -> list[str]:
    return [group["id"] for group in await listed(client, **query)]


async def take(client: httpx.AsyncClient) -> dict[str, Any]:
    reply = await client.post(f"{RUN}/batches", json={"trainer": "t"})
    assert reply.status_code == 201, reply.text
    return dict(reply.json())


async def test_a_group_is_listed_with_all_that_is_known_of_it_wherever_it_is(client: httpx.AsyncClient) -> None:
    await made(client)
    assert (await client.put(f"{RUN}/policy-version", json={"policy_version": 5})).status_code == 200
    await send(client, group("a", 1.0, environment=0, policy_version=3, item="task/1"), group("b", 0.25))
    (b, a) = await listed(client)
    assert a.pop("received_age_s") >= 0
    assert a.pop("payload_bytes") > 0
    assert a == {
        "id": "a", "state": "queued", "environment": 0, "environment_name": "gsm8k", "size": 2, "tokens": 4,
        "mean_score": 1.0, "policy_version": 3, "staleness": 2, "item": "task/1", "batch": None, "step": None,
        "ended_age_s": None, "reason": None,
    }  # fmt: skip
    assert (b["environment"], b["environment_name"], b["staleness"], b["item"]) == (None, None, None, None)
    batch = await take(client)
    leased = await listed(client)
    assert [(one["id"], one["state"], one["batch"], one["step"]) for one in leased] == [
        ("a", "leased", batch["batch"], 1),
        ("b", "leased", batch["batch"], 1),
    ]
    assert (await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})).status_code < 300
    kept = await listed(client, state="kept")
    assert [(one["id"], one["mean_score"], one["batch"]) for one in kept] == [
        ("a", 1.0, batch["batch"]),
        ("b", 0.25, batch["batch"]),
    ]
    assert all(one["ended_age_s"] >= 0 for one in kept)
    assert await listed(client, state="delivered") == []
    assert (await client.post(f"{RUN}/checkpoints", json={"step": 1})).status_code == 200
    delivered = await listed(client)
    assert [(one["state"], one["size"], one["tokens"], one["batch"], one["step"]) for one in delivered] == [
        ("delivered", 2, None, batch["batch"], 1)
    ] * 2
    for one in delivered:
        history = (await client.get(f"{GROUPS}/{one['id']}")).json()
        assert (history["state"], history["batch"]) == ("delivered", batch["batch"]), "the short id finds it, too"


async def test_groups_are_found_by_when_they_came_and_by_their_step(client: httpx.AsyncClient, redis_url: str) -> None:
    await made(client)
    redis = Redis.from_url(redis_url)

    async def now_s() -> float:
        seconds, microseconds = await redis.time()
        return float(seconds + microseconds / 1e6)

    await send(client, group("a"), group("b"))
    (moment,) = {one["received_age_s"] for one in await listed(client)}
    before_s, after_s = await now_s() - moment - 60, await now_s() + 60
    await redis.aclose()
    assert await ids(client, received_from_s=before_s, received_to_s=after_s) == ["b", "a"]
    assert await ids(client, received_to_s=before_s) == []
    assert await ids(client, received_from_s=after_s) == []
    assert await ids(client, step_min=0) == []
    await take(client)
    await send(client, group("c"))
    assert await ids(client, step_min=1, step_max=1) == ["a", "b"]
    assert await ids(client, step_max=0) == []
    assert await ids(client, step_min=2) == []
    assert (await client.get(GROUPS, params={"received_from_s": "nan"})).status_code == 422


async def test_each_filter_finds_its_groups(client: httpx.AsyncClient) -> None:
    await made(client, 100, max_staleness=3, filter_reward_range={"below": 5.0})
    assert (await client.put(f"{RUN}/policy-version", json={"policy_version": 5})).status_code == 200
    await send(
        client,
        group("old", 0.1, environment=0, policy_version=2),
        group("new", 0.9, environment=1, policy_version=5, item="task/1"),
        group("nobody", 0.9, item=HOSTILE),
        group("stale", policy_version=1),
        group("best", 5.0),
    )
    assert await ids(client, state="queued") == ["nobody", "new", "old"]
    assert await ids(client, environment=0) == ["old"]
    assert await ids(client, environment="code") == ["new"]
    assert await ids(client, environment="none", state="queued") == ["nobody"]
    assert await ids(client, score_min=0.9) == ["nobody", "new"]
    assert await ids(client, score_max=0.5) == ["old"]
    assert await ids(client, score_min=0.9, score_max=0.9, environment="code") == ["new"]
    assert await ids(client, staleness_min=0) == ["new", "old"]
    assert await ids(client, staleness_min=3) == ["old"]
    assert await ids(client, item="task/1") == ["new"]
    assert await ids(client, item=HOSTILE) == ["nobody"]
    assert [one["reason"] for one in await listed(client, state="dropped")] == ["reward_range", "stale"]
    assert [one["policy_version"] for one in await listed(client, dropped="stale")] == [1]
    assert await listed(client, dropped="stale", state="queued") == []
    unknown = await client.get(f"{RUN}/groups", params={"dropped": "lost"})
    assert (unknown.status_code, unknown.json()["errors"][0]["loc"]) == (422, ["query", "dropped"])
    unknown = await client.get(GROUPS, params={"environment": "math"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "environment_not_found")


@pytest.mark.parametrize(
    "query",
    [{"state": "gone"}, {"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"score_min": "nan"}, {"staleness_min": -1}],
    ids=str,
)
async def test_a_wrong_value_is_refused_with_its_place(client: httpx.AsyncClient, query: dict[str, Any]) -> None:
    await made(client)
    reply = await client.get(GROUPS, params=query)
    assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["query", *query])


async def test_a_request_looks_at_a_limited_number_of_groups_and_says_at_how_many(client: httpx.AsyncClient) -> None:
    await made(client, 10_000)
    many = [group(f"g{n}", 0.0, environment=n % 2, item=f"task/{n}") for n in range(1200)]
    await send(client, *many[:700])
    await send(client, *many[700:])
    page = (await client.get(GROUPS, params={"item": "task/3"})).json()
    assert (page["groups"], page["looked_at"]) == ([], 1000)
    page = (await client.get(GROUPS, params={"item": "task/3", "cursor": page["cursor"]})).json()
    assert ([one["id"] for one in page["groups"]], page["looked_at"], page["cursor"]) == (["g3"], 200, None)
    newest_first = [f"g{n}" for n in reversed(range(1200))]
    assert await ids(client, limit=7) == newest_first
    assert await ids(client, limit=1000) == newest_first
    page = (await client.get(GROUPS)).json()
    assert (len(page["groups"]), page["looked_at"]) == (50, 50)
    await client.delete(GROUPS, params={"size": 2})
    await client.delete(GROUPS, params={"size": 2})
    assert len(await ids(client, dropped="deleted", limit=999)) == 1200


@pytest.mark.parametrize("state", ["leased", "kept"])
async def test_a_page_reads_many_small_batches_at_once(
    client: httpx.AsyncClient, redis_client: Redis, state: str
) -> None:
    await made(client, 2, keep_batches=120)
    await send(client, *(group(f"g{n}") for n in range(120)))
    for _ in range(120):
        batch = await take(client)
        if state == "kept":
            ack = f"{RUN}/batches/{batch['batch']}/ack"
            assert (await client.post(ack, json={"lease": batch["lease"]})).status_code < 300
    await redis_client.config_resetstat()
    page = (await client.get(GROUPS, params={"state": state, "limit": 1000})).json()
    counts = await redis_client.info("commandstats")
    reads = sum(counts.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("zrange", "hget", "hmget"))
    latest_first = [f"g{n}" for n in reversed(range(120))]
    assert ([one["id"] for one in page["groups"]], page["looked_at"], page["cursor"]) == (latest_first, 120, None)
    assert reads < 60, "fewer than batches"
    assert await ids(client, state=state, limit=7) == latest_first
    assert await ids(client, state=state, score_min=0.6) == []


async def test_what_senders_wrote_comes_back_as_json_text(client: httpx.AsyncClient) -> None:
    await made(client)
    await send(client, group("a", item=HOSTILE, metadata={HOSTILE: HOSTILE}))
    reply = await client.get(GROUPS)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.json()["groups"][0]["item"] == HOSTILE
    assert b"\x1b" not in reply.content
    assert b"\x00" not in reply.content


async def test_a_group_whose_record_or_payload_is_gone_does_not_break_a_list(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    """As if it had moved between the reads."""
    await made(client)
    await send(client, group("a", item="x"), group("b", item="x"), group("c", item="x"))
    keys = RunKeys("math")
    own = await redis_client.hgetall(keys.groups)  # type: ignore[misc]
    of = {value.decode().split()[6]: one.decode() for one, value in own.items()}
    await redis_client.delete(keys.payload(of["a"]))
    await redis_client.hdel(keys.groups, of["b"])  # type: ignore[misc]
    assert [(one["id"], one["item"]) for one in await listed(client)] == [("c", "x"), ("a", None)]
    assert await ids(client, item="x") == ["c"]


async def test_lists_are_whole_while_groups_come_go_and_are_dropped(client: httpx.AsyncClient) -> None:
    """Groups that stay are in each list once; all others may be anywhere, and no list fails."""
    await made(client, 4)
    stay = [group(f"stay{n}", 0.5, tokens=[[1]] * 5, masks=[[1]] * 5, scores=[0.5] * 5) for n in range(60)]
    await send(client, *stay)
    busy = True

    async def produce() -> None:
        for n in range(60):
            await send(client, *(group(f"go{n}-{k}", environment=k % 2) for k in range(4)))
            await client.delete(f"{GROUPS}/go{n}-0")

    async def train() -> None:
        while busy:
            reply = await client.post(f"{RUN}/batches", json={"trainer": "t"})
            if reply.status_code == 201:
                batch = reply.json()
                await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})
                await client.post(f"{RUN}/checkpoints", json={"step": batch["step"]})

    async def look() -> None:
        while busy:
            found = await listed(client, limit=23)
            assert [one["id"] for one in found if one["id"].startswith("stay")] == [
                f"stay{n}" for n in reversed(range(60))
            ]
            assert all(one["state"] in ("queued", "leased", "kept", "delivered", "dropped") for one in found)

    others = [asyncio.create_task(one) for one in (train(), look(), look())]
    await produce()
    busy = False
    await asyncio.gather(*others)
