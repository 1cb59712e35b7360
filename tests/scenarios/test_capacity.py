"""A full queue refuses groups, says when to retry, and takes groups again once there is room."""

import asyncio
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.core.environments.full_queue import LEAST
from app.store.redis.keys import RunKeys
from app.store.server.embedded import EmbeddedRedis
from tests.api import atropos_calls as atropos
from tests.api.conftest import running_service
from tests.full_store import fill, limit_memory
from tests.scenarios.native_calls import RUN, change_run, group, ids, join, make_run, status, submit, take, trained
from tests.services.accounting import books_of
from tests.waiting import wait_until


async def test_a_full_queue_refuses_groups_until_a_batch_has_made_room(client: httpx.AsyncClient) -> None:
    await make_run(client, max_queued_groups=3)
    assert await submit(client, "a", "b") == ["accepted"] * 2
    assert await submit(client, "c", "d") == ["accepted"] * 2, "a body is taken whole, or not at all"
    for _ in range(2):
        refused = await client.post(f"{RUN}/groups", json={"groups": [group("e"), group("f")]})
        assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1
        assert "4 groups" in refused.json()["detail"]
    assert await submit(client, "a") == ["accepted"], "whose answer was lost learns that it is stored"
    assert (await status(client))["groups"]["accepted"] == 4

    assert ids(await trained(client)) == ["a", "b"]
    assert await submit(client, "e", "f") == ["accepted"] * 2
    assert ids(await trained(client)) == ["c", "d"]
    assert ids(await trained(client)) == ["e", "f"]


async def test_bytes_are_counted_too(client: httpx.AsyncClient) -> None:
    await make_run(client, max_queued_bytes=1000)
    await submit(client, group("large", metadata={"note": "x" * 2000}))
    refused = await client.post(f"{RUN}/groups", json=group("small"))
    assert refused.json()["code"] == "queue_full"


async def test_clients_of_atropos_are_still_accepted(client: httpx.AsyncClient) -> None:
    """They do not know 429: they would lose the group or end."""
    await make_run(client, max_queued_groups=1)
    await submit(client, "a")
    reply = await client.post("/runs/run/atropos/scored_data", json=atropos.group(2, 1))
    assert (reply.status_code, reply.json()) == (200, {"status": "received"})
    assert (await client.post(f"{RUN}/groups", json=group("b"))).status_code == 429
    assert len((await trained(client))["groups"]) == 2


async def test_groups_above_max_share_leave_room_for_others(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=4, max_queued_groups=2)
    for name, share in (("half", 0.5), ("other", None)):
        await client.post(f"{RUN}/environments", json={"name": name, "group_size": 2, "max_share": share})
    for number in range(2):
        await submit(client, group(f"large{number}", 3, environment=0))
    assert (await client.post(f"{RUN}/groups", json=group("l", 3, environment=0))).status_code == 429
    assert await submit(client, group("large1", 3, environment=0)) == ["accepted"], "it is stored"
    assert await submit(client, group("a", environment=0), group("b", environment=1)) == ["accepted"] * 2
    assert ids(await trained(client)) == ["a", "b"]


async def test_groups_that_fit_no_batch_leave_room_for_others(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4, max_queued_groups=3, max_queued_bytes=100_000)
    note = {"note": "x" * 40_000}
    for number in range(3):
        await submit(client, group(f"large{number}", 5, metadata=note))
    refused = await client.post(f"{RUN}/groups", json=group("large3", 5))
    assert (refused.status_code, refused.json()["code"]) == (429, "queue_full"), "they have as much room of their own"
    assert await submit(client, "a") == ["accepted"]
    detail = (await client.get(f"{RUN}/batches/explain")).json()["detail"]
    assert "max_queued_groups = 3 is reached by groups that fit no batch" in detail
    assert await submit(client, "b") == ["accepted"]
    await trained(client)


async def test_a_full_queue_takes_what_a_batch_needs_behind_a_group_that_fits_none(
    client: httpx.AsyncClient,
) -> None:
    """A worker sends its groups in order, some of them together. The trainer waited for those behind it forever."""
    await make_run(client, batch_size=8, max_queued_groups=2)
    await join(client, "math", group_size=2)
    await submit(client, group("a", environment=0), group("b", environment=0))
    await accepted(client, group("large", 9, environment=0))
    await accepted(client, group("c", environment=0))
    await accepted(client, group("large2", 9, environment=0), group("d", environment=0))
    full = [group("large3", 9, environment=0), group("e", environment=0)]
    refused = await client.post(f"{RUN}/groups", json={"groups": full})
    assert refused.json()["code"] == "queue_full", "two of them are there"
    assert refused.json()["detail"].startswith(
        "max_queued_groups = 2 of the run is reached by groups that fit no batch"
    )
    assert ids(await trained(client)) == ["a", "b", "c", "d"]
    await submit(client, group("f", environment=0), group("g", environment=0))
    detail = (await client.get(f"{RUN}/batches/explain")).json()["detail"]
    assert "max_queued_groups = 2 is reached: groups are refused (`queue_full`), except those that a batch" in detail
    assert "max_queued_groups = 2 is reached by groups that fit no batch" in detail


async def test_a_full_queue_takes_the_groups_that_a_minimum_needs(client: httpx.AsyncClient) -> None:
    """A fast environment fills the queue, and batches wait for the minimum of a slow one."""
    await make_run(client, batch_size=8, max_queued_groups=5)
    for name in ("fast", "slow"):
        await join(client, name, group_size=2, min_share=0.5)
    await submit(client, *(group(f"f{number}", environment=0) for number in range(5)))

    async def said() -> str:
        return str((await client.get(f"{RUN}/batches/explain")).json()["detail"])

    for name in ("s0", "s1"):
        fast = await client.post(f"{RUN}/groups", json=group("f5", environment=0))
        assert (fast.status_code, fast.json()["code"]) == (429, "queue_full")
        assert "are refused (`queue_full`), except those that a batch needs" in await said()
        await accepted(client, group(name, environment=1))
    full = await client.post(f"{RUN}/groups", json=group("s2", environment=1))
    assert (full.status_code, full.json()["code"]) == (429, "queue_full"), "a batch is there"
    assert ids(await trained(client)) == ["f0", "f1", "s0", "s1"]


async def test_a_full_queue_takes_the_size_that_sums_to_a_batch(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=15, max_queued_groups=6)
    for name, size in (("fours", 4), ("threes", 3)):
        await join(client, name, group_size=size)
    await submit(client, *(group(f"f{number}", 4, environment=0) for number in range(6)))
    await accepted(client, group("t0", 3, environment=1))
    assert ids(await trained(client)) == ["f0", "f1", "f2", "t0"]


async def test_a_full_queue_refuses_more_groups_of_a_size_than_help(client: httpx.AsyncClient) -> None:
    """The environment says that its groups have two sequences, and sends groups of six."""
    await make_run(client, batch_size=20, max_queued_groups=5)
    await join(client, "math", group_size=2)
    for number in range(LEAST):
        await accepted(client, group(f"g{number}", 6, environment=0))
    for _ in range(3):
        refused = await client.post(f"{RUN}/groups", json=group("more", 6, environment=0))
        assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
        await asyncio.sleep(0.3)  # the service looks again at the run
    await accepted(client, group("fits", 2, environment=0))
    assert len(ids(await trained(client))) == 4


async def test_a_full_queue_takes_the_group_that_comes_first(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=8, max_queued_groups=1, max_staleness=0)
    for name, size in (("idle", 1), ("slow", 1), ("large", 7)):
        await join(client, name, group_size=size, member="m")
        if name != "idle":
            path = f"{RUN}/environments/{1 if name == 'slow' else 2}/heartbeat"
            reply = await client.post(path, json={"member": "m", "running_groups": 0, "start_groups": 1})
            assert reply.json()["granted_groups"] == 1
    await submit(client, group("large", 7, environment=2))
    await accepted(client, group("slow", 1, environment=1))
    assert ids(await trained(client)) == ["large", "slow"]


async def test_a_full_queue_takes_the_minimum_of_one_although_one_that_left_could_have_helped(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=6, max_queued_groups=3)
    for name, size, share in (("math", 3, 0.25), ("code", 2, 0.25), ("gone", 1, None)):
        await join(client, name, group_size=size, min_share=share)
    assert (await client.delete(f"{RUN}/environments/2")).status_code == 204
    await submit(client, *(group(f"c{number}", 2, environment=1) for number in range(3)))
    await accepted(client, group("m0", 3, environment=0))
    detail = (await client.get(f"{RUN}/batches/explain")).json()["detail"]
    assert "relaxing in" in detail, "all have their minimum, and only sizes prevent the batch"


async def test_a_full_queue_takes_a_group_without_environment_that_completes_a_batch(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=8, max_queued_groups=3)
    await join(client, "threes", group_size=3)
    await submit(client, *(group(f"t{number}", 3, environment=0) for number in range(3)))
    await accepted(client, group("two", 2))
    assert ids(await trained(client)) == ["t0", "t1", "two"]


@pytest.mark.parametrize("settings", [{}, {"relax_scarce_after_s": 1}], ids=["silent", "no longer awaited"])
async def test_a_full_queue_takes_the_group_of_an_environment_that_the_run_had_given_up(
    client: httpx.AsyncClient, redis_client: Redis, settings: dict[str, Any]
) -> None:
    await make_run(client, batch_size=15, max_queued_groups=6, **settings)
    for name, size in (("fours", 4), ("threes", 3)):
        await join(client, name, group_size=size, member="m")
    await submit(client, *(group(f"f{number}", 4, environment=0) for number in range(6)))
    await redis_client.hincrby(RunKeys("run").run, "clock_ms", 600_000)  # type: ignore[misc]
    if settings:
        for number in range(2):
            await client.post(f"{RUN}/environments/{number}/heartbeat", json={"member": "m", "running_groups": 0})
        assert await take(client, wait_s=1.5) is None
    await accepted(client, group("three", 3, environment=1))
    assert ids(await trained(client)) == ["f0", "f1", "f2", "three"]


async def accepted(client: httpx.AsyncClient, *groups: dict[str, Any]) -> None:
    """Submit groups as clients do: again after a refusal. A process looks a few times a second at a full queue."""

    async def is_accepted() -> bool:
        return (await client.post(f"{RUN}/groups", json={"groups": groups})).status_code == 201

    await wait_until(is_accepted)


@pytest.mark.parametrize(
    ("limit", "value"), [("max_queued_groups", 2), ("max_queued_bytes", 1000)], ids=["groups", "bytes"]
)
async def test_explain_names_the_limit_that_refuses_groups(client: httpx.AsyncClient, limit: str, value: int) -> None:
    await make_run(client, batch_size=8, **{limit: value})
    for name in "ab":
        await submit(client, group(name, metadata={"note": "x" * 200}))
    assert (await client.post(f"{RUN}/groups", json=group("c", size=5))).status_code == 429
    detail = (await client.get(f"{RUN}/batches/explain")).json()["detail"]
    assert f"{limit} = {value}" in detail
    assert "queue_full" in detail
    await change_run(client, **{limit: None})
    assert limit not in (await client.get(f"{RUN}/batches/explain")).json()["detail"]


async def test_a_redis_out_of_memory_is_507_for_groups_and_nothing_else(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    """Batches still go out and end, which makes room again."""
    async with running_service(own_server.url) as client:
        await make_run(client, keep_batches=0)
        await limit_memory(own_redis, 4)

        async def send(number: int) -> httpx.Response:
            return await client.post(f"{RUN}/groups", json=group(f"g{number}", metadata={"note": "x" * 500_000}))

        stored = await fill(send)
        assert (await status(client))["groups"]["accepted"] == stored >= 4

        assert ids(await trained(client)) == ["g0", "g1"]
        assert ids(await trained(client)) == ["g2", "g3"]

        async def there_is_room() -> bool:
            return (await send(stored)).status_code == 201

        await wait_until(there_is_room)
        await books_of(own_redis, "run")


async def test_settings_that_free_memory_change_while_redis_is_full(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    async with running_service(own_server.url) as client:
        await make_run(client, keep_batches=4)
        assert (await client.put(f"{RUN}/replay", json={"max_bytes": 10**9})).is_success
        await submit(client, "a", "b")
        await trained(client)
        assert (await status(client))["kept_batches"] == 1
        await own_redis.config_set("maxmemory", 1_000_000)
        assert (await client.post(f"{RUN}/groups", json=group("c"))).status_code == 507
        await change_run(client, keep_batches=0, history_retention_s=600, intake_paused=True)
        assert (await status(client))["kept_batches"] == 0
        reply = await client.patch(f"{RUN}/replay", json={"max_bytes": 1000})
        assert (reply.status_code, reply.json()["settings"]["max_bytes"]) == (200, 1000), reply.text
