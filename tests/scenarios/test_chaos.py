"""Workers, then Redis, then everything is killed -9 under load; no acknowledged group is lost.

`LACHESIS_CHAOS_SEED` says where the clients' choices start (not the timing): `tests/seeds.py`.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.api.atropos_calls import on_the_way, registration
from tests.e2e.processes import kill
from tests.e2e.service import Service
from tests.properties import briefly_and_at_length
from tests.scenarios.chaos_clients import Ledger, Producer, Trainer
from tests.seeds import CHAOS, seed_of
from tests.waiting import wait_until

pytestmark = pytest.mark.long

BATCH_SIZE = 32
WORKERS = 3
SIZES = (4, 8)
MINIMUMS = {"math": 0.25, "code": None, "games": None, "logic": None}
PROGRESS = 25
"""Batches that the trainer must get after each disaster."""
CALLERS = 10


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("LACHESIS_BUFFER_RELEASE_S", "2")
    started = Service(tmp_path, workers=WORKERS)
    yield started
    started.stop()


class Day:
    """Run the clients from ``begin`` to ``end``."""

    def __init__(self, url: str, seed: int) -> None:
        self.ledger = Ledger()
        self._trainer = Trainer(url, self.ledger, seed)
        self._producers = {name: Producer(url, self.ledger, seed + n + 1) for n, name in enumerate(MINIMUMS)}
        self._evening = asyncio.Event()

    async def begin(self) -> None:
        await self._begin_training()
        self._producing = [
            asyncio.create_task(producer.run(name, SIZES, MINIMUMS[name], self._evening))
            for name, producer in self._producers.items()
        ]
        await self._progress()

    async def survive(self, phase: str, disaster: Callable[[], None]) -> None:
        """Let a disaster happen, and wait until the trainer has `PROGRESS` more batches."""
        self.ledger.phase = phase
        self.ledger.excuses += 1
        await asyncio.to_thread(disaster)
        await self._progress()
        self.ledger.phase = "calm"

    async def crash_trainer(self) -> None:
        """End the trainer wherever it is, and start another."""
        self._training.cancel()
        await asyncio.wait({self._training})
        self.ledger.excuses += 1
        await self._begin_training()
        await self._progress()

    async def end(self) -> None:
        """Let calls in flight end, then have everything served that is queued."""
        self._evening.set()
        await asyncio.gather(*self._producing, self._training)
        await wait_until(self._nothing_is_buffered)
        for environment in (await self.status())["environments"]:
            identity = {"env_id": environment["id"]}
            await self._trainer.call("POST", "/disconnect-env", identity.copy)
        for batch_size in (BATCH_SIZE, *sorted(SIZES, reverse=True)):
            await self._trainer.register(batch_size)
            await wait_until(self._is_drained)  # else the next size would break the last batch up

    async def status(self) -> dict[str, Any]:
        answer, _ = await self._trainer.call("GET", "/status")
        found: dict[str, Any] = answer
        return found

    async def _begin_training(self) -> None:
        await self._trainer.register(BATCH_SIZE)
        self._training = asyncio.create_task(self._trainer.run(self._evening))

    async def _progress(self) -> None:
        target = len(self.ledger.served) + PROGRESS

        async def made() -> bool:
            for task in (self._training, *self._producing):
                assert not task.done(), task.exception()
            return len(self.ledger.served) >= target

        await wait_until(made)

    async def _nothing_is_buffered(self) -> bool:
        return (await self.status())["groups"]["buffered"] == 0  # type: ignore[no-any-return]

    async def _is_drained(self) -> bool:
        """Take what is left. A request acknowledges only batches whose replies the service knows to have ended."""
        while await self._trainer.take():
            pass
        return not (await self.status())["leases"]


@briefly_and_at_length("rounds", 1, 4)
async def test_no_acknowledged_group_is_lost_or_served_twice(service: Service, rounds: int) -> None:
    seed = seed_of(CHAOS)
    day = Day(service.url, seed)
    await day.begin()
    for _ in range(rounds):
        for worker in service.worker_pids():
            await day.survive(f"worker {worker} was killed", partial(kill, worker))
        await day.survive("Redis was killed", lambda: kill(service.redis_pid()))
        await day.crash_trainer()
        await day.survive("all were killed", partial(kill_everything_and_restart, service))
    await day.end()

    assert day.ledger.failures.pop("all were killed") > 0
    assert all(phase.startswith("worker") and times == 1 for phase, times in day.ledger.failures.items()), (
        f"one retry when a worker is killed, none when Redis is: {day.ledger.failures}; {day.ledger.reasons}"
    )
    assert day.ledger.faults({BATCH_SIZE, *SIZES}) == []
    groups = (await day.status())["groups"]
    assert groups["queued"] == groups["buffered"] == groups["leased"] == 0
    assert len(day.ledger.acknowledged) <= groups["delivered"] == groups["accepted"] <= day.ledger.attempts


@briefly_and_at_length("hang_ups", 100, 300)
async def test_no_batch_is_lost_at_whatever_moment_its_trainer_hangs_up(service: Service, hang_ups: int) -> None:
    """It may hang up between its close and our write, when the connection still looks sound."""
    seed = seed_of(CHAOS)
    moments, ledger = Random(seed), Ledger()
    trainer, producer = Trainer(service.url, ledger, seed), Producer(service.url, ledger, seed)
    await trainer.register(4)
    for _ in range(hang_ups // 100):
        await producer.send([4] * 100)
    taken = False

    async def noticed() -> bool:
        """Only the batch that was read is on its way."""
        return on_the_way((await trainer.call("GET", "/status"))[0]) <= taken

    for _ in range(hang_ups):
        await trainer.give_up(moments.uniform(0.0005, 0.008))
        await wait_until(noticed)
        taken = await trainer.take()

    async def nothing_is_left() -> bool:
        while await trainer.take():
            pass
        groups = (await trainer.call("GET", "/status"))[0]["groups"]
        return bool(groups["delivered"] == groups["accepted"])

    await wait_until(nothing_is_left)
    assert ledger.faults({4}) == []


@briefly_and_at_length("calls", 50, 250)
async def test_no_order_of_calls_makes_one_of_them_fail(service: Service, calls: int) -> None:
    """At the same time trainers register again, and environments come and go."""
    seed = seed_of(CHAOS)
    ledger = Ledger()
    async with asyncio.TaskGroup() as tasks:
        for n in range(CALLERS):
            tasks.create_task(call_anything(Producer(service.url, ledger, seed + n), Random(seed + n), calls))
    assert not ledger.failures, ledger.reasons
    assert service.worker_pids()


async def call_anything(client: Producer, choices: Random, calls: int) -> None:
    """Make ``calls`` calls of any kind, most of them submissions and requests for batches."""
    for _ in range(calls):
        size, environment = choices.choice((1, 2, 4, 8, 16)), choices.randrange(3)
        identity = {"env_id": environment}
        joining = {"desired_name": f"env{environment}", "group_size": size, "min_batch_allocation": 0.3}
        joining |= {"max_token_length": 512, "weight": 1.0}
        call = choices.choices(
            (
                partial(client.send, [size] * choices.randint(1, 4), choices.choice((None, environment))),
                partial(client.call, "GET", "/batch"),
                partial(client.call, "GET", choices.choice(("/status", "/latest_example"))),
                partial(client.call, "GET", "/status-env", identity.copy),
                partial(client.call, "POST", "/disconnect-env", identity.copy),
                partial(client.call, "POST", "/register-env", joining.copy),
                partial(client.call, "POST", "/register", registration(size).copy),
                partial(client.call, "GET", "/reset_data"),
            ),
            (8, 8, 2, 2, 2, 2, 2, 1),
        )[0]
        await call()


def kill_everything_and_restart(service: Service) -> None:
    service.kill_everything()
    service.start()
