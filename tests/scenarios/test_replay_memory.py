"""A replay buffer may fill the store's memory; fresh groups always find room."""

import asyncio
import base64
import secrets
from typing import Any

import httpx
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from app.store.server.embedded import EmbeddedRedis
from tests.api import atropos_calls as atropos
from tests.api.conftest import running_service
from tests.full_store import limit_memory
from tests.scenarios.native_calls import RUN, group, ids, make_run, status, trained
from tests.services.accounting import books_of
from tests.services.replay.moves import books_of as replay_books_of
from tests.waiting import wait_until

KILOBYTES = 200
REPLAY = f"{RUN}/replay"


async def insert(client: httpx.AsyncClient, number: int) -> httpx.Response:
    """Send a large fragment."""
    data = base64.b64encode(secrets.token_bytes(1000 * KILOBYTES)).decode()
    tensors = {"obs": {"dtype": "U8", "shape": [1000 * KILOBYTES], "data": data}}
    body = {"worker": "w", "number": number, "policy_version": 0, "tensors": tensors}
    return await client.post(f"{REPLAY}/fragments", json=body)


async def fill_buffer(client: httpx.AsyncClient, chunks: int = 50) -> None:
    """Make a run with a buffer that is practically unbounded, and fill it."""
    await make_run(client, batch_size=4, keep_batches=0)
    await client.put(REPLAY, json={"max_bytes": 10**15})
    for number in range(chunks):
        assert (await insert(client, number)).status_code == 201


async def submitted(client: httpx.AsyncClient, count: int) -> list[int]:
    """Submit large groups; returns the statuses."""
    replies = []
    for number in range(count):
        body = group(f"g{number}", metadata={"note": "x" * 1000 * KILOBYTES})
        replies.append((await client.post(f"{RUN}/groups", json=body)).status_code)
    return replies


async def state(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(REPLAY)).json()
    return found


async def test_without_max_bytes_the_servers_memory_bounds_a_buffer(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    async with running_service(own_server.url) as client:
        await make_run(client)
        limit = await limit_memory(own_redis, 10)
        for settings in ({}, {"max_bytes": None}):
            reply = await client.put(REPLAY, json=settings)
            assert reply.json()["settings"]["max_bytes"] == limit // 4, reply.text
        for number in range(30):
            assert (await insert(client, number)).status_code == 201
        assert (await state(client))["chunk_bytes"] <= limit // 4
        assert (await state(client))["retired_chunks"]["evicted"] >= 10
        assert await submitted(client, 4) == [201] * 4
        assert (await client.patch(REPLAY, json={"max_bytes": 10**15})).json()["settings"]["max_bytes"] == 10**15
        assert (await client.patch(REPLAY, json={"max_bytes": None})).json()["settings"]["max_bytes"] == limit // 4


async def test_fresh_groups_find_room_in_a_full_store(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    """No submission is refused, though groups bring as many bytes as the chunks had."""
    async with running_service(own_server.url) as client:
        await fill_buffer(client)
        await limit_memory(own_redis, -1)
        assert await submitted(client, 30) == [201] * 30
        assert (await status(client))["groups"]["accepted"] == 30
        found = await state(client)
        assert found["retired_chunks"]["evicted"] >= 20
        page = (await client.get(f"{REPLAY}/chunks")).json()["chunks"]
        assert [chunk["first"] for chunk in page] == list(range(50 - len(page), 50)), "the oldest go first"
        assert len(ids(await trained(client))) == 2
        await books_of(own_redis, "run")


async def test_a_server_without_a_limit_is_bounded_by_its_machine(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    async with running_service(own_server.url) as client:
        await make_run(client)
        await own_redis.config_set("maxmemory", 0)
        reply = await client.put(REPLAY, json={})
        assert reply.json()["settings"]["max_bytes"] == (await own_redis.info("memory"))["total_system_memory"] // 4


async def test_processes_make_way_at_once_for_all_that_comes_to_them(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    """The processes see each other's evictions, so together they keep most of the buffer."""
    async with running_service(own_server.url) as client, running_service(own_server.url) as other:
        await fill_buffer(client, chunks=60)
        await limit_memory(own_redis, -1)
        note = {"messages": [[{"role": "user", "content": "x" * 500 * KILOBYTES}]] * 2}

        async def sent(process: httpx.AsyncClient, n: int) -> None:
            async def stored() -> bool:  # Redis frees memory in the background: a 507 on a busy machine is right
                reply = await process.post("/runs/run/atropos/scored_data", json=atropos.group(2, n, **note))
                return reply.status_code == 200

            await wait_until(stored)

        await asyncio.gather(*(sent(process, n) for n in range(4) for process in (client, other)))
        assert (await status(client))["groups"]["accepted"] == 8
        assert (await state(client))["sampleable_chunks"] >= 20


async def test_workers_find_room_again_though_nobody_submits(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    async with running_service(own_server.url) as client:
        await fill_buffer(client)
        await limit_memory(own_redis, -1)

        async def taken() -> bool:
            return (await insert(client, 50)).status_code == 201

        await wait_until(taken)


async def test_chunks_of_a_snapshot_are_not_evicted_for_room(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    """The store answers 507 until the snapshot is deleted."""
    async with running_service(own_server.url) as client:
        await fill_buffer(client, chunks=40)
        reply = await client.post(f"{REPLAY}/snapshots", json={"name": "a"})
        assert reply.is_success, reply.text
        await limit_memory(own_redis, -1)
        assert await submitted(client, 3) == [507] * 3
        assert (await state(client))["sampleable_chunks"] == 40
        assert (await client.delete(f"{REPLAY}/snapshots/a")).status_code == 204

        async def there_is_room() -> bool:
            return await submitted(client, 1) == [201]

        await wait_until(there_is_room)
        assert 0 < (await state(client))["sampleable_chunks"] < 40
        await replay_books_of(own_redis, "run")


async def test_a_broken_buffer_of_another_run_is_passed_over(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    async with running_service(own_server.url) as client:
        await client.post("/v1/runs", json={"name": "broken", "batch_size": 1})
        await client.put("/v1/runs/broken/replay", json={})
        await own_redis.hset(RunKeys("broken").replay, "chunk_bytes", "many")  # type: ignore[misc]
        await fill_buffer(client)
        await limit_memory(own_redis, -1)
        assert await submitted(client, 5) == [201] * 5
