"""An operator pauses intake or serving of a run. Nothing is lost, and everything continues after it."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from redis.asyncio import Redis

from lachesis import AsyncEnvironment, AsyncTrainer, NoPermit, Settings
from tests.api import atropos_calls as atropos
from tests.api.conftest import running_service
from tests.clients import run as sdk
from tests.scenarios.native_calls import RUN, change_run, end, group, ids, make_run, status, submit, take, taken
from tests.services.accounting import books_of
from tests.waiting import wait_until


@pytest.fixture
async def other(redis_url: str, client: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a second process with the same store."""
    async with running_service(redis_url) as started:
        yield started


async def test_while_intake_is_paused_groups_wait_with_their_senders(
    client: httpx.AsyncClient, other: httpx.AsyncClient, redis_client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await make_run(client, batch_size=2)
    assert await submit(other, "before") == ["accepted"], "the process knows the run as it was"
    settings = Settings(url=str(other.base_url), run="run")
    async with AsyncEnvironment("math", settings) as environment, AsyncTrainer(settings) as trainer:
        await trainer.change_run(intake_paused=True)
        for process in (client, other):
            refused = await process.post(f"{RUN}/groups", json=group("raw"))
            assert (refused.status_code, refused.json()["code"]) == (429, "intake_paused")
            assert int(refused.headers["retry-after"]) >= 1
        granted = await environment.credits()
        assert (granted.credits_groups, "paused intake" in granted.reason) == (0, True)
        with pytest.raises(NoPermit, match=f"in 2 s: {granted.reason}$"):
            async with environment.permit(wait_s=2):
                raise AssertionError
        assert (await status(client))["intake_paused"]

        given_id = await environment.submit(sdk.group(1, 2))
        await wait_until(lambda: "an operator has paused the intake" in caplog.text)
        batch = await taken(client)
        assert ids(batch) == ["before"], "serving goes on"
        await end(client, batch)
        assert "paused intake" in (await client.get(f"{RUN}/batches/explain")).json()["detail"]

        await change_run(other, intake_paused=False)
        await environment.flush()
        assert await submit(client, "raw") == ["accepted"]
        assert (await environment.credits()).credits_groups > 0
        assert (await client.get(f"{RUN}/groups/{given_id}")).json()["state"] == "queued"
    assert len((await books_of(redis_client, "run"))["queued"]) == 2


async def test_while_serving_is_paused_trainers_keep_what_they_hold_and_get_nothing_else(
    client: httpx.AsyncClient, other: httpx.AsyncClient, redis_client: Redis
) -> None:
    await make_run(client, batch_size=2, max_deliveries=9)
    await submit(client, "a", "b", "c")
    held = await taken(client, request_id="one")
    back = await taken(client, lease_s=0.01)
    await change_run(client, serving_paused=True)
    waiting = asyncio.create_task(take(other, wait_s=60))

    for process in (client, other):
        assert await take(process) is None
        found, blocked = (await process.get(f"{RUN}/batches/explain")).json(), (await status(process))["blocked"]
        assert (found["ready"], found["reason"], blocked["reason"]) == (False, "serving_paused", "serving_paused")
        assert "an operator has paused serving" in found["detail"] == blocked["detail"]
    again = await taken(other, request_id="one")
    assert (again["batch"], again["delivery_count"]) == (held["batch"], 1), "a request repeats because a reply was lost"
    assert (await end(other, again)).status_code == 200
    assert await submit(other, "d") == ["accepted"], "intake goes on"
    assert not waiting.done()

    await change_run(other, serving_paused=False)
    async with asyncio.timeout(60):
        first = await waiting
    assert first is not None
    assert (first["batch"], ids(first), first["delivery_count"]) == (back["batch"], ["b"], 2)
    assert [ids(await taken(client)) for _ in range(2)] == [["c"], ["d"]]
    await books_of(redis_client, "run")

    async def have_learned() -> bool:
        kinds = [one["kind"] for one in (await client.get(f"{RUN}/events")).json()["events"]]
        return kinds.count("run changed") == 2

    await wait_until(have_learned)
    (entry, *_) = (await client.get("/v1/audit")).json()["entries"]
    assert entry["changes"][0]["changes"] == {"serving_paused": False}


async def test_a_paused_run_stays_paused_when_the_service_starts_again(redis_url: str, redis_client: Redis) -> None:
    async with running_service(redis_url) as client:
        await make_run(client, batch_size=2)
        await submit(client, "a")
        await change_run(client, intake_paused=True, serving_paused=True)
    async with running_service(redis_url) as client:
        assert (await client.post(f"{RUN}/groups", json=group("b"))).status_code == 429
        assert await take(client) is None
        await change_run(client, serving_paused=False)
        assert ids(await taken(client)) == ["a"]


async def joined_by_atropos(client: httpx.AsyncClient, base: str, name: str) -> int:
    """Register an environment as Atropos does, after its trainer has asked for a batch."""
    await taken_by_atropos(client, base)
    asked = {"max_token_length": 512, "desired_name": name, "weight": 1.0, "group_size": 2}
    return int((await client.post(f"{base}/register-env", json=asked)).json()["env_id"])


async def test_environments_of_atropos_are_held_back_and_lose_nothing(client: httpx.AsyncClient) -> None:
    """They repeat no refused group. So the run leaves them no part of a batch, and takes what they had begun."""
    base = "/runs/run/atropos"
    await make_run(client, batch_size=2)
    joined = await joined_by_atropos(client, base, "math")
    await change_run(client, intake_paused=True, serving_paused=True)
    pace = (await client.get(f"{base}/status-env", params={"env_id": joined})).json()
    assert (pace["queue_size"], pace["unallocated_fraction"], pace["self_queue_size"]) == (0, -1.0, 1_000_000_000)
    sent = await client.post(f"{base}/scored_data", json=atropos.group(2, 1))
    assert sent.json() == {"status": "received"}
    reply = await taken_by_atropos(client, base)
    assert reply.json() == {"batch": None}
    assert reply.headers["lachesis-waiting"].startswith("serving_paused")
    await change_run(client, intake_paused=False, serving_paused=False)
    assert len((await taken_by_atropos(client, base)).json()["batch"]) == 1


async def test_no_environment_starts_groups_for_an_archived_run(client: httpx.AsyncClient) -> None:
    """The run would refuse them, and their rollouts would be lost."""
    base = "/runs/run/atropos"
    await make_run(client, batch_size=2)
    joined = await joined_by_atropos(client, base, "code")
    settings = Settings(url=str(client.base_url), run="run")
    async with AsyncEnvironment("math", settings) as environment:
        await change_run(client, archived=True)
        granted = await environment.credits()
        assert (granted.credits_groups, granted.reason) == (0, "the run is archived, so no group may start")
        with pytest.raises(NoPermit, match="archived"):
            async with environment.permit(wait_s=1):
                raise AssertionError
        pace = (await client.get(f"{base}/status-env", params={"env_id": joined})).json()
        assert (pace["unallocated_fraction"], pace["self_queue_size"]) == (-1.0, 1_000_000_000)
        await change_run(client, archived=False)
        async with environment.permit(wait_s=10):
            pass


async def taken_by_atropos(client: httpx.AsyncClient, base: str) -> httpx.Response:
    reply = await client.get(f"{base}/batch")
    assert reply.status_code == 200
    return reply
