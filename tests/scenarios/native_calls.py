"""Requests of native clients."""

import re
from collections.abc import Sequence
from typing import Any

import httpx

from tests.waiting import wait_until

RUN = "/v1/runs/run"
Batch = dict[str, Any]


def group(group_id: str, size: int = 2, **keys: Any) -> dict[str, Any]:
    """A group of ``size`` short sequences."""
    return {
        "id": group_id,
        "tokens": [[n, 7] for n in range(size)],
        "masks": [[-100, 7] for _ in range(size)],
        "scores": [float(n) for n in range(size)],
        **keys,
    }


async def make_run(client: httpx.AsyncClient, batch_size: int = 4, name: str = "run", **settings: Any) -> None:
    reply = await client.post("/v1/runs", json={"name": name, "batch_size": batch_size, **settings})
    assert reply.status_code == 201, reply.text


async def change_run(client: httpx.AsyncClient, **settings: Any) -> None:
    reply = await client.patch(RUN, json=settings)
    assert reply.status_code == 200, reply.text


async def join(client: httpx.AsyncClient, name: str, run: str = RUN, **settings: Any) -> int:
    """Register an environment, or a member of one. Return the number of the environment."""
    reply = await client.post(f"{run}/environments", json={"name": name, **settings})
    assert reply.status_code in (200, 201), reply.text
    return int(reply.json()["id"])


async def join_many(client: httpx.AsyncClient, names: Sequence[str], run: str = RUN) -> None:
    """Register many environments. One address may have 20 join at once, and further ones wait: here each has 20."""
    for sender, own in enumerate(names[first : first + 20] for first in range(0, len(names), 20)):
        transport = httpx.AsyncHTTPTransport(local_address=f"127.0.0.{10 + sender}")
        async with httpx.AsyncClient(base_url=client.base_url, transport=transport) as from_another_address:
            for name in own:
                await join(from_another_address, name, run)


async def submit(client: httpx.AsyncClient, *groups: dict[str, Any] | str, run: str = RUN) -> list[str]:
    """Submit groups, or groups of two with these ids. Return the outcome of each."""
    body = {"groups": [group(one) if isinstance(one, str) else one for one in groups]}
    reply = await client.post(f"{run}/groups", json=body)
    assert reply.status_code == 201, reply.text
    return [receipt["status"] for receipt in reply.json()["groups"]]


async def take(client: httpx.AsyncClient, wait_s: float = 0, run: str = RUN, **asked: Any) -> Batch | None:
    reply = await client.post(f"{run}/batches", params={"wait_s": wait_s}, json=asked)
    assert reply.status_code in (201, 204), reply.text
    return reply.json() if reply.status_code == 201 else None


async def taken(client: httpx.AsyncClient, wait_s: float = 0, run: str = RUN, **asked: Any) -> Batch:
    """Take a batch that must be there."""
    batch = await take(client, wait_s, run, **asked)
    assert batch is not None
    return batch


async def end(client: httpx.AsyncClient, batch: Batch, how: str = "ack", run: str = RUN, **said: Any) -> httpx.Response:
    """Acknowledge a batch, or give it back (``nack``), under the lease it came with."""
    return await client.post(f"{run}/batches/{batch['batch']}/{how}", json={"lease": batch["lease"], **said})


async def trained(client: httpx.AsyncClient, run: str = RUN) -> Batch:
    """Take a batch and acknowledge it."""
    batch = await taken(client, run=run)
    reply = await end(client, batch, run=run)
    assert reply.status_code == 200, reply.text
    return batch


async def set_version(client: httpx.AsyncClient, version: int) -> int:
    """Set the policy version; return how many groups it dropped."""
    reply = await client.put(f"{RUN}/policy-version", json={"policy_version": version})
    assert reply.status_code == 200, reply.text
    return int(reply.json()["dropped_groups"])


async def leased_batches(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """List the batches that were taken and have not ended."""
    found: list[dict[str, Any]] = (await client.get(f"{RUN}/batches")).json()["batches"]
    return found


async def status(client: httpx.AsyncClient, run: str = RUN) -> dict[str, Any]:
    reply = await client.get(f"{run}/status")
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def trainers_wait(client: httpx.AsyncClient, at_least: int) -> None:
    """Wait until so many requests wait for a batch."""

    async def they_do() -> bool:
        page = (await client.get("/metrics")).text
        (waiting,) = re.findall(r"^lachesis_long_polls_waiting.* (\S+)$", page, re.M)
        return float(waiting) >= at_least

    await wait_until(they_do)


async def lease_runs_out(client: httpx.AsyncClient, batch: Batch) -> None:
    """Wait until a batch's lease has run out."""

    async def ran_out() -> bool:
        (left,) = [held["expires_s"] for held in await leased_batches(client) if held["batch"] == batch["batch"]]
        return bool(left == 0)

    await wait_until(ran_out)


def ids(batch: Batch) -> list[str]:
    return [one["id"] for one in batch["groups"]]


def content(batch: Batch) -> list[dict[str, Any]]:
    """Return the groups of a batch without their ages."""
    return [
        {name: value for name, value in one.items() if name not in ("received_age_s", "staleness")}
        for one in batch["groups"]
    ]
