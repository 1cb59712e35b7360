"""One address brings few environments of new names at a time, and keeps no other address from it."""

import asyncio

import httpx

from app.services.environments.new_environment_limit import NewEnvironmentLimit
from tests.api.conftest import Start


async def join(client: httpx.AsyncClient, name: str) -> httpx.Response:
    return await client.post("/v1/runs/r/environments", json={"name": name})


async def test_an_address_brings_few_new_environments_and_joins_known_ones_freely(start: Start) -> None:
    client: httpx.AsyncClient = await start(max_new_environments_per_minute=3)
    await client.post("/v1/runs", json={"name": "r", "batch_size": 4})
    assert [(await join(client, f"env{number}")).status_code for number in range(5)] == [201, 201, 201, 429, 429]
    refused = await join(client, "env3")
    assert refused.json()["code"] == "too_many_new_environments"
    assert 1 <= float(refused.headers["retry-after"]) <= 20
    assert [(await join(client, f"env{number}")).status_code for number in range(3)] == [200] * 3
    assert len((await client.get("/v1/runs/r/environments")).json()["environments"]) == 3
    other = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    async with httpx.AsyncClient(transport=other, base_url=client.base_url) as elsewhere:
        assert (await join(elsewhere, "env3")).status_code == 201
    await client.post("/v1/runs", json={"name": "r2", "batch_size": 4})
    assert (await client.post("/v1/runs/r2/environments", json={"name": "env9"})).status_code == 201


async def test_a_hundred_names_at_once_come_in_one_after_the_other() -> None:
    """As of a hundred workers behind one address. Each new name makes the requests of others dearer."""
    limit = NewEnvironmentLimit(120)  # none of them is refused
    waiting = [asyncio.ensure_future(limit.count("math", "10.0.0.7")) for _ in range(100)]
    other = asyncio.ensure_future(limit.count("math", "10.0.0.8"))
    await asyncio.sleep(0)
    assert other.done(), "nobody waits for the names of others"
    assert 20 <= sum(one.done() for one in waiting) < 100
    for one in waiting:
        one.cancel()
    assert len(await asyncio.gather(*waiting, return_exceptions=True)) == 100


async def test_a_service_that_allows_more_names_a_minute_admits_them_faster() -> None:
    limit = NewEnvironmentLimit(6000)
    async with asyncio.timeout(0):  # nothing here may wait
        for _ in range(1000):
            await limit.count("math", "10.0.0.7")
