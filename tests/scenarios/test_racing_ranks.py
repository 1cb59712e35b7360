"""Eight ranks race over two API processes while processes, Redis and connections are killed; nothing is lost."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.clients.proxy import CuttingProxy, Direction
from tests.e2e.processes import kill
from tests.e2e.service import Service
from tests.scenarios.native_calls import RUN, Batch, end, ids, make_run, status, submit
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

WORLD, BATCHES, GROUPS_EACH = 8, 40, 12
LEASE_S = 2.0
NAMES = [f"g{number:04}" for number in range(BATCHES * GROUPS_EACH)]
Trained = dict[tuple[str, str], dict[int, list[str]]]
"""By batch and lease: the groups of each rank whose acknowledgement was answered."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path, workers=2)
    yield started
    started.stop()


@pytest.fixture
async def proxy(service: Service) -> AsyncIterator[CuttingProxy]:
    async with CuttingProxy(service.port) as started:
        yield started


async def test_each_group_is_trained_on_once_whatever_is_killed(service: Service, proxy: CuttingProxy) -> None:
    trained: Trained = defaultdict(dict)
    given: Trained = defaultdict(dict)
    async with httpx.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as owner:
        await make_run(owner, batch_size=2 * GROUPS_EACH, max_deliveries=1000)
        await submit(owner, *NAMES)

        async def delivered(at_least: int) -> bool:
            with contextlib.suppress(httpx.TransportError, AssertionError):
                return bool((await status(owner))["groups"]["delivered"] >= at_least)
            return False

        ranks = [asyncio.create_task(Racer(proxy.url, rank, given, trained).run()) for rank in range(WORLD)]
        proxy.keep_cutting(cuts())
        for quarter, disaster in enumerate((service.worker_pids, lambda: [service.redis_pid()], service.worker_pids)):
            await wait_until(lambda: delivered(len(NAMES) * (quarter + 1) // 4), 60)  # noqa: B023
            kill(disaster()[0])
        await wait_until(lambda: delivered(len(NAMES)), 90)
        await wait_until(lambda: all_told(trained))
        assert [task for task in ranks if task.done()] == []
        for task in ranks:
            task.cancel()
        await asyncio.gather(*ranks, return_exceptions=True)
        groups = (await status(owner))["groups"]
    assert (groups["delivered"], groups["queued"], groups["leased"]) == (len(NAMES), 0, 0)
    for shards in given.values():
        had = [name for names in shards.values() for name in names]
        assert len(had) == len(set(had)), "two ranks had the same group at the same time"
    assert sorted(trained_by_all(trained)) == NAMES
    assert proxy.cuts > 0
    assert len(given) > BATCHES, "nothing went wrong"


def trained_by_all(trained: Trained) -> list[str]:
    whole = [shards for shards in trained.values() if len(shards) == WORLD]
    return [name for shards in whole for names in shards.values() for name in names]


async def all_told(trained: Trained) -> bool:
    """Return whether the last answers have arrived."""
    return len(trained_by_all(trained)) >= len(NAMES)


class Racer:
    """A rank that takes, trains and acknowledges, and sometimes returns or forgets its batch."""

    def __init__(self, url: str, rank: int, given: Trained, trained: Trained) -> None:
        self._url = url
        self._rank = rank
        self._given = given
        self._trained = trained
        self._chance = Random(rank)

    async def run(self) -> None:
        while True:
            with contextlib.suppress(httpx.TransportError):
                async with httpx.AsyncClient(base_url=self._url, timeout=5, trust_env=False) as client:
                    await self._work(client)

    async def _work(self, client: httpx.AsyncClient) -> None:
        while True:
            asked = {"rank": self._rank, "world_size": WORLD, "wait_s": 1}
            reply = await client.post(f"{RUN}/batches", params=asked, json={"lease_s": LEASE_S})
            if reply.status_code != 201:
                assert reply.status_code in (204, 503), reply.text
                await asyncio.sleep(0.05)
                continue
            batch: Batch = reply.json()
            key = batch["batch"], batch["lease"]
            assert self._given[key].setdefault(self._rank, ids(batch)) == ids(batch), "a rank's shard changed"
            await asyncio.sleep(self._chance.random() / 50)
            match self._chance.random():
                case luck if luck < 0.01:
                    await end(client, batch, "nack")
                case luck if luck < 0.02:
                    await self._forget(client, batch)
                case luck if luck < 0.05:
                    return  # a rank that starts again between taking and acknowledging
                case _:
                    await self._acknowledge(client, batch)

    async def _forget(self, client: httpx.AsyncClient, batch: Batch) -> None:
        async def ran_out() -> bool:
            reply = await client.get(f"{RUN}/batches")
            held = reply.json()["batches"] if reply.status_code == 200 else [batch | {"expires_s": LEASE_S}]
            own = [one for one in held if all(one[name] == batch[name] for name in ("batch", "delivery_count"))]
            return not any(one["expires_s"] for one in own)

        await wait_until(ran_out)

    async def _acknowledge(self, client: httpx.AsyncClient, batch: Batch) -> None:
        while True:  # until it is answered: a duplicate acknowledgement gets the same answer
            with contextlib.suppress(httpx.TransportError):
                reply = await end(client, batch, rank=self._rank)
                assert reply.status_code in (200, 409, 503), reply.text
                if reply.status_code == 200:
                    self._trained[batch["batch"], batch["lease"]][self._rank] = ids(batch)
                if reply.status_code != 503:
                    return
            await asyncio.sleep(0.05)


def cuts() -> Iterator[tuple[Direction, int]]:
    """Cut a reply now and then: a few requests pass in between."""
    chance = Random(1)
    while True:
        yield "reply", chance.randrange(1, 40_000)
