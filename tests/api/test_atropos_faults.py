"""The 18 faults of the original, numbered as in `docs/how-to/move-from-atropos.md`. None may happen here."""

import asyncio
import gzip
import json
import random
import socket
from collections import Counter
from urllib.parse import urlsplit

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from lachesis.wire.limits import MAX_BATCH_SIZE
from lachesis.wire.runs import DEFAULT_RUN
from tests.api.atropos_calls import (
    batch,
    group,
    marks,
    on_the_way,
    post,
    register,
    register_env,
    registration,
    sequences,
    status,
)
from tests.api.conftest import Start
from tests.waiting import wait_until

MANY = [0.0] * (MAX_BATCH_SIZE + 1)


async def test_fault_01_a_batch_whose_reply_broke_off_is_served_again_first(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    for mark in range(4):
        await post(client, group(4, mark))
    await _ask_for_a_batch_and_hang_up(client)

    async def returned() -> bool:
        return [lease["state"] for lease in (await status(client))["leases"]] == ["returned"]

    await wait_until(returned)
    first = await batch(client)
    assert first is not None
    assert marks(first) == [0, 1], "the same groups in the same order"
    assert (await status(client))["current_step"] == 1, "handed out again is not another step"


@pytest.mark.slow
async def test_fault_01_whenever_a_client_hangs_up_around_its_reply_no_batch_is_lost(client: httpx.AsyncClient) -> None:
    """A close that crosses the reply looks clean to the server: only the socket's state tells that nobody read it."""
    await register(client, 4)
    await client.post("/scored_data_list", json=[group(4, mark) for mark in range(300)])
    generator = random.Random(1)
    served: set[int] = set()
    taken: list[int] = []

    async def noticed() -> bool:
        """Only the batch that was read is on its way."""
        return on_the_way(await status(client)) <= bool(taken)

    while len(served) < 300:
        await _ask_and_leave(client, generator.uniform(0.0005, 0.006))
        await wait_until(noticed)
        taken = marks(await batch(client) or [])
        served.update(taken)
        assert (await status(client))["groups"]["delivered"] <= len(served), "delivered, but nobody had it"


async def test_fault_01_an_unacknowledged_batch_is_served_again_when_a_trainer_registers_again(
    client: httpx.AsyncClient,
) -> None:
    await register(client, 8)
    for mark in range(4):
        await post(client, group(4, mark))
    assert marks(await batch(client) or []) == [0, 1]
    assert (await client.post("/register", json=registration(8))).status_code == 200
    assert marks(await batch(client) or []) == [0, 1]
    assert marks(await batch(client) or []) == [2, 3]


async def test_fault_01_the_next_completed_batch_acknowledges_the_previous_one(client: httpx.AsyncClient) -> None:
    await register(client, 4)
    for mark in range(3):
        await post(client, group(4, mark))
    assert marks(await batch(client) or []) == [0]
    assert (await status(client))["groups"]["delivered"] == 0
    assert marks(await batch(client) or []) == [1]

    async def delivered() -> bool:
        return bool((await status(client))["groups"]["delivered"] == 1)

    await wait_until(delivered)
    await client.post("/register", json=registration(4))
    assert marks(await batch(client) or []) == [1], "0 was acknowledged, 1 was not"


@pytest.mark.parametrize("literal", ["NaN", "-Infinity", "1e999"])
async def test_fault_02_a_number_that_is_none_is_refused_with_its_place(
    client: httpx.AsyncClient, literal: str
) -> None:
    await register(client, 2)
    body = json.dumps(group(2, advantages=[[0.5, 0.5, 0.5], [0.5, 0.5, -77.5]])).replace("-77.5", literal)
    reply = await client.post("/scored_data", content=body)
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["loc"] == ["advantages", 1, 2]
    assert (await status(client))["groups"]["accepted"] == 0
    await post(client, group(2, 5))
    assert marks(await batch(client) or []) == [5], "nothing else is in its way"


async def test_fault_03_a_restarted_server_has_everything_and_clients_notice_nothing(start: Start) -> None:
    before = await start()
    await register(before, 8)
    env = await register_env(before, "math", 4)
    await post(before, group(4, 1, env["env_id"]))
    after = await start()  # another process's worth of state: nothing is shared but Redis
    assert (await after.get("/info")).json() == {"batch_size": 8, "max_token_len": 512}
    assert (await after.get("/status-env", params={"env_id": env["env_id"]})).json()["self_queue_size"] == 1
    await post(after, group(4, 2, env["env_id"]))
    assert marks(await batch(after) or []) == [1, 2]


async def test_fault_04_groups_that_come_before_register_wait_and_do_not_block_it(client: httpx.AsyncClient) -> None:
    await post(client, group(4, 1))
    await register(client, 8)
    assert (await client.get("/info")).json()["batch_size"] == 8
    await client.get("/reset_data")
    await post(client, group(4, 2))
    await client.post("/register", json=registration(4))
    assert (await client.get("/info")).json()["batch_size"] == 4
    assert marks(await batch(client) or []) == [2]


async def test_fault_05_another_configuration_replaces_the_first_and_the_same_changes_nothing(
    client: httpx.AsyncClient,
) -> None:
    await register(client, 4)
    await post(client, group(4, 1))
    assert await batch(client)
    await client.post("/register", json=registration(4))
    assert (await status(client))["current_step"] == 1, "the same one again"
    await client.post("/register", json=registration(16, starting_step=70))
    assert (await client.get("/info")).json()["batch_size"] == 16
    assert (await status(client))["current_step"] == 70


async def test_fault_05_no_batch_of_the_old_size_is_served_after_a_change(client: httpx.AsyncClient) -> None:
    await register(client, 4)
    for mark in range(4):
        await post(client, group(4, mark))
    assert marks(await batch(client) or []) == [0]
    await client.post("/register", json=registration(8))
    assert marks(await batch(client) or []) == [0, 1]


@pytest.mark.slow
async def test_fault_06_a_dead_environment_with_a_minimum_stops_binding(start: Start) -> None:
    client = await start(environment_ttl_s=0.5)
    await register(client, 8)
    dead = await register_env(client, "dead", 4, minimum=0.5)
    alive = await register_env(client, "alive", 4)
    for mark in range(2):
        await post(client, group(4, mark, alive["env_id"]))
    assert await batch(client) is None
    blocked = (await status(client))["blocked"]
    assert blocked["reason"] == "minimum_short"
    assert blocked["missing_by_environment"] == {str(dead["env_id"]): 4}

    async def served() -> bool:
        return await batch(client) is not None

    await wait_until(served)


async def test_fault_06_a_restarted_environment_takes_its_old_place(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    await register(client, 8)
    old = await register_env(client, "math", 4, minimum=0.5)
    other = await register_env(client, "math", 4)
    assert (old["wandb_name"], other["wandb_name"]) == ("math_0", "math_1")
    await redis_client.hincrby(RunKeys(DEFAULT_RUN).run, "clock_ms", 3_600_000)  # both are silent for an hour
    again = await register_env(client, "math", 4, minimum=0.5)
    assert (again["env_id"], again["wandb_name"]) == (old["env_id"], old["wandb_name"])
    await client.post("/disconnect-env", json={"env_id": other["env_id"]})
    again = await register_env(client, "math", 4)
    assert again["env_id"] == other["env_id"], "an environment that left is replaced at once"


async def test_fault_07_a_group_larger_than_a_batch_is_named_oversized(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    await post(client, group(9, 1))
    await post(client, group(8, 2))
    assert marks(await batch(client) or []) == [2]
    now = await status(client)
    assert now["groups"]["oversized"] == 1
    assert now["queue_size"] == 0


@pytest.mark.parametrize(
    ("sizes", "batch_size"),
    [
        ([16] * 40 + [8] * 40, 24),
        ([8] + [3] * 8, 8),
        ([2, 2, 2, 2, 4, 4, 8], 10),
        ([1, 2, 1, 4], 8),
        ([3] * 8 + [8], 8),
    ],
)
async def test_fault_08_an_exact_batch_that_exists_is_found(
    client: httpx.AsyncClient, sizes: list[int], batch_size: int
) -> None:
    await register(client, batch_size)
    await client.post("/scored_data_list", json=[group(size, mark) for mark, size in enumerate(sizes)])
    found = await batch(client)
    assert found is not None
    assert sequences(found) == batch_size


async def test_fault_09_groups_without_an_environment_fill_the_rest_beside_minimums(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    env = await register_env(client, "math", 4, minimum=0.5)
    await post(client, group(4, 1))
    await post(client, group(4, 2, env["env_id"]))
    assert marks(await batch(client) or []) == [1, 2]


@pytest.mark.slow
async def test_fault_10_groups_that_never_make_a_set_are_visible_and_released(start: Start) -> None:
    client = await start(buffer_release_s=1.0)
    await register(client, 3)
    env = await register_env(client, "math", 8)
    assert await post(client, group(3, 1, env["env_id"])) == {"status": "buffered", "buffer_size": 3}
    (seen,) = (await status(client))["environments"]
    assert (seen["buffered_groups"], seen["buffered_sequences"]) == (1, 3)

    async def served() -> bool:
        return await batch(client) is not None

    await wait_until(served)


@pytest.mark.parametrize("batch_size", [0, -1, -8])
async def test_fault_11_a_batch_size_below_one_is_refused(client: httpx.AsyncClient, batch_size: int) -> None:
    reply = await client.post("/register", json=registration(batch_size))
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["loc"] == ["batch_size"]


async def test_fault_12_status_env_always_answers_what_an_environment_can_live_with(client: httpx.AsyncClient) -> None:
    async def ask(env_id: int) -> dict[str, float]:
        reply = await client.get("/status-env", params={"env_id": env_id})
        assert reply.status_code == 200, reply.text
        answer: dict[str, float] = reply.json()
        assert set(answer) == {
            "current_step",
            "queue_size",
            "unallocated_fraction",
            "self_queue_size",
            "max_group_size",
            "env_weight",
        }
        assert answer["env_weight"] >= 0.01
        assert answer["max_group_size"] >= 1
        return answer

    await ask(0)  # a blank server
    await register(client, 8)
    await ask(99)  # an unknown id
    for weight in (0.0, -1.0):
        env = await register_env(client, f"weight{weight}", 4, weight=weight)
        await ask(env["env_id"])
    for env_id in (0, 1):
        await client.post("/disconnect-env", json={"env_id": env_id})
        await ask(env_id)  # all environments disconnected


@pytest.mark.parametrize(
    ("path", "body", "headers", "expected"),
    [
        ("/scored_data", gzip.compress(b"{}")[:-4], {"Content-Encoding": "gzip"}, 400),
        ("/scored_data", b"\x1f\x8b\x08\x00" + b"\x00" * 6 + b"\xff" * 40, {"Content-Encoding": "gzip"}, 400),
        ("/scored_data", json.dumps(group(1, messages=[[5]])).encode(), {}, 422),
        ("/scored_data", json.dumps(group(1, env_id=-1)).encode(), {}, 422),
        ("/disconnect-env", b'{"env_id": -1}', {}, 422),
        ("/register-env", b'{"max_token_length":1,"desired_name":"x","weight":1,"group_size":0}', {}, 422),
        ("/register-env", b'{"max_token_length":1,"desired_name":"x","weight":NaN,"group_size":1}', {}, 422),
        ("/register-env", b'{"max_token_length":1,"desired_name":"x","weight":1e308,"group_size":1}', {}, 422),
    ],
    ids=[
        "gzip cut short",
        "gzip of nothing",
        "a message that is a number",
        "env_id below 0",
        "disconnecting env_id below 0",
        "group_size 0",
        "weight NaN",
        "weight beyond sums",
    ],
)
async def test_fault_12_bad_input_is_never_a_server_error(
    client: httpx.AsyncClient, path: str, body: bytes, headers: dict[str, str], expected: int
) -> None:
    await register(client, 8)
    reply = await client.post(path, content=body, headers=headers)
    assert reply.status_code == expected, reply.text
    assert reply.headers["content-type"] == "application/problem+json"


async def test_fault_13_the_oldest_groups_are_served_first(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    for mark in range(6):
        await post(client, group(4, mark))
    assert [marks(await batch(client) or []) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]


async def test_fault_14_one_batch_is_formed_at_a_time_and_the_step_counts_them(client: httpx.AsyncClient) -> None:
    await register(client, 4)
    for mark in range(3):
        await post(client, group(4, mark))
    for served in (1, 2, 3):
        assert await batch(client)
        now = await status(client)
        assert (now["current_step"], now["queue_size"]) == (served, 3 - served)


@pytest.mark.slow
async def test_fault_15_impossible_minimums_wait_then_are_relaxed_openly_and_shares_hold_over_time(
    start: Start,
) -> None:
    client = await start(relax_after_s=1.0)
    await register(client, 8)
    envs = [(await register_env(client, f"env{n}", 4, minimum=0.3))["env_id"] for n in range(3)]
    for mark in range(30):
        await post(client, group(4, mark, envs[mark % 3]))
    assert await batch(client) is None
    assert (await status(client))["blocked"]["reason"] == "minimums_conflict"
    got: Counter[int] = Counter()
    served = 0

    async def all_served() -> bool:
        nonlocal served
        reply = await client.get("/batch")
        groups = reply.json()["batch"]
        if groups is not None:
            assert reply.headers["lachesis-relaxed"] == "true"
            assert sequences(groups) == 8
            got.update({g["env_id"]: len(g["tokens"]) for g in groups})
            served += 1
        return served == 9

    await wait_until(all_served)
    assert got == dict.fromkeys(envs, 24), "each has its third"
    assert (await status(client))["relaxed_batches"] == 9


@pytest.mark.parametrize(("share", "batch_size", "needed"), [(0.29, 100, 29), (0.1, 8, 0), (0.3, 8, 2)])
async def test_fault_16_a_minimum_is_the_floor_without_the_float_error(
    client: httpx.AsyncClient, share: float, batch_size: int, needed: int
) -> None:
    await register(client, batch_size)
    await register_env(client, "math", 1, minimum=share)
    (seen,) = (await status(client))["environments"]
    assert seen["needs_sequences"] == needed


async def test_fault_17_status_env_sees_other_environments_and_keeps_the_declared_group_size(
    client: httpx.AsyncClient,
) -> None:
    await register(client, 32)
    mine = (await register_env(client, "mine", 1))["env_id"]
    other = (await register_env(client, "other", 1))["env_id"]
    for mark in range(5):
        await post(client, group(1, mark, other))

    async def pace() -> dict[str, float]:
        answer: dict[str, float] = (await client.get("/status-env", params={"env_id": mine})).json()
        return answer

    assert (await pace())["queue_size"] == 5
    await post(client, group(16, 9, mine))
    assert (await pace())["self_queue_size"] == 16
    assert await batch(client) is None
    await post(client, group(1, 10, mine))
    assert (await pace())["self_queue_size"] == 17, "counted in groups of 1, as declared"


async def test_fault_18_a_bomb_and_a_body_over_the_limit_are_refused(start: Start) -> None:
    client = await start(max_body_bytes=1_000_000)
    bomb = gzip.compress(b" " * 50_000_000)
    reply = await client.post("/scored_data", content=bomb, headers={"Content-Encoding": "gzip"})
    assert reply.status_code == 413
    assert (await client.post("/scored_data", content=b" " * 1_000_001)).status_code == 413
    assert (await client.post("/scored_data", content=b"{}", headers={"Content-Encoding": "br"})).status_code == 415


async def test_fault_18_no_web_page_may_call_the_service(client: httpx.AsyncClient) -> None:
    reply = await client.get("/reset_data", headers={"Origin": "http://elsewhere.example"})
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    ("changes", "location"),
    [
        ({"masks": [[1, 2, 3]]}, ["masks"]),
        ({"scores": []}, ["scores"]),
        ({"masks": [[1, 2, 3], [1, 2]]}, ["masks", 1]),
        ({"tokens": [[1, 2, 3], []]}, ["tokens", 1]),
        ({"tokens": []}, ["tokens"]),
        ({"advantages": [[]] * (MAX_BATCH_SIZE + 1)}, ["advantages"]),
        ({"distill_token_ids": [[[]] * (MAX_BATCH_SIZE + 7)]}, ["distill_token_ids"]),
        ({name: MANY if name == "scores" else [[1]] * len(MANY) for name in ("tokens", "masks", "scores")}, ["tokens"]),
    ],
)
async def test_fault_18_lengths_that_do_not_match_are_refused(
    client: httpx.AsyncClient, changes: dict[str, object], location: list[object]
) -> None:
    reply = await client.post("/scored_data", json=group(2) | changes)
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["loc"] == location
    assert (await status(client))["groups"]["accepted"] == 0


async def _ask_and_leave(client: httpx.AsyncClient, patience_s: float) -> None:
    """Send a GET /batch and close, whatever has come by then, without looking."""
    url = urlsplit(str(client.base_url))
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, (url.hostname, url.port))
        await loop.sock_sendall(connection, b"GET /batch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await asyncio.sleep(patience_s)


async def _ask_for_a_batch_and_hang_up(client: httpx.AsyncClient) -> None:
    """Send a GET /batch, see the reply begin, and vanish without reading it."""
    url = urlsplit(str(client.base_url))
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, (url.hostname, url.port))
        await loop.sock_sendall(connection, b"GET /batch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert await loop.sock_recv(connection, 9) == b"HTTP/1.1 "
