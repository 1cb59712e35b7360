"""The history of a group says how it came, in which batch it went, under which lease, and into which checkpoint."""

import httpx
from redis.asyncio import Redis

from tests.api.groups.test_listing import GROUPS, RUN, group, made, send


async def history_of(client: httpx.AsyncClient, name: str) -> dict[str, object]:
    reply = await client.get(f"{GROUPS}/{name}")
    assert reply.status_code == 200, reply.text
    found: dict[str, object] = reply.json()
    return found


async def take(client: httpx.AsyncClient) -> dict[str, str]:
    reply = await client.post(f"{RUN}/batches", json={"trainer": "gpu-0"})
    assert reply.status_code == 201, reply.text
    batch: dict[str, str] = reply.json()
    return batch


async def test_a_group_is_followed_from_its_item_to_a_checkpoint(client: httpx.AsyncClient) -> None:
    await made(client, batch_size=2)
    await client.put(f"{RUN}/policy-version", json={"policy_version": 5})
    await send(client, group("a", scores=[1.0, 0.0], policy_version=3, item="gsm8k/17"), group("b", policy_version=5))
    waiting = await history_of(client, "a")
    about = ("state", "item", "tokens", "mean_score", "staleness", "batch", "lease", "checkpoint")
    assert [waiting[name] for name in about] == ["queued", "gsm8k/17", 4, 0.5, 2, None, None, None]

    batch = await take(client)
    reply = await client.post(f"{RUN}/batches/{batch['batch']}/nack", json={"lease": batch["lease"]})
    assert reply.status_code == 200, reply.text
    batch = await take(client)
    leased = await history_of(client, "a")
    assert (leased["state"], leased["batch"], leased["staleness"]) == ("leased", batch["batch"], 2)
    lease = leased["lease"]
    assert isinstance(lease, dict)
    assert (lease["state"], lease["trainer"], lease["delivery_count"]) == ("held", "gpu-0", 1), "a new batch"
    assert 0 < lease["expires_s"] <= 3600

    reply = await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})
    assert reply.status_code == 200, reply.text
    kept = await history_of(client, "a")
    left = ("state", "item", "tokens", "staleness", "batch", "step", "lease", "checkpoint")
    step = batch["step"]
    assert [kept[name] for name in left] == ["delivered", "gsm8k/17", None, None, batch["batch"], step, None, None]
    assert (await client.post(f"{RUN}/checkpoints", json={"step": step})).status_code == 200
    saved = await history_of(client, "a")
    assert (saved["checkpoint"], saved["item"]) == (step, None), "its contents are gone"
    waiting = await history_of(client, "b")
    assert (waiting["state"], waiting["staleness"], waiting["checkpoint"]) == ("queued", 0, None)


async def test_to_look_at_a_waiting_group_reads_no_leased_batch(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await made(client, batch_size=2)
    await send(client, group("a"), group("b"))
    await take(client)
    reads = {}
    for name in "ab":
        await redis_client.config_resetstat()
        state = (await history_of(client, name))["state"]
        reads[state] = (await redis_client.info("commandstats"))["cmdstat_hmget"]["calls"]
    assert reads["leased"] == reads["queued"] + 1


async def test_a_deleted_group_is_in_no_checkpoint(client: httpx.AsyncClient) -> None:
    await made(client, batch_size=2)
    await send(client, group("a"), group("b"))
    await client.delete(f"{GROUPS}/b")
    batch = await take(client)
    await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})
    assert (await client.post(f"{RUN}/checkpoints", json={"step": 1})).status_code == 200
    dropped = await history_of(client, "b")
    assert (dropped["state"], dropped["reason"], dropped["checkpoint"]) == ("dropped", "deleted", None)


async def test_a_group_has_the_name_of_its_environment_wherever_it_is(client: httpx.AsyncClient) -> None:
    await made(client, batch_size=2)
    joined = await client.post(f"{RUN}/environments", json={"name": "math", "member": "one"})
    await send(client, group("a", environment=joined.json()["id"]))
    names = [(await history_of(client, "a"))["environment_name"]]
    batch = await take(client)
    names.append((await history_of(client, "a"))["environment_name"])
    await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})
    names.append((await history_of(client, "a"))["environment_name"])
    assert names == ["math"] * 3
