"""A silent trainer loses its batch to another; its later calls change nothing."""

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from tests.api.conftest import running_service
from tests.scenarios.native_calls import RUN, content, end, leased_batches, make_run, status, submit, take, taken
from tests.waiting import wait_until

SHORT_S, LONG_S = 0.2, 600


async def test_an_expired_batch_goes_to_the_next_trainer(client: httpx.AsyncClient) -> None:
    await make_run(client)
    await submit(client, "a", "b", "c", "d")
    lost = await taken(client, lease_s=SHORT_S, trainer="first")
    successor = await taken(client, lease_s=LONG_S, trainer="second")
    assert successor["step"] == 2, "as long as it is held, others get other batches"
    again = await taken(client, wait_s=10, lease_s=LONG_S, trainer="third")

    assert again["batch"] == lost["batch"]
    assert content(again) == content(lost), "the same groups, in the same order"
    assert (lost["delivery_count"], again["delivery_count"]) == (1, 2)
    assert again["lease"] != lost["lease"]

    for how in ("ack", "nack", "extend"):
        late = await end(client, lost, how)
        assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
        assert "delivery 2" in late.json()["detail"]
    assert (await status(client))["groups"]["delivered"] == 0
    for _ in range(2):  # its answer may have been lost
        answer = (await end(client, again)).json()
        assert (answer["batch"], answer["state"], answer["lease_s"]) == (again["batch"], "acknowledged", None)
    late = await end(client, lost)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    assert (await status(client))["groups"]["delivered"] == 2


async def test_a_late_trainer_owns_its_batch_until_another_takes_it(client: httpx.AsyncClient) -> None:
    await make_run(client)
    await submit(client, "a", "b")
    batch = await taken(client, lease_s=0.001)
    assert (await end(client, batch, "extend", lease_s=LONG_S)).json()["lease_s"] == LONG_S
    reply = await client.post(f"{RUN}/batches")
    assert reply.status_code == 204, "it is held again"
    assert (await end(client, batch)).status_code == 200


async def test_a_trainer_that_asks_again_gets_the_same_batch(client: httpx.AsyncClient) -> None:
    await make_run(client)
    await submit(client, "a", "b", "c", "d")
    first = await taken(client, request_id="trainer-0.1")
    repeated = await taken(client, request_id="trainer-0.1")
    assert (repeated["batch"], repeated["lease"], repeated["delivery_count"]) == (first["batch"], first["lease"], 1)
    assert content(repeated) == content(first)
    await end(client, first)
    assert (await taken(client, request_id="trainer-0.1"))["step"] == 2, "by then it is another batch's request"


async def test_a_repeated_take_extends_the_lease_and_never_shortens_it(client: httpx.AsyncClient) -> None:
    """The repetition may come after an extension that its trainer relies on."""
    await make_run(client)
    await submit(client, "a", "b")
    first = await taken(client, request_id="step-1", lease_s=20)
    longer = await taken(client, request_id="step-1", lease_s=40)
    assert longer["lease_s"] == 40
    assert (await end(client, first, "extend", lease_s=LONG_S)).json()["lease_s"] == LONG_S
    late = await taken(client, request_id="step-1", lease_s=20)
    assert late["lease"] == first["lease"]
    assert late["lease_s"] > LONG_S / 2, "the answer is how long the lease really lasts"
    (held,) = await leased_batches(client)
    assert held["expires_s"] > LONG_S / 2


@pytest.mark.parametrize("outage_s", [33, 3600])
async def test_an_outage_does_not_end_the_lease_of_a_trainer_that_lives(
    client: httpx.AsyncClient, redis_url: str, redis_client: Redis, outage_s: int
) -> None:
    """The clock of Redis goes on during an outage, but trainers cannot extend their leases."""
    key = RunKeys("run").run

    async def ticked() -> bool:
        (told,) = await redis_client.hmget(key, "time_ms")  # type: ignore[misc]
        seconds, _ = await redis_client.time()
        return bool(int(told) / 1000 > seconds - outage_s / 2)

    async with running_service(redis_url):
        await make_run(client)
        await submit(client, "a", "b")
        batch = await taken(client, lease_s=20)
        await redis_client.hincrby(key, "time_ms", -1000 * outage_s)  # type: ignore[misc]
        (held,) = await leased_batches(client)
        assert held["expires_s"] > 10, "also before the first tick"
        assert await take(client) is None
        await wait_until(ticked)
        (held,) = await leased_batches(client)
        assert (held["state"], held["delivery_count"]) == ("held", 1)
        assert held["expires_s"] > 10
        assert (await end(client, batch, "extend", lease_s=20)).status_code == 200
        assert (await end(client, batch)).status_code == 200
