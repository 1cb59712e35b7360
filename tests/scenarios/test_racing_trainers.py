"""Many trainers race for few batches over two API processes: each batch has exactly one holder."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.service import Service
from tests.scenarios.native_calls import Batch, end, ids, make_run, status, submit, take, taken

pytestmark = pytest.mark.long

TRAINERS, BATCHES = 24, 8


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path, workers=2)
    yield started
    started.stop()


async def test_each_batch_has_exactly_one_holder(service: Service) -> None:
    groups = [f"g{number:02}" for number in range(2 * BATCHES)]
    async with httpx.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as owner:
        await make_run(owner)
        waiting = [asyncio.create_task(race(service.url)) for _ in range(TRAINERS)]
        for first, second in zip(groups[::2], groups[1::2], strict=True):
            await submit(owner, first, second)
        outcomes = await asyncio.gather(*waiting)
        held = [batch for batch in outcomes if batch is not None]
        assert len(held) == BATCHES
        assert sorted(one for batch in held for one in ids(batch)) == groups
        assert sorted(batch["step"] for batch in held) == list(range(1, BATCHES + 1))
        assert {batch["delivery_count"] for batch in held} == {1}

        replies = await asyncio.gather(*(end(owner, batch) for batch in held for _ in range(2)))
        assert {reply.status_code for reply in replies} == {200}, "an answer that was lost is asked for again"
        counts = (await status(owner))["groups"]
        assert (counts["delivered"], counts["queued"], counts["leased"]) == (2 * BATCHES, 0, 0)


async def race(url: str) -> Batch | None:
    """One trainer, on a connection of its own."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as trainer:
        return await take(trainer, wait_s=3)


async def test_a_batch_ends_in_one_way_only(service: Service) -> None:
    """The groups are delivered or queued, never both."""
    async with httpx.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
        await make_run(client, batch_size=2)
        for number in range(10):
            await submit(client, f"g{number}")
            batch = await taken(client)
            ways = ("ack", "nack") * 4
            replies = await asyncio.gather(*(end(client, batch, how) for how in ways))
            winners = {how for how, reply in zip(ways, replies, strict=True) if reply.status_code == 200}
            assert len(winners) == 1, "all who want the same succeed, all others are refused"
            assert {reply.json()["code"] for reply in replies if reply.status_code != 200} == {"lease_lost"}
            if winners == {"nack"}:
                again = await taken(client)
                assert ids(again) == [f"g{number}"]
                assert (await end(client, again)).status_code == 200
        assert (await status(client))["groups"]["delivered"] == 10
