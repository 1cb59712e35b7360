"""A relaxed batch leaves one debt, when it is acknowledged, however often it is delivered."""

import httpx
import pytest

from tests.scenarios.native_calls import RUN, Batch, end, group, leased_batches, make_run, status, submit, taken
from tests.waiting import wait_until


async def owed(client: httpx.AsyncClient) -> list[int]:
    return [environment["owed_sequences"] for environment in (await status(client))["environments"]]


@pytest.fixture
async def relaxed(client: httpx.AsyncClient) -> Batch:
    """Take a batch of one group. Two environments have a minimum of a half; the second is owed its half."""
    await make_run(client, batch_size=2, relax_after_s=0, max_deliveries=1)
    for name in ("first", "second"):
        share = {"name": name, "group_size": 2, "min_share": 0.5}
        assert (await client.post(f"{RUN}/environments", json=share)).status_code == 201
    await submit(client, group("a", environment=0), group("b", environment=1))
    batch = await taken(client)
    assert batch["relaxed"]
    assert await owed(client) == [0, 1]
    return batch


async def test_a_batch_that_is_given_back_again_and_again_is_owed_once(
    client: httpx.AsyncClient, relaxed: Batch
) -> None:
    batch = relaxed
    for _ in range(6):
        for _ in range(2):
            assert (await end(client, batch, "nack")).status_code == 200
        assert await owed(client) == [0, 0]
        batch = await taken(client)
        assert batch["relaxed"]
        assert await owed(client) == [0, 1]
    assert (await end(client, batch)).status_code == 200
    assert await owed(client) == [0, 1]


async def test_a_batch_that_is_dropped_leaves_no_debt(client: httpx.AsyncClient, relaxed: Batch) -> None:
    assert (await end(client, relaxed, "nack")).status_code == 200
    batch = await taken(client, lease_s=0.05)

    async def quarantined() -> bool:
        return [held["state"] for held in await leased_batches(client)] == ["quarantined"]

    await wait_until(quarantined)
    assert await owed(client) == [0, 1]
    assert (await client.delete(f"{RUN}/batches/{batch['batch']}")).status_code == 204
    assert await owed(client) == [0, 0]
