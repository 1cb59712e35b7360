"""A record of one run that cannot be read hurts that run alone, and operators see it."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from app.core.runs.settings import RunConfig
from app.store.redis.keys import RUNS, RunKeys
from app.store.server.embedded import EmbeddedRedis
from tests.api.conftest import running_service
from tests.api.log_capture import LogLines
from tests.ports import free_port
from tests.scenarios.native_calls import group, join, make_run, submit, taken, trained
from tests.waiting import wait_until

BROKEN, SOUND = "a", "b"  # by name, the broken one comes first
KEYS = RunKeys(BROKEN)
Break = Callable[[Redis], Awaitable[object]]

ODD_CONFIG = json.dumps(RunConfig(batch_size=1).model_dump() | {"batch_size": "many"})


def put(key: str, field: str, value: str) -> Break:
    """Make a function that sets a field of a hash."""
    return lambda redis: redis.hset(key, field, value)  # type: ignore[return-value]


UNREADABLE: dict[str, Break] = {
    "an environment that is no JSON": put(KEYS.environments, "0", "{"),
    "an environment of another version": put(KEYS.environments, "0", '{"token": "", "x": 1}'),
    "a lease that is no JSON": put(KEYS.lease_states, "ab", "\xff"),
    "a policy of another version": put(KEYS.run, "policy", '{"colour": "red"}'),
    "a configuration that is no JSON": put(KEYS.run, "config", "x"),
    "a configuration of another type": put(KEYS.run, "config", ODD_CONFIG),
    "a count that is no number": put(KEYS.lanes, "0:1", "many"),
    "a key of another type": lambda redis: redis.set(KEYS.served, "x"),
}


async def overwrite(redis: Redis, key: str) -> None:
    await redis.delete(key)
    await redis.set(key, "x")


async def made(client: httpx.AsyncClient) -> None:
    """Make two runs, each with a leased batch, so that maintenance has work."""
    for run in (BROKEN, SOUND):
        await make_run(client, name=run, max_deliveries=1)
        await submit(client, "one", "two", run=f"/v1/runs/{run}")
        await taken(client, run=f"/v1/runs/{run}", lease_s=1 if run == SOUND else 600)


def quarantined(client: httpx.AsyncClient, run: str) -> Callable[[], Awaitable[bool]]:
    """Make a condition: maintenance has looked after the run. Only maintenance quarantines its batch."""

    async def has() -> bool:
        leases = (await client.get(f"/v1/runs/{run}/status")).json()["leases"]
        return [lease["state"] for lease in leases] == ["quarantined"]

    return has


def sample(metrics: str, name: str, run: str) -> str | None:
    found = re.search(rf'^{name}{{[^}}]*run="{run}"[^}}]*}} (\S+)$', metrics, re.M)
    return found[1] if found else None


async def test_a_run_that_cannot_be_ticked_is_in_nobodys_way(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await made(client)
    await overwrite(redis_client, KEYS.left)
    await wait_until(quarantined(client, SOUND))


@pytest.mark.parametrize("broken", UNREADABLE)
async def test_a_broken_run_is_shown_and_the_others_go_on(
    client: httpx.AsyncClient, redis_client: Redis, log_lines: LogLines, broken: str
) -> None:
    await made(client)
    await UNREADABLE[broken](redis_client)
    await wait_until(quarantined(client, SOUND))
    metrics = (await client.get("/metrics")).raise_for_status().text
    assert sample(metrics, "lachesis_run_readable", BROKEN) == "0.0"
    assert sample(metrics, "lachesis_run_readable", SOUND) == "1.0"
    assert sample(metrics, "lachesis_step", SOUND) == "1.0"
    assert "lachesis_store_up" in metrics
    assert (await client.get("/readyz")).status_code == 200
    listed = (await client.get("/v1/runs")).raise_for_status().json()
    assert SOUND in [run["name"] for run in listed["runs"]]
    status = await client.get(f"/v1/runs/{BROKEN}/status")
    assert status.status_code == 500
    assert status.json()["code"] in ("unreadable_record", "store_refused", "internal_error")
    assert (await client.delete(f"/v1/runs/{SOUND}")).status_code == 204


@pytest.mark.parametrize("broken", ["an environment that is no JSON", "a configuration that is no JSON"])
async def test_an_unreadable_run_is_named_with_the_reason_and_can_be_deleted(
    client: httpx.AsyncClient, redis_client: Redis, broken: str
) -> None:
    await made(client)
    await UNREADABLE[broken](redis_client)
    problem = (await client.get(f"/v1/runs/{BROKEN}/status")).json()
    assert problem["code"] == "unreadable_record"
    assert f"run {BROKEN}" in problem["detail"]
    assert f"DELETE /v1/runs/{BROKEN}" in problem["detail"]
    assert (await client.delete(f"/v1/runs/{BROKEN}")).status_code == 204
    assert (await client.get(f"/v1/runs/{BROKEN}/status")).status_code == 404
    assert not [key async for key in redis_client.scan_iter(f"*{{{BROKEN}}}*")]


async def filled(client: httpx.AsyncClient) -> None:
    """Make a run with something of everything: groups in all states, a replay buffer, a snapshot, a curriculum."""
    run = f"/v1/runs/{BROKEN}"
    await make_run(client, name=BROKEN)
    (await client.put(f"{run}/replay", json={"groups": True, "max_reuse": 2})).raise_for_status()
    await join(client, "math", run=run, group_size=4)
    await submit(client, "kept1", "kept2", run=run)
    half = {key: value for key, value in group("").items() if key != "id"} | {"env_id": 0}
    (await client.post(f"/runs/{BROKEN}/atropos/scored_data", json=half)).raise_for_status()
    (await client.post(f"{run}/groups/kept1/annotations", json={"annotations": {"x": [[1, 1]] * 2}})).raise_for_status()
    await trained(client, run=run)
    (await client.patch(run, json={"fresh_fraction": 0.5})).raise_for_status()
    await submit(client, "new", run=run)
    await taken(client, run=run)
    (await client.post(f"{run}/replay/snapshots", json={})).raise_for_status()
    await submit(client, "waits", run=run)
    curriculum = f"{run}/curricula/c"
    (await client.put(curriculum, json={"strategy": "learnability"})).raise_for_status()
    (await client.post(f"{curriculum}/items", json={"items": ["a", "b"]})).raise_for_status()


async def keys_of_broken(redis: Redis) -> list[bytes]:
    return [key async for key in redis.scan_iter(f"*[:{{]{BROKEN}[:}}]*")]


async def damaged_marked_hash(redis: Redis) -> None:
    await redis.sadd(KEYS.marked_hashes, "t")  # type: ignore[misc]
    await overwrite(redis, KEYS.marked_hash("t"))


NUMBERS = ("clock_ms", "time_ms", "epoch", "asleep_ms")
DAMAGE: dict[str, Break] = {
    "lanes": lambda redis: redis.hset(KEYS.lanes, b"\xff", 1),
    "buffers": lambda redis: redis.hset(KEYS.buffers, b"\xff", 1),
    "groups": lambda redis: redis.hset(KEYS.groups, b"\xff", 1),
    "tokens of marked hashes": lambda redis: redis.sadd(KEYS.marked_hashes, b"\xff"),
    "a marked hash": damaged_marked_hash,
    "a payload in the future": lambda redis: redis.zadd(KEYS.unreferenced, {"p": 1e15}),
    "the whole run": lambda redis: redis.delete(KEYS.run),
    **{f"{name} of the run": put(KEYS.run, name, "many") for name in NUMBERS},
    **{f"{name} too large": put(KEYS.run, name, "9" * 18) for name in NUMBERS},
}


@pytest.mark.slow
async def test_a_run_is_deleted_and_made_again_whichever_of_its_keys_is_damaged(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    await filled(client)
    dumped = {key: await redis_client.dump(key) for key in await keys_of_broken(redis_client)}
    saved = {key: value for key, value in dumped.items() if value is not None}  # a turn may end in the meantime
    every_key = sorted({key.decode() for key in saved} | {*KEYS.all_held(), KEYS.turn, KEYS.turn_queue})
    damage = {key: partial(overwrite, key=key) for key in every_key} | DAMAGE
    assert {key.decode() for key in saved} >= {
        *(KEYS.groups, KEYS.lanes, KEYS.buffers, KEYS.replayed, KEYS.replay_part("fragments"), KEYS.curricula),
        *(KEYS.snapshot_part(0, "fragments"), KEYS.annotations, KEYS.kept, KEYS.members),
    }
    for damaged, damages in damage.items():
        again = redis_client.pipeline().zadd(RUNS, {BROKEN: 0})
        for key, value in saved.items():
            again.restore(key, 0, value, replace=True)
        await again.execute()
        await damages(redis_client)
        assert (await client.delete(f"/v1/runs/{BROKEN}")).status_code == 204, damaged
        assert await keys_of_broken(redis_client) == [], damaged
        await make_run(client, name=BROKEN)
        assert (await client.delete(f"/v1/runs/{BROKEN}")).status_code == 204


@pytest.mark.parametrize("broken", ["a configuration that is no JSON", "a configuration of another type"])
async def test_a_run_whose_configuration_cannot_be_read_is_listed_as_such(
    client: httpx.AsyncClient, redis_client: Redis, broken: str
) -> None:
    await made(client)
    await UNREADABLE[broken](redis_client)
    listed = (await client.get("/v1/runs")).json()
    assert [run["name"] for run in listed["runs"]] == [SOUND]
    (unreadable,) = listed["unreadable"]
    assert unreadable["name"] == BROKEN
    assert unreadable["detail"]


async def test_a_broken_run_is_reported_until_it_is_repaired(
    client: httpx.AsyncClient, redis_client: Redis, log_lines: LogLines
) -> None:
    """A replay buffer that cannot be read: the run's status can, and says what is wrong."""
    await made(client)
    (await client.put(f"/v1/runs/{BROKEN}/replay", json={})).raise_for_status()
    await redis_client.hset(KEYS.replay, "chunk_bytes", "many")  # type: ignore[misc]

    async def upkeep() -> dict[str, object] | None:
        status = (await client.get(f"/v1/runs/{BROKEN}/status")).raise_for_status().json()
        found: dict[str, object] | None = status["upkeep"]
        return found

    async def fails_again() -> bool:
        trouble = await upkeep()
        return trouble is not None and trouble["attempts"] == 2

    await wait_until(fails_again)
    trouble = await upkeep()
    assert trouble is not None
    assert BROKEN in str(trouble["detail"])
    assert (await client.get(f"/v1/runs/{SOUND}/status")).json()["upkeep"] is None
    metrics = (await client.get("/metrics")).text
    assert sample(metrics, "lachesis_upkeep_failing", BROKEN) == "1.0"
    assert sample(metrics, "lachesis_upkeep_failing", SOUND) == "0.0"
    assert sample(metrics, "lachesis_step", BROKEN) == "1.0", "the rest of it can be read"
    await wait_until(quarantined(client, SOUND))
    lines = log_lines.of("upkeep of a run fails")
    assert [line["run"] for line in lines] in ([BROKEN], [BROKEN, BROKEN]), "not each second"

    await redis_client.hdel(KEYS.replay, "chunk_bytes")  # type: ignore[misc]

    async def goes_on() -> bool:
        return await upkeep() is None

    await wait_until(goes_on)
    assert [line["run"] for line in log_lines.of("upkeep of a run goes on")] == [BROKEN]
    assert sample((await client.get("/metrics")).text, "lachesis_upkeep_failing", BROKEN) == "0.0"


async def test_a_process_whose_maintenance_has_ended_is_not_ready_and_says_so(
    client: httpx.AsyncClient, log_lines: LogLines
) -> None:
    (maintenance,) = [task for task in asyncio.all_tasks() if task.get_name() == "maintenance"]
    assert (await client.get("/readyz")).status_code == 200
    maintenance.cancel()
    await asyncio.wait([maintenance])
    reply = await client.get("/readyz")
    assert (reply.status_code, reply.json()["code"]) == (503, "maintenance_ended")
    assert (await client.get("/healthz")).status_code == 200
    assert len(log_lines.of("maintenance has ended: this process no longer looks after runs, restart it")) == 1


async def test_a_redis_that_evicts_is_not_ready_until_it_stops(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    async with running_service(own_server.url) as client:
        await own_redis.config_set("maxmemory-policy", "allkeys-lru")
        reply = await client.get("/readyz")
        assert (reply.status_code, reply.json()["code"]) == (503, "store_misconfigured")
        assert "maxmemory-policy allkeys-lru" in reply.json()["detail"]
        assert "noeviction" in reply.json()["remedy"]
        await own_redis.config_set("maxmemory-policy", "noeviction")
        assert (await client.get("/readyz")).status_code == 200


@pytest.mark.slow
async def test_a_redis_that_became_a_read_only_replica_is_not_ready(tmp_path: Path) -> None:
    port = free_port()
    with EmbeddedRedis.start(tmp_path / "1") as primary, EmbeddedRedis.start(tmp_path / "2") as other:
        async with Redis.from_url(primary.url) as first, Redis.from_url(other.url) as second:
            await first.config_set("bind", "127.0.0.1")
            await first.config_set("port", port)
            async with running_service(other.url, store_patience_s=1) as client:
                assert (await client.get("/readyz")).status_code == 200
                await second.replicaof("127.0.0.1", str(port))

                async def replicates() -> bool:
                    return (await second.info("replication"))["master_link_status"] == "up"

                await wait_until(replicates)
                reply = await client.get("/readyz")
                assert (reply.status_code, reply.json()["code"]) == (503, "store_misconfigured")
                assert "replica" in reply.json()["detail"]
                await second.replicaof("NO", "ONE")
                assert (await client.get("/readyz")).status_code == 200
