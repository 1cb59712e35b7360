"""Atropos clients and native clients work in one run."""

import httpx

from tests.api import atropos_calls as atropos
from tests.scenarios.native_calls import RUN, end, group, make_run, status, submit, take, taken
from tests.waiting import wait_until

ATROPOS = "/runs/run/atropos"
COLUMNS = ("tokens", "masks", "scores")


async def test_both_kinds_of_environments_feed_both_kinds_of_trainers(client: httpx.AsyncClient) -> None:
    """Each environment has a minimum of a half; the two trainers alternate."""
    await make_run(client, batch_size=4)
    assert await take(client) is None, "an Atropos environment may join once a trainer has asked"
    registered = await client.post(
        f"{ATROPOS}/register-env",
        json={
            "desired_name": "old",
            "group_size": 2,
            "max_token_length": 512,
            "weight": 1.0,
            "min_batch_allocation": 0.5,
        },
    )
    old = registered.json()["env_id"]
    joined = await client.post(f"{RUN}/environments", json={"name": "new", "group_size": 2, "min_share": 0.5})
    new = joined.json()["id"]
    assert old != new

    sent = []
    for mark in range(4):
        body = atropos.group(2, mark, old)
        assert (await client.post(f"{ATROPOS}/scored_data", json=body)).json() == {"status": "received"}
        assert await submit(client, group(f"n{mark}", environment=new)) == ["accepted"]
        sent.append([{name: one[name] for name in COLUMNS} for one in (body, group(f"n{mark}"))])

    received = []
    for step in range(1, 5):
        if step % 2:
            reply = await client.get(f"{ATROPOS}/batch")
            groups = reply.json()["batch"]
            assert reply.headers["lachesis-batch"]
        else:
            batch = await taken(client)
            assert batch["step"] == step
            assert [one["environment"] for one in batch["groups"]] == [old, new]
            assert batch["groups"][1]["id"] == f"n{step - 1}"
            groups = batch["groups"]
            assert (await end(client, batch)).status_code == 200
        received.append([{name: one[name] for name in COLUMNS} for one in groups])
    assert received == sent, "in the order they came, with every value"

    assert (await client.get(f"{ATROPOS}/batch")).json() == {"batch": None}, "which acknowledges the previous batch"

    async def all_delivered() -> bool:
        counts = (await status(client))["groups"]
        return (counts["delivered"], counts["accepted"], counts["leased"]) == (8, 8, 0)

    await wait_until(all_delivered)  # what a reply acknowledges is noted once it was written out
    served = {one["id"]: one["served_sequences"] for one in (await status(client))["environments"]}
    assert served == {old: 8, new: 8}


async def test_an_expired_batch_goes_to_the_other_kind_of_trainer(client: httpx.AsyncClient) -> None:
    """A lease expires or a trainer registers again; the next trainer that asks gets the batch."""
    await make_run(client, batch_size=2)
    await client.post(f"{ATROPOS}/scored_data", json=atropos.group(2, 7))
    assert (await take(client, lease_s=0.001)) is not None
    reply = await client.get(f"{ATROPOS}/batch")
    assert atropos.marks(reply.json()["batch"]) == [7]
    assert reply.headers["lachesis-delivery-count"] == "2"
    about = (await client.get(RUN)).json()["atropos"] | {"batch_size": 2}
    await client.post(f"{ATROPOS}/register", json=about)
    batch = await taken(client)
    assert (batch["delivery_count"], batch["groups"][0]["tokens"][0][0]) == (3, 7)
