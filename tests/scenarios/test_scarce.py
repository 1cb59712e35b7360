"""A live environment that sends nothing: batches wait for it as long as the run says, and an alert names it."""

from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from tests.api.test_metrics import scrape
from tests.scenarios.native_calls import (
    RUN,
    end,
    group,
    ids,
    make_run,
    status,
    submit,
    take,
    taken,
)
from tests.scenarios.test_credits import explained, groups_for, join
from tests.waiting import wait_until

PATIENCE_S = 0.2


async def two(client: httpx.AsyncClient, **settings: Any) -> None:
    """Environment 0 is promised half of a batch of 8, environment 1 has the rest."""
    await make_run(client, batch_size=8, **settings)
    await join(client, "silent", 2, min_share=0.5)
    await join(client, "busy", 2)


def busy(*names: str) -> list[dict[str, Any]]:
    return [group(name, environment=1) for name in names]


async def owed(client: httpx.AsyncClient) -> int:
    return int((await status(client))["environments"][0]["owed_sequences"])


async def a_minute_passes(client: httpx.AsyncClient, redis: Redis) -> None:
    await redis.hincrby(RunKeys("run").run, "clock_ms", 60_000)
    for environment in (0, 1):
        beat = await client.post(f"{RUN}/environments/{environment}/heartbeat", json={"member": "one"})
        assert beat.status_code == 200, beat.text


async def test_batches_wait_for_a_scarce_environment_and_an_alert_names_it(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    await two(client)
    await submit(client, *busy(*"abcd"))
    assert await take(client) is None
    why = await explained(client)
    assert (why["reason"], why["missing_by_environment"]) == ("minimum_short", {"0": 4})
    assert (why["relaxes_s"], why["alert"]) == (None, None)
    await a_minute_passes(client, redis_client)
    assert await take(client) is None
    alert = (await status(client))["alert"]
    assert (alert["environments"], alert["sequences"], alert["dropped"]) == ([0], 0, {})
    assert alert["started_age_s"] >= 60
    assert "environment 0 (silent)" in alert["detail"]
    assert "relax_scarce_after_s" in alert["detail"]
    assert (await explained(client))["alert"]["environments"] == [0]
    assert (await scrape(client)).value("lachesis_scarce_seconds", run="run", environment="silent") >= 60

    await submit(client, *(group(name, environment=0) for name in "xy"))
    assert (await status(client))["alert"] is None
    batch = await taken(client)
    assert (ids(batch), batch["relaxed"]) == (["a", "b", "x", "y"], False)


async def test_after_a_while_its_minimum_is_relaxed_openly_and_owed(client: httpx.AsyncClient) -> None:
    await two(client, relax_scarce_after_s=PATIENCE_S)
    await submit(client, *busy(*"abcdefgh"), group("x", environment=0))
    assert await take(client) is None
    why = await explained(client)
    assert 0 < why["relaxes_s"] <= PATIENCE_S
    assert "environment 0 (silent)" in why["detail"]
    batch = await taken(client, wait_s=30)
    assert (ids(batch), batch["relaxed"]) == (["a", "b", "c", "x"], True), "what it has is in the batch"
    assert await owed(client) == 2
    await end(client, batch)
    batch = await taken(client)
    assert (ids(batch), batch["relaxed"]) == (["d", "e", "f", "g"], True), "no batch waits again"
    assert await owed(client) == 6
    assert (await status(client))["alert"]["environments"] == [0]
    assert (await status(client))["relaxed_batches"] == 2
    await end(client, batch)

    await submit(client, *busy(*"ijkl"), *(group(name, environment=0) for name in "yz"))
    batch = await taken(client)
    assert (ids(batch), batch["relaxed"]) == (["h", "i", "y", "z"], False)
    assert (await status(client))["alert"] is None


async def test_others_keep_their_minimums(client: httpx.AsyncClient) -> None:
    await two(client, relax_scarce_after_s=PATIENCE_S)
    await join(client, "slow", 2, min_share=0.25)
    await submit(client, *busy(*"abcd"))
    assert await take(client) is None
    await submit(client, group("s", environment=2))
    assert ids(await taken(client, wait_s=30)) == ["a", "b", "c", "s"]


@pytest.mark.parametrize("staleness", [0, 2])
async def test_credits_let_others_make_what_it_does_not(client: httpx.AsyncClient, staleness: int) -> None:
    """With strict staleness others have made their part alone by then."""
    await two(client, relax_scarce_after_s=PATIENCE_S, max_staleness=staleness)
    made = 0

    async def a_batch_comes() -> bool:
        nonlocal made
        for _ in range(await groups_for(client, 1)):
            made += 1
            await submit(client, group(f"g{made}", environment=1, policy_version=0))
        batch = await take(client)
        return batch is not None and batch["relaxed"]

    await wait_until(a_batch_comes)
    assert await groups_for(client, 0) > 0, "it may come back"
    assert made <= 4 * (staleness + 1)


async def test_groups_above_max_share_take_no_credits(
    client: httpx.AsyncClient,
) -> None:
    """Its groups of 3 fit no batch, though 3 + 3 + 2 are 8."""
    await make_run(client, batch_size=8, max_staleness=0, relax_scarce_after_s=0)
    await join(client, "silent", 2, min_share=0.25, max_share=0.25)
    await join(client, "busy", 2)
    await submit(client, *(group(name, 3, environment=0) for name in "xy"), *busy(*"abc"))
    assert await take(client) is None
    assert await groups_for(client, 1) == 1
    await submit(client, *busy("d"))
    assert ids(await taken(client)) == [*"abcd"]


async def test_an_environment_that_leaves_is_not_waited_for(client: httpx.AsyncClient) -> None:
    await two(client, relax_scarce_after_s=0)
    assert await take(client) is None
    assert (await status(client))["alert"] is None, "the other one has sent nothing either"
    await submit(client, *busy(*"abcd"))
    assert (await client.delete(f"{RUN}/environments/0")).status_code in (200, 204)
    batch = await taken(client)
    assert (ids(batch), batch["relaxed"]) == (list("abcd"), False)
    assert (await status(client))["alert"] is None


@pytest.mark.parametrize("value", [-1, "soon", 1e12])
async def test_a_wait_that_cannot_be_meant_is_refused_with_its_place(client: httpx.AsyncClient, value: object) -> None:
    await make_run(client)
    refused = await client.patch(RUN, json={"relax_scarce_after_s": value})
    assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, ["relax_scarce_after_s"])
    assert (await client.get(RUN)).json()["relax_scarce_after_s"] is None
