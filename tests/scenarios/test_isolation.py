"""Two runs of one service do not affect each other, and a deleted run leaves no key."""

import httpx
from redis.asyncio import Redis

from tests.scenarios.native_calls import content, end, group, ids, make_run, submit, taken, trained

TIMED = (b":run", b":workers", b":seen", b":events")
LEFT, RIGHT = "/v1/runs/lefty", "/v1/runs/right"


async def live(client: httpx.AsyncClient, run: str) -> None:
    """Give a run groups in each state, an environment and two policy versions."""
    joined = await client.post(f"{run}/environments", json={"name": "math", "group_size": 2})
    assert joined.json()["id"] == 0, "ids are the run's own"
    await client.put(f"{run}/policy-version", json={"policy_version": 3})
    await submit(client, group("stale", policy_version=0), *(group(one, environment=0) for one in "abcdefg"), run=run)
    await trained(client, run)
    await taken(client, run=run)


async def keys_of(redis: Redis, name: str) -> dict[bytes, bytes]:
    """Return the keys and values of a run in Redis, without what time changes: clock, events, history."""
    keys = [key async for key in redis.scan_iter(f"*{name}*")]
    return {key: await redis.dump(key) for key in keys if not key.endswith(TIMED) and b":series" not in key}


async def test_deleting_a_run_deletes_its_keys_only(client: httpx.AsyncClient, redis_client: Redis) -> None:
    for name, run in (("lefty", LEFT), ("right", RIGHT)):
        await make_run(client, name=name, max_staleness=1)
        await live(client, run)
    before = await keys_of(redis_client, "right")
    assert len(before) > 15
    assert len(await keys_of(redis_client, "lefty")) == len(before)

    assert (await client.delete(LEFT)).status_code == 204
    assert await redis_client.keys("*lefty*") == []
    assert await keys_of(redis_client, "right") == before
    assert [run["name"] for run in (await client.get("/v1/runs")).json()["runs"]] == ["right"]
    assert (await client.post(f"{LEFT}/groups", json=group("a"))).json()["code"] == "run_not_found"
    assert (await client.post(f"{LEFT}/batches")).json()["code"] == "run_not_found"
    assert ids(await trained(client, RIGHT)) == ["e", "f"]


async def test_a_new_run_of_a_deleted_name_starts_empty(
    client: httpx.AsyncClient,
) -> None:
    for _ in range(2):
        await make_run(client, name="lefty", max_staleness=1)
        await live(client, LEFT)
        assert ids(await taken(client, run=LEFT)) == ["e", "f"]
        await client.delete(LEFT)


async def test_ids_and_leases_of_one_run_mean_nothing_in_another(client: httpx.AsyncClient) -> None:
    for name, run, score in (("lefty", LEFT, 1.0), ("right", RIGHT, 2.0)):
        await make_run(client, name=name, batch_size=2)
        assert await submit(client, group("a") | {"scores": [score, score]}, run=run) == ["accepted"]
    left, right = await taken(client, run=LEFT), await taken(client, run=RIGHT)
    assert ids(left) == ids(right) == ["a"]
    assert (content(left)[0]["scores"], content(right)[0]["scores"]) == ([1.0, 1.0], [2.0, 2.0])
    assert (await end(client, left, run=RIGHT)).json()["code"] == "batch_not_found"
    assert (await end(client, left, run=LEFT)).status_code == 200
    assert (await end(client, right, run=RIGHT)).status_code == 200
