"""A curriculum with a few items, for the tests of this folder."""

import httpx
import pytest

RUN = "/v1/runs/r"
CURRICULUM = f"{RUN}/curricula/gsm8k"
LINES = {"Content-Type": "application/jsonl"}
ITEMS = [{"key": f"q{n}", "prior": n / 8} for n in range(8)]


@pytest.fixture
async def curriculum(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client of a service with a curriculum of a few items."""
    await client.post("/v1/runs", json={"name": "r", "batch_size": 1})
    reply = await client.put(CURRICULUM, json={"strategy": "learnability", "n_bins": 4})
    assert reply.status_code == 200, reply.text
    await client.post(f"{CURRICULUM}/items", json={"items": ITEMS})
    return client


async def state(client: httpx.AsyncClient) -> list[str]:
    """Return the lines of the state."""
    return sorted((await client.get(f"{CURRICULUM}/state")).text.splitlines())
