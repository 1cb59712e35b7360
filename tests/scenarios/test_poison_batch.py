"""A batch that crashes its trainers is quarantined after some deliveries."""

from typing import Any

import httpx
import pytest

from tests.scenarios.native_calls import (
    RUN,
    Batch,
    ids,
    lease_runs_out,
    leased_batches,
    make_run,
    status,
    submit,
    take,
    taken,
    trained,
)


@pytest.fixture
async def poisoned(client: httpx.AsyncClient) -> Batch:
    """Quarantine a batch of the groups a and b after two lost leases; c and d are queued."""
    await make_run(client, max_deliveries=2)
    await submit(client, "a", "b")
    for delivery in (1, 2):
        batch = await taken(client, lease_s=0.05)
        assert (ids(batch), batch["delivery_count"]) == (["a", "b"], delivery)
        await lease_runs_out(client, batch)
    assert await take(client) is None, "no third trainer is sacrificed"
    return batch


async def group_of(client: httpx.AsyncClient, group_id: str) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(f"{RUN}/groups/{group_id}")).json()
    return found


async def test_a_quarantined_batch_blocks_nobody_and_is_shown(client: httpx.AsyncClient, poisoned: Batch) -> None:
    (held,) = await leased_batches(client)
    assert (held["batch"], held["state"], held["delivery_count"]) == (poisoned["batch"], "quarantined", 2)
    assert (held["groups"], held["size"], held["expires_s"]) == (2, 4, None)
    await submit(client, "c", "d")
    assert ids(await trained(client)) == ["c", "d"]
    assert (await group_of(client, "a"))["batch"] == poisoned["batch"]
    assert (await status(client))["groups"]["leased"] == 2


async def test_giving_it_back_puts_its_groups_at_the_front_of_the_queue(
    client: httpx.AsyncClient, poisoned: Batch
) -> None:
    await submit(client, "c", "d")
    for _ in range(2):  # the answer may have been lost
        reply = await client.post(
            f"{RUN}/batches/{poisoned['batch']}/nack", json={"reason": "the trainer was at fault"}
        )
        assert reply.json()["state"] == "given_back"
    batch = await taken(client)
    assert (ids(batch), batch["delivery_count"]) == (["a", "b"], 1)
    assert batch["batch"] != poisoned["batch"]


async def test_dropping_it_drops_its_groups_which_are_counted(client: httpx.AsyncClient, poisoned: Batch) -> None:
    assert (await client.delete(f"{RUN}/batches/{poisoned['batch']}")).status_code == 204
    assert await leased_batches(client) == []
    now = await status(client)
    assert (now["dropped"], now["groups"]["accepted"], now["groups"]["leased"]) == ({"quarantined": 2}, 2, 0)
    group = await group_of(client, "a")
    assert (group["state"], group["reason"], group["batch"]) == ("dropped", "quarantined", poisoned["batch"])
    assert (await client.delete(f"{RUN}/batches/{poisoned['batch']}")).json()["code"] == "batch_not_found"


async def test_a_batch_that_a_trainer_holds_can_not_be_dropped(client: httpx.AsyncClient) -> None:
    await make_run(client)
    await submit(client, "a", "b")
    batch = await taken(client)
    refused = await client.delete(f"{RUN}/batches/{batch['batch']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "batch_in_use")
