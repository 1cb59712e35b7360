"""Thousands of requests to the native API that nobody should send: none costs a 5xx, and what is taken can be had.

`LACHESIS_FUZZ_SEED` says where to start (`tests/seeds.py`).
"""

from collections import Counter
from random import Random

import httpx
import pytest
from redis.asyncio import Redis

from lachesis.wire.groups import SAFETENSORS
from tests.api.conftest import Start
from tests.api.native_mutations import mutated_blob, mutated_call
from tests.properties import briefly_and_at_length
from tests.seeds import FUZZ, seed_of
from tests.services.accounting import books_once_settled

pytestmark = pytest.mark.slow

CALLS_EVERY = 4
RESTART_EVERY = 500
RUN = {"name": "fuzz", "batch_size": 4, "lease_s": 60, "history_retention_s": 120}


@briefly_and_at_length("count", 500, 3_000)
async def test_no_mutated_request_is_a_5xx_and_accepted_groups_are_served(
    start: Start, redis_client: Redis, count: int
) -> None:
    seed = seed_of(FUZZ)
    rnd, client = Random(seed), await start()
    statuses: Counter[int] = Counter()
    for number in range(count):
        if number % RESTART_EVERY == 0:
            await start_again(client)
        request = (mutated_call if number % CALLS_EVERY == 0 else mutated_blob)(rnd)
        headers = dict([line.split(": ") for line in request.headers])
        path = request.path.replace("wait_s=1", "wait_s=0.01")
        reply = await client.request(request.method, f"/v1/runs/fuzz{path}", content=request.body, headers=headers)
        assert reply.status_code < 500, (request.kind, request.path, request.body, reply.text)
        if reply.status_code >= 400:
            assert reply.json()["code"], reply.text
        statuses[reply.status_code] += 1
        if number % RESTART_EVERY == RESTART_EVERY - 1:
            await everything_can_be_had(client, redis_client, rnd)
    assert 0.05 < statuses[201] / count < 0.7, f"neither all refused nor all let through: {statuses}"


async def start_again(client: httpx.AsyncClient) -> None:
    await client.delete("/v1/runs/fuzz")
    assert (await client.post("/v1/runs", json=RUN)).status_code == 201
    for name in ("one", "two"):
        await client.post("/v1/runs/fuzz/environments", json={"name": name})


async def everything_can_be_had(client: httpx.AsyncClient, redis: Redis, rnd: Random) -> None:
    """Take batches in each way until there is none: each is whole."""
    plain = {"batch_size": 1, "max_age_s": None, "max_staleness": None, "archived": False, "lease_s": 60}
    for environment in (await client.get("/v1/runs/fuzz/environments")).json()["environments"]:
        await client.delete(f"/v1/runs/fuzz/environments/{environment['id']}")
    for batch_size in (1, 2, 3, 4):
        await client.patch("/v1/runs/fuzz", json=plain | {"batch_size": batch_size})
        while True:
            if rnd.random() < 0.3:
                reply = await client.get("/runs/fuzz/atropos/batch")
                assert reply.status_code == 200, reply.text
                if reply.json()["batch"] is None:
                    break
                continue
            accept = rnd.choice((SAFETENSORS, "application/json"))
            reply = await client.post("/v1/runs/fuzz/batches", headers={"Accept": accept})
            assert reply.status_code in (201, 204), reply.text
            if reply.status_code == 204:
                break
    await books_once_settled(redis, "fuzz")
