"""A run with leases or a replay buffer sleeps until these need work, after nothing has happened in it for a while."""

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest
from app.store.redis.keys import RUNS, SERVICE, RunKeys
from app.store.runs.processes import ProcessStore
from tests.services.conftest import RUN, Process, config, encoded
from tests.services.replay.moves import Buffer
from tests.waiting import wait_until

KEYS = RunKeys(RUN)
LEASE_S, LONGEST_MS = 600.0, 1_800_000
Step = Callable[[Buffer], Awaitable[object]]


@pytest.fixture
async def buffer(process: Callable[..., Process], redis_client: Redis) -> Buffer:
    """A run without a replay buffer yet."""
    started = process()
    await started[0].runs.administration.create(RUN, config(2), Policy(lease_s=LEASE_S, max_deliveries=1))
    return Buffer(started, redis_client)


async def rest(buffer: Buffer) -> tuple[int, int]:
    """Maintain the run until it sleeps. Return the run clock then, and for how long it will sleep, milliseconds."""

    async def asleep() -> bool:
        await buffer.process[1].maintain(RUN)
        return bool(await buffer.redis.hexists(KEYS.run, "asleep_ms"))  # type: ignore[misc]

    await wait_until(asleep)
    clock_ms, asleep_ms = await buffer.redis.hmget(KEYS.run, ["clock_ms", "asleep_ms"])  # type: ignore[misc]
    return int(clock_ms), int(await buffer.redis.zscore(RUNS, RUN) or 0) - int(asleep_ms)


async def wake_after(buffer: Buffer, ms: int) -> None:
    """Let time pass in which the service is served. The run must be due then, and is maintained."""
    await buffer.redis.hincrby(SERVICE, "clock_ms", ms)  # type: ignore[misc]
    maintained = await ProcessStore(buffer.process[0].connection).beat("host/1/other")
    assert maintained is not None
    assert maintained.due == [RUN]
    await buffer.process[1].maintain(RUN)


async def take_batch(buffer: Buffer) -> None:
    services, _ = buffer.process
    await services.groups.native.submit(RUN, [encoded(2, 0)._replace(given_id="g")])
    assert (await services.batches.dispatch.take(RUN, BatchRequest())).batch is not None


async def test_a_run_sleeps_until_its_lease_ends(buffer: Buffer) -> None:
    await take_batch(buffer)
    (lease,) = (await buffer.process[0].runs.atropos.view(RUN)).leases
    clock_ms, slept_ms = await rest(buffer)
    assert clock_ms + slept_ms == lease.deadline_ms
    await wake_after(buffer, slept_ms)
    (lease,) = (await buffer.process[0].runs.atropos.view(RUN)).leases
    assert lease.state == "quarantined"
    assert (await rest(buffer))[1] == LONGEST_MS, "nothing more happens to it by itself"


async def _sample(buffer: Buffer) -> None:
    await buffer.put(0)
    await buffer.take(1)


async def _gap(buffer: Buffer) -> None:
    await buffer.configure(fragments_per_chunk=2)
    await buffer.put(1)


IN_BUFFER: dict[str, tuple[dict[str, object], Step, float, tuple[str, int]]] = {
    "a sample ends": ({}, _sample, LEASE_S, ("expired_samples", 1)),
    "a chunk is too old": ({"max_age_s": 300}, lambda buffer: buffer.put(0), 300, ("retired:expired", 1)),
    "a gap is given up": ({"reorder_window_s": 200}, _gap, 200, ("gaps", 1)),
}


@pytest.mark.parametrize(("settings", "step", "after_s", "total"), IN_BUFFER.values(), ids=IN_BUFFER)
async def test_a_run_sleeps_until_its_buffer_needs_work(
    buffer: Buffer, settings: dict[str, object], step: Step, after_s: float, total: tuple[str, int]
) -> None:
    await buffer.configure(**settings)
    began_ms = (await buffer.process[0].runs.atropos.view(RUN)).clock_ms
    await step(buffer)
    happened_ms = (await buffer.process[0].runs.atropos.view(RUN)).clock_ms
    clock_ms, slept_ms = await rest(buffer)
    assert began_ms <= clock_ms + slept_ms - after_s * 1000 <= happened_ms + 1
    await wake_after(buffer, slept_ms)
    name, count = total
    assert (await buffer.books()).total(name) == count


async def test_a_run_with_an_empty_buffer_sleeps_as_long_as_any(buffer: Buffer) -> None:
    await buffer.configure()
    assert (await rest(buffer))[1] == LONGEST_MS


async def test_a_run_stays_awake_for_half_a_minute_after_something_happened(buffer: Buffer) -> None:
    await buffer.configure()
    for step in (lambda: buffer.put(0), lambda: buffer.put(1)):
        await step()
        for _ in range(30):
            await buffer.process[1].maintain(RUN)
        assert not await buffer.redis.hexists(KEYS.run, "asleep_ms")  # type: ignore[misc]
    await rest(buffer)
