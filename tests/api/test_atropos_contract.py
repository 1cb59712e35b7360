"""The Atropos contract, endpoint by endpoint: what real clients send, and what they rely on in the answers."""

import gzip
import json
import threading
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.api.codec.atropos_batch import group_json
from tests.api.atropos_calls import batch, group, marks, post, register, register_env, registration, sequences, status
from tests.api.bodies import FIELDS
from tests.api.conftest import Start


async def get(client: httpx.AsyncClient, path: str) -> Any:
    reply = await client.get(path)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_before_a_trainer_registers_everything_has_an_answer(client: httpx.AsyncClient) -> None:
    assert await get(client, "/") == {"message": "AtroposLib API"}
    assert await get(client, "/info") == {"batch_size": -1, "max_token_len": -1}
    assert await get(client, "/wandb_info") == {"group": None, "project": None}
    assert await get(client, "/batch") == {
        "status": "error",
        "message": "Trainer not registered. Call /register first.",
        "batch": [],
    }
    assert await register_env(client) == {"status": "wait for trainer to start"}
    example = await get(client, "/latest_example")
    assert len(example) == 9
    assert all(value == [] for value in example.values())
    now = await status(client)
    assert (now["current_step"], now["queue_size"], now["blocked"]["reason"]) == (0, 0, "not_registered")


async def test_register_answers_an_integer_that_every_client_can_hold(client: httpx.AsyncClient) -> None:
    reply = await client.post("/register", json=registration())
    assert isinstance(reply.json()["uuid"], int)
    assert 0 <= reply.json()["uuid"] < 2**53
    assert await get(client, "/info") == {"batch_size": 8, "max_token_len": 512}
    assert await get(client, "/wandb_info") == {"group": "group", "project": "project"}


async def test_environments_wait_until_the_trainer_asks_for_a_batch(client: httpx.AsyncClient) -> None:
    await client.post("/register", json=registration(starting_step=7))
    assert await register_env(client, "math") == {"status": "wait for trainer to start"}
    assert await get(client, "/batch") == {"batch": None}
    assert await register_env(client, "math") == {
        "status": "success",
        "env_id": 0,
        "wandb_name": "math_0",
        "checkpoint_dir": "checkpoints",
        "starting_step": 7,
        "checkpoint_interval": 10,
        "num_steps": 100,
    }
    assert (await register_env(client, "math"))["wandb_name"] == "math_1"
    assert (await register_env(client, "code"))["wandb_name"] == "code_0"


async def test_leaving_succeeds_once_somebody_is_there(client: httpx.AsyncClient) -> None:
    await register(client)
    await register_env(client)
    reply = await client.post("/disconnect-env", json={"env_id": 5})
    assert reply.status_code == 200
    assert reply.json()["status"] == "failure"
    assert (await client.post("/disconnect-env", json={"env_id": 0})).json() == {"status": "success"}
    (seen,) = (await status(client))["environments"]
    assert (seen["connected"], seen["alive"]) == (False, False)


async def test_a_group_comes_back_with_all_keys_and_equal_values(client: httpx.AsyncClient) -> None:
    await register(client, 2)
    env = await register_env(client, group_size=2)
    sent = group(
        2,
        1,
        env["env_id"],
        advantages=[[0.1, -0.5, 1e-30, 2.0], [0.25, 0.5, 0.75]],
        ref_logprobs=[[-0.1, -0.2, -0.3], []],
        inference_logprobs=[[1.0, -0.30000001192092896, 0.1], [1.0, 1.0, 1.0]],
        messages=[
            [{"role": "user", "content": "Zahl: 2\u00b2 \U0001f600", "reward": None, "extra": [1, {"a": 1e300}]}],
            [],
        ],
        generation_params={"temperature": 0.7, "n": 12345678901234567890123},
        overrides=[{"set_advantage_to_zero": True}, {}],
        group_overrides={"group_size": 2},
        images=["aGk=", None],
        distill_token_ids=[[[1, 2], [3]], [[2**40]]],
        distill_logprobs=[[[-0.5, -0.25], [-1.0]], [[]]],
    )
    assert await post(client, sent | {"unknown": "ignored"}) == {"status": "received"}
    assert await get(client, "/latest_example") == sent
    assert await batch(client) == [sent]
    assert await batch(client) is None
    assert await get(client, "/latest_example") == sent, "the newest group can be looked at after it is served"


async def test_absent_fields_come_back_as_null(client: httpx.AsyncClient) -> None:
    await register(client, 1)
    await post(client, {"tokens": [["1", 2.0, True]], "masks": [[1, 2, 3]], "scores": [1]})
    (served,) = await batch(client) or []
    assert served.keys() == set(FIELDS)
    assert served["tokens"] == [[1, 2, 1]]
    assert served["scores"] == [1.0]
    assert [key for key in FIELDS if served[key] is not None and key not in ("tokens", "masks", "scores")] == []


async def test_groups_of_another_size_than_declared_are_buffered_until_they_make_a_set(
    client: httpx.AsyncClient,
) -> None:
    await register(client, 4)
    env_id = (await register_env(client, group_size=4))["env_id"]
    assert await post(client, group(3, 1, env_id)) == {"status": "buffered", "buffer_size": 3}
    assert await post(client, group(2, 2, env_id)) == {"status": "buffered", "buffer_size": 5}
    assert (await status(client))["queue_size"] == 0
    assert await post(client, group(1, 3, env_id)) == {"status": "buffered", "buffer_size": 2}
    assert (await status(client))["queue_size"] == 2
    assert marks(await batch(client) or []) == [1, 3]
    assert await post(client, group(5, 4, env_id)) == {"status": "buffered", "buffer_size": 2}


async def test_a_list_is_taken_whole_and_counted(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    env_id = (await register_env(client, group_size=4))["env_id"]
    reply = await client.post("/scored_data_list", json=[group(4, 1, env_id), group(3, 2, env_id), group(3, 3)])
    assert reply.json() == {"status": "received", "groups_processed": 3, "buffered": 1, "last_buffer_size": 3}
    assert (await client.post("/scored_data_list", json=[])).json() == {"status": "received", "groups_processed": 0}
    reply = await client.post("/scored_data_list", json=[group(4, 4), group(4, 5) | {"scores": [1.0]}])
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["loc"] == [1, "scores"]
    assert (await status(client))["groups"]["accepted"] == 3, "none of a list with a mistake is stored"


async def test_status_env_takes_its_id_from_a_body_or_from_the_query(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    env_id = (await register_env(client, group_size=4, minimum=0.25))["env_id"]
    await post(client, group(4, 1, env_id))
    by_query = await get(client, f"/status-env?env_id={env_id}")
    by_body = (await client.request("GET", "/status-env", json={"env_id": env_id})).json()
    assert by_query == by_body
    assert by_query == {
        "current_step": 0,
        "queue_size": 1,
        "unallocated_fraction": 0.75,
        "self_queue_size": 1,
        "max_group_size": 4,
        "env_weight": 1.0,
    }
    assert (await client.get("/status-env")).status_code == 422


async def test_a_drained_queue_answers_null_at_once_and_says_why_in_a_header(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    await post(client, group(4, 1))
    reply = await client.get("/batch")
    assert reply.json() == {"batch": None}
    assert reply.headers["lachesis-waiting"].startswith("too_few_sequences: ")


async def test_bodies_may_be_gzip_and_large_replies_are_where_the_client_accepts_it(client: httpx.AsyncClient) -> None:
    await register(client, 4)
    body = gzip.compress(json.dumps(group(4, 1, messages=[[{"role": "user", "content": "x" * 2000}]] * 4)).encode())
    reply = await client.post("/scored_data", content=body, headers={"Content-Encoding": "gzip"})
    assert reply.json() == {"status": "received"}
    plain = await client.get("/latest_example", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = await client.get("/batch", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json()["batch"] == [plain.json()]
    assert "content-encoding" not in (await client.get("/info", headers={"Accept-Encoding": "gzip"})).headers


async def test_the_newest_group_is_written_in_a_thread(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one would hold up all other requests."""
    threads = []

    def watched(payload: bytes) -> bytes:
        threads.append(threading.current_thread())
        return group_json(payload)

    monkeypatch.setattr("app.api.wire.atropos.group_json", watched)
    await register(client, 4)
    await post(client, group(4, 1))
    assert len((await get(client, "/latest_example"))["tokens"]) == 4
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_reset_forgets_the_run(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    await register_env(client)
    await post(client, group(4, 1))
    reply = await client.get("/reset_data")
    assert (reply.status_code, reply.text) == (200, "Reset successful")
    assert await get(client, "/info") == {"batch_size": -1, "max_token_len": -1}
    assert await get(client, "/wandb_info") == {"group": None, "project": None}
    now = await status(client)
    assert (now["current_step"], now["queue_size"], now["environments"]) == (0, 0, [])


async def test_to_reset_a_run_that_nobody_made_makes_none(client: httpx.AsyncClient, redis_client: Redis) -> None:
    assert (await client.get("/runs/nobodys/atropos/reset_data")).text == "Reset successful"
    assert await redis_client.keys("*nobodys*") == []


async def test_runs_have_a_surface_of_their_own_and_do_not_see_each_other(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    other = "/runs/other/atropos"
    assert await get(client, f"{other}/info") == {"batch_size": -1, "max_token_len": -1}
    assert (await client.post(f"{other}/register", json=registration(4))).status_code == 200
    assert (await client.post(f"{other}/scored_data", json=group(4, 9))).status_code == 200
    assert await batch(client) is None
    assert sequences((await get(client, f"{other}/batch"))["batch"]) == 4
    assert (await get(client, "/runs/default/atropos/info"))["batch_size"] == 8
    assert (await client.get("/runs/no%20such%7Bname/atropos/info")).status_code == 422


async def test_the_base_url_of_a_run_leads_to_its_root(client: httpx.AsyncClient) -> None:
    """Programs look there whether the service is up. At the root of the service the URL ends with a slash anyway."""
    reply = await client.get("/runs/other/atropos", follow_redirects=True)
    assert (reply.url.path, reply.json()) == ("/runs/other/atropos/", {"message": "AtroposLib API"})


async def test_a_user_and_password_in_the_url_do_no_harm(client: httpx.AsyncClient) -> None:
    assert (await client.get("/info", auth=("user", "password"))).status_code == 200


async def test_status_says_who_takes_part_and_what_blocks(client: httpx.AsyncClient) -> None:
    await register(client, 8)
    math_id = (await register_env(client, "math", 4, minimum=0.5))["env_id"]
    code_id = (await register_env(client, "code", 2))["env_id"]
    for mark in range(3):
        await post(client, group(2, mark, code_id))
    now = await status(client)
    assert (now["batch_size"], now["queue_size"], now["ready"]) == (8, 3, False)
    assert now["blocked"]["reason"] in ("too_few_sequences", "minimum_short")
    assert now["blocked"]["missing_by_environment"] == {str(math_id): 4}
    assert [math_id, 4] in now["blocked"]["unblocked_by"]
    assert now["oldest_waiting_s"] >= 0
    assert now["bytes"]["queued"] > 0
    await post(client, group(4, 7, math_id))
    assert (await status(client))["ready"]
    assert sequences(await batch(client) or []) == 8
    seen = {env["name"]: env for env in (await status(client))["environments"]}
    assert (seen["math_0"]["share_promised"], seen["math_0"]["share_got"]) == (0.5, 0.5)
    assert (seen["math_0"]["served_sequences"], seen["code_0"]["served_sequences"]) == (4, 4)
    assert seen["code_0"]["queued_groups"] == 1


async def test_health_readiness_and_version_answer(client: httpx.AsyncClient) -> None:
    assert await get(client, "/healthz") == {"status": "ok"}
    assert await get(client, "/readyz") == {"status": "ready"}
    assert (await get(client, "/version"))["name"] == "lachesis"


@pytest.mark.parametrize(("method", "path", "expected"), [("GET", "/nothing", 404), ("DELETE", "/batch", 405)])
async def test_what_is_not_there_is_a_problem_too(
    client: httpx.AsyncClient, method: str, path: str, expected: int
) -> None:
    reply = await client.request(method, path)
    assert reply.status_code == expected
    assert reply.headers["content-type"] == "application/problem+json"


async def test_two_processes_answer_alike(start: Start) -> None:
    one, other = await start(), await start()
    await register(one, 4)
    await post(one, group(4, 1))
    assert await get(other, "/info") == await get(one, "/info")
    assert marks(await batch(other) or []) == [1]
    assert await batch(one) is None


async def test_a_run_may_start_before_step_zero(client: httpx.AsyncClient) -> None:
    await register(client, 4, starting_step=-5)
    await post(client, group(4, 1))
    assert marks(await batch(client) or []) == [1]
    assert (await status(client))["current_step"] == -4
    assert (await client.post("/register", json=registration(4, starting_step=-5))).status_code == 200
    assert marks(await batch(client) or []) == [1]


async def test_the_header_that_says_why_stays_short_with_many_environments(client: httpx.AsyncClient) -> None:
    """Clients refuse replies whose headers are some kilobytes long."""
    await register(client, 1000)
    for number in range(40):
        await register_env(client, f"env{number}", 4, minimum=0.02)
    reply = await client.get("/batch")
    assert 100 < len(reply.headers["lachesis-waiting"]) <= 1000
