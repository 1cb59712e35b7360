"""The status says how fast batches follow each other, for how long there is none, and what arrives."""

from typing import Any

import httpx

from app.core.batches.pace import MOST_BATCHES
from tests.scenarios.native_calls import (
    RUN,
    end,
    group,
    lease_runs_out,
    make_run,
    status,
    submit,
    take,
    taken,
    trained,
)
from tests.waiting import wait_until


async def pace(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(f"{RUN}/status")).json()["pace"]
    return found


async def test_blocked_lasts_from_the_end_of_a_batch_to_the_next(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    first = await pace(client)
    assert first["blocked_s"] >= 0
    unknown = ("last_batch_age_s", "batch_interval_s", "trainer_idle_share", "waiting_age_s")
    assert [first[name] for name in unknown] == [None] * 4
    await submit(client, "a")
    assert (await pace(client))["blocked_s"] is None, "a batch is ready"
    batch = await taken(client)
    assert (await pace(client))["blocked_s"] is None, "the trainer has a batch"
    await client.post(f"{RUN}/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})
    ended = await pace(client)
    assert 0 <= ended["blocked_s"] <= ended["last_batch_age_s"]
    await submit(client, "b")
    await trained(client)
    second = await pace(client)
    assert second["batch_interval_s"] >= 0
    assert 0 <= second["trainer_idle_share"] <= 1
    assert second["last_batch_age_s"] <= (await client.get(f"{RUN}/batches/explain")).json()["last_batch_age_s"]


async def test_the_status_says_when_a_trainer_last_waited(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, "a")
    await trained(client)
    assert (await pace(client))["waiting_age_s"] is None, "it got a batch at once"
    assert await take(client) is None
    found = await pace(client)
    assert 0 <= found["waiting_age_s"] <= found["blocked_s"]


async def test_no_trainer_is_idle_while_one_holds_a_batch_and_many_others_come(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, *(f"g{number}" for number in range(MOST_BATCHES + 4)))
    held = await taken(client)
    for _ in range(MOST_BATCHES + 3):
        await trained(client)
    assert (await pace(client))["trainer_idle_share"] == 0
    await end(client, held)
    assert (await pace(client))["trainer_idle_share"] > 0


async def test_the_status_says_when_leases_expire(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2, lease_s=1)
    await submit(client, "a", "b")
    batch, other = await taken(client), await taken(client, lease_s=600)

    async def left() -> list[float]:
        return [lease["expires_s"] for lease in (await status(client))["leases"]]

    first, second = await left()
    assert 0 <= first <= 1 < second <= 600
    await lease_runs_out(client, batch)
    assert (await left())[0] == 0
    await end(client, other, "nack")
    assert len(await left()) == 1


async def test_arrival_rates_are_those_of_the_explanation(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=1000)
    await client.post(f"{RUN}/environments", json={"name": "math"})
    sent = iter(range(10_000))

    async def is_known() -> bool:
        await submit(client, group(f"g{next(sent)}", environment=0))
        return (await pace(client))["arriving_sequences_per_s"] is not None

    await wait_until(is_known)
    status = (await client.get(f"{RUN}/status")).json()
    (environment,) = status["environments"]
    assert environment["sequences_per_s"] == status["pace"]["arriving_sequences_per_s"] > 0
    listed = (await client.get(f"{RUN}/environments")).json()["environments"]
    assert listed[0]["sequences_per_s"] is not None
