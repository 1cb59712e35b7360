"""Redis stalls, dies, forgets its scripts, fills up: requests wait and succeed, or say clearly that they did not."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from app.main import create_app
from app.settings import ServiceSettings
from app.store.redis import scripts
from app.store.server.embedded import EmbeddedRedis
from lachesis.wire.errors import LachesisError
from tests.api.atropos_calls import batch, group, marks, post, register, register_env, registration, status
from tests.api.conftest import running_service
from tests.full_store import fill, limit_memory
from tests.lossy_line import lossy_line
from tests.services.accounting import books_of
from tests.waiting import wait_until


async def _everything(client: httpx.AsyncClient, env_id: int) -> list[httpx.Response]:
    """One call of each kind that must not fail, at the same time."""
    return await asyncio.gather(
        client.post("/scored_data", json=group(4, 1, env_id)),
        client.get("/status-env", params={"env_id": env_id}),
        client.get("/batch"),
        client.get("/status"),
    )


async def test_a_start_that_fails_ends_the_tasks_that_it_began(redis_url: str, redis_client: Redis) -> None:
    await redis_client.set("lachesis:access", "of another type")
    before = asyncio.all_tasks()
    app = create_app(ServiceSettings(redis_url=SecretStr(redis_url)))
    with pytest.raises(LachesisError):
        async with app.router.lifespan_context(app):
            pass
    assert asyncio.all_tasks() == before


@pytest.mark.slow
@pytest.mark.parametrize("stall_s", [1.0, 10.0])
async def test_requests_wait_for_a_redis_that_stalls(own_server: EmbeddedRedis, stall_s: float) -> None:
    async with running_service(own_server.url) as client:
        await register(client, 8)
        env_id = (await register_env(client))["env_id"]
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            calls = asyncio.create_task(_everything(client, env_id))
            done, _ = await asyncio.wait({calls}, timeout=stall_s)
            assert not done, "nobody was answered by a server that stands still"
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
        assert [reply.status_code for reply in await calls] == [200] * 4


@pytest.mark.slow
async def test_requests_wait_for_a_redis_that_is_killed_and_nothing_is_lost(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    async with running_service(own_server.url) as client:
        await register(client, 4)
        sent = 0

        async def produce() -> None:
            nonlocal sent
            for _ in range(40):
                await post(client, group(4, sent))
                sent += 1

        producers, killed = [asyncio.create_task(produce()) for _ in range(4)], 0

        async def another() -> bool:
            return own_server.pid != killed

        for disaster in range(3):
            await wait_until(lambda: sent > 20 * disaster)  # noqa: B023
            await wait_until(another)
            killed = own_server.pid
            os.kill(killed, signal.SIGKILL)
        await asyncio.gather(*producers)
        assert sent == 160

        async def answers() -> bool:
            with contextlib.suppress(Exception):
                return bool(await own_redis.ping())
            return False

        await wait_until(answers)
        assert len((await books_of(own_redis, "default"))["queued"]) == 160


async def test_scripts_that_redis_forgot_are_loaded_again_unseen(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    async with running_service(own_server.url) as client:
        await register(client, 4)
        await own_redis.script_flush()
        await post(client, group(4, 1))
        await own_redis.script_flush()
        assert marks(await batch(client) or []) == [1]


async def test_a_redis_that_does_not_let_its_user_load_scripts_is_reported(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    async with running_service(own_server.url) as client:
        await register(client, 4)
        await own_redis.execute_command("ACL", "SETUSER", "default", "-script|load")  # type: ignore[no-untyped-call]
        await own_redis.script_flush()
        async with asyncio.timeout(60):
            reply = await client.post("/scored_data", json=group(4, 1))
        assert (reply.status_code, reply.json()["code"]) == (500, "store_refused")
        assert "script|load" in reply.json()["detail"]


@pytest.mark.slow
async def test_a_redis_that_stays_away_is_reported_after_our_patience(own_server: EmbeddedRedis) -> None:
    async with running_service(own_server.url, store_patience_s=0.5) as client:
        own_server.stop()
        reply = await client.post("/scored_data", json=group(4, 1))
        assert (reply.status_code, reply.json()["code"]) == (503, "store_unavailable")
        assert int(reply.headers["retry-after"]) > 0
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200


async def test_a_batch_taken_for_a_503_is_served_to_the_next_request(
    redis_url: str, redis_client: Redis, tmp_path: Path
) -> None:
    """Redis took it out of the queue and we never heard: nobody else would look for it there."""
    async with (
        lossy_line(redis_url, tmp_path / "redis.sock") as (line, url),
        running_service(url, store_patience_s=0.3) as client,
    ):
        await register(client, 4)
        await post(client, group(4, 1))
        line.lose_replies_to(scripts.load("commit_batch").digest.encode())
        assert (await client.get("/batch")).status_code == 503
        line.heal()
        assert marks(await batch(client) or []) == [1]


async def test_a_batch_that_arrived_without_our_being_able_to_note_it_is_served_again(
    redis_url: str, redis_client: Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        lossy_line(redis_url, tmp_path / "redis.sock") as (line, url),
        running_service(url, store_patience_s=0.3) as client,
    ):
        await register(client, 4)
        await post(client, group(4, 1))
        line.hold(rb'"sending".*"sent"')
        assert marks(await batch(client) or []) == [1]

        async def given_up() -> bool:
            return "a batch may come twice" in caplog.text

        await wait_until(given_up)
        line.heal()
        again = await client.get("/batch")
        assert marks(again.json()["batch"]) == [1]
        assert again.headers["lachesis-delivery-count"] == "2"


async def test_another_server_at_the_address_of_redis_counts_as_an_outage(
    redis_url: str, redis_client: Redis, tmp_path: Path
) -> None:
    """Such a reply was an unexpected error. The first one ended maintenance, also after Redis was back."""
    async with (
        lossy_line(redis_url, tmp_path / "redis.sock") as (line, url),
        running_service(url, store_patience_s=3) as client,
    ):
        await register(client, 4)
        line.mistake(b"")
        reply = await client.post("/scored_data", json=group(4, 1))
        assert (reply.status_code, reply.json()["code"]) == (503, "store_unavailable")

        async def fails() -> bool:
            return (await client.get("/readyz")).status_code == 503

        await wait_until(fails)
        line.heal()
        await post(client, group(4, 1))
        assert marks(await batch(client) or []) == [1]
        assert (await client.get("/readyz")).status_code == 200


async def test_a_full_redis_is_a_clear_507_that_loses_nothing_and_drains(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    async with running_service(own_server.url) as client:
        await register(client, 4)
        big = {"messages": [[{"role": "user", "content": "x" * 200_000}]] * 4}
        await limit_memory(own_redis, 4)
        accepted = await fill(lambda mark: client.post("/scored_data", json=group(4, mark, **big)))
        assert (await status(client))["groups"]["accepted"] == accepted
        for mark in range(accepted):
            assert marks(await batch(client) or []) == [mark], "it is full, and still gives out what it has"
        assert await batch(client) is None

        async def takes_more() -> bool:
            return (await client.post("/scored_data", json=group(4, 0, **big))).status_code == 200

        await wait_until(takes_more)
        await books_of(own_redis, "default")


async def test_a_redis_that_was_full_before_the_trainer_came_drains_all_the_same(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    async with running_service(own_server.url) as client:
        await post(client, group(4, 1))
        await own_redis.config_set("maxmemory", 1_000_000)
        assert (await client.post("/scored_data", json=group(4, 2))).status_code == 507
        assert (await client.post("/register", json=registration(4))).status_code == 200
        assert marks(await batch(client) or []) == [1]


@pytest.mark.slow
async def test_requests_wait_while_a_script_keeps_redis_busy(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    """Redis then answers everybody else with BUSY instead of making them wait."""
    async with running_service(own_server.url) as client:
        await register(client, 4)
        busy = "local t = redis.call('TIME')[1]; while redis.call('TIME')[1] - t < 3 do end"
        await own_redis.config_set("busy-reply-threshold", 100)

        async def is_busy() -> bool:
            try:
                await own_redis.ping()
            except ResponseError as refusal:
                return str(refusal).startswith("BUSY")
            return False

        spinning = asyncio.create_task(own_redis.eval(f"redis.set_repl(redis.REPL_NONE); {busy}", 0))
        await wait_until(is_busy)
        post_, *others = await asyncio.gather(
            client.post("/scored_data", json=group(4, 1)),
            client.get("/status-env", params={"env_id": 0}),
            client.get("/status"),
        )
        await spinning
        assert [reply.status_code for reply in (post_, *others)] == [200] * 3
        assert marks(await batch(client) or []) == [1]
