"""Whether the answer to a registration arrived decides whether there is an environment, or only a ghost of one."""

import asyncio
import json
import socket
import struct
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis

from app.core.environments.record import NEWCOMER_MS
from app.main import create_app
from app.settings import ServiceSettings
from app.store.redis.keys import RunKeys
from tests.api.atropos_calls import batch, group, post, register, register_env, status
from tests.waiting import wait_until

KEYS = RunKeys("default")

pytestmark = pytest.mark.slow


async def pass_time(redis_client: Redis, ms: int) -> None:
    await redis_client.hincrby(KEYS.run, "clock_ms", ms)  # type: ignore[misc]


async def is_alive(redis_client: Redis, environment: int) -> bool:
    return bool(await redis_client.hexists(KEYS.seen, str(environment)))  # type: ignore[misc]


async def register_and_vanish(client: httpx.AsyncClient, name: str) -> None:
    """Ask for a place with half of each batch, and reset the connection before the answer."""
    url = urlsplit(str(client.base_url))
    loop = asyncio.get_running_loop()
    asked = {"max_token_length": 512, "desired_name": name, "weight": 1.0, "group_size": 4, "min_batch_allocation": 0.5}
    body = json.dumps(asked).encode()
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, (url.hostname, url.port))
        head = f"POST /register-env HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        await loop.sock_sendall(connection, head.encode() + body)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def registered() -> bool:
        return name in {env["name"].rpartition("_")[0] for env in (await status(client))["environments"]}

    await wait_until(registered)


async def test_an_environment_whose_answer_got_lost_holds_up_batches_for_seconds_only(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    await register(client, 8)
    await register_and_vanish(client, "math")
    env = await register_env(client, "math", 4)
    assert env["env_id"] == 1, "it may be another one that starts at the same moment"
    await wait_until(lambda: is_alive(redis_client, 1))
    assert not await is_alive(redis_client, 0)
    for mark in range(2):
        await post(client, group(4, mark, 1))
    assert await batch(client) is None
    await pass_time(redis_client, NEWCOMER_MS)
    assert await batch(client) is not None
    ghost, known = (await status(client))["environments"]
    assert (ghost["alive"], known["alive"]) == (False, True)
    assert ghost["last_seen_age_s"] >= NEWCOMER_MS / 1000
    assert (await register_env(client, "math", 4))["env_id"] == 0, "nobody is there any more"


async def test_an_environment_that_has_its_answer_is_known_until_it_first_calls(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    """Real ones are silent for 5 s after they registered."""
    await register(client, 8)
    await register_env(client, "math", 4, minimum=0.5)
    await wait_until(lambda: is_alive(redis_client, 0))
    await pass_time(redis_client, 5 * NEWCOMER_MS)
    (known,) = (await status(client))["environments"]
    assert known["alive"]
    assert (await register_env(client, "math", 4))["env_id"] == 1


async def test_one_that_comes_back_is_a_newcomer_whatever_it_did_before(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    await register(client, 8)
    await register_env(client, "math", 4, minimum=0.5)
    await wait_until(lambda: is_alive(redis_client, 0))
    await pass_time(redis_client, 60_000)
    await register_and_vanish(client, "math")

    async def is_newcomer() -> bool:
        (back,) = (await status(client))["environments"]
        return bool(back["last_seen_age_s"] < 30)

    await wait_until(is_newcomer)
    other = (await register_env(client, "other", 4))["env_id"]
    await wait_until(lambda: is_alive(redis_client, other))
    await pass_time(redis_client, NEWCOMER_MS)
    ghost, _ = (await status(client))["environments"]
    assert not ghost["alive"]


async def test_where_no_connection_can_tell_an_answer_counts_as_arrived(redis_url: str, redis_client: Redis) -> None:
    app: FastAPI = create_app(ServiceSettings(redis_url=redis_url))  # type: ignore[arg-type]
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: dict[str, object], receive: object, send: object) -> None:
            await app({**scope, "state": dict(state)}, receive, send)  # type: ignore[arg-type, call-overload]

        transport = httpx.ASGITransport(app=with_state)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await register(client, 8)
            assert (await register_env(client, "math", 4))["env_id"] == 0
            await wait_until(lambda: is_alive(redis_client, 0))
