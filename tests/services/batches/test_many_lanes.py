"""A take reads the lanes that it may take groups from, however many others there are."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.batches.leases import Lease
from app.core.runs.settings import Policy
from app.services.batches import formation, retrieval
from app.services.batches.request import BatchRequest
from app.services.batches.retrieval import Retrieval
from app.store.groups.store import GroupStore
from app.store.redis.keys import RunKeys
from app.store.runs.store import RunStore
from tests.core.views import TTL_MS
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded, join

KEYS = RunKeys(RUN)
BATCH_SIZE = 8


@pytest.fixture
async def services(process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch) -> Services:
    """A run whose lanes count as many if there are four."""
    monkeypatch.setattr(retrieval, "MANY_LANES", 4)
    found, _ = process()
    await found.runs.administration.create(RUN, config(BATCH_SIZE), Policy())
    return found


async def send(services: Services, *environments: int, first: int = 0) -> None:
    """Submit a group of two for each of these environments, in this order, named by number."""
    named = [encoded(2, 0, one)._replace(given_id=f"g{n}") for n, one in enumerate(environments, first)]
    await services.groups.native.submit(RUN, named)


async def take(services: Services) -> tuple[Lease, list[str | None]]:
    """Take a batch, and return the names of its groups."""
    batch = (await services.batches.dispatch.take(RUN, BatchRequest())).batch
    assert batch is not None
    return batch.lease, [group.given_id for group in batch.groups]


@pytest.mark.parametrize("others", [4, 40])
async def test_a_take_reads_as_many_lanes_as_groups_fit(services: Services, redis_client: Redis, others: int) -> None:
    """And those of an environment with a share limit."""
    for number in range(others + 5):
        await join(services, f"env{number}", min_share=0.25 if number == 0 else None)
    await send(services, *range(1, others + 5), 0)
    await take(services)  # the first one counts arrivals
    await send(services, 0, first=others + 5)
    await redis_client.config_resetstat()
    _, names = await take(services)
    assert names == ["g3", "g4", "g5", f"g{others + 5}"]
    reads = (await redis_client.info("commandstats"))["cmdstat_zrange"]["calls"]
    assert reads == 1 + 5 + 4 + 1, "the order, heads, heads of what is left of lanes, API processes"


@pytest.mark.parametrize(
    ("min_share", "orders"), [(None, 2), (0.01, 1)], ids=["the oldest lanes are too few", "all lanes matter"]
)
async def test_the_whole_order_of_lanes_is_read_only_if_its_beginning_is_too_short(
    services: Services, redis_client: Redis, min_share: float | None, orders: int
) -> None:
    for number in range(2 * BATCH_SIZE + 2):
        await join(services, f"env{number}", min_share=min_share)
    await send(services, *range(2 * BATCH_SIZE + 1))
    youngest = 2 * BATCH_SIZE + 1  # the only one of its size, behind all lanes that are read first
    await services.groups.native.submit(RUN, [encoded(1, 0, youngest)._replace(given_id="youngest")])
    view = await RunStore(services.connection, TTL_MS).queue(RUN)
    await redis_client.config_resetstat()
    lanes = await Retrieval(GroupStore(services.connection)).lanes(RUN, view)
    reads = (await redis_client.info("commandstats"))["cmdstat_zrange"]["calls"]
    assert reads == orders + len(lanes)
    assert (youngest, 1) in {(lane.environment, lane.size) for lane in lanes}


@pytest.mark.parametrize("many", [4, 5])
async def test_decisions_about_many_groups_are_made_in_a_thread(
    services: Services, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """On the event loop they would hold up all other requests."""
    threads = []

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def watch(*args: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*args)

        return watch

    for module, name in ((formation, "decide"), (retrieval, "_undeliverable")):
        monkeypatch.setattr(module, "MANY_GROUPS", many)
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    await join(services, "env0")
    await send(services, *[0] * 4)
    assert (await services.batches.diagnostics.of(RUN)).not_ready is None
    await take(services)
    assert [thread is threading.main_thread() for thread in threads] == [many > 4] * 4


async def test_groups_that_come_back_are_the_oldest_again(services: Services, redis_client: Redis) -> None:
    for number in range(8):
        await join(services, f"env{number}")
    await send(services, *range(8), 0, 1, 2)
    lease, names = await take(services)
    assert names == ["g0", "g1", "g2", "g3"]
    await services.runs.administration.change(RUN, {"batch_size": 4})
    await services.batches.leases.give_back(RUN, lease.batch_id, lease.lease_id, None)
    await books_of(redis_client, RUN)
    assert [(await take(services))[1] for _ in range(5)] == [[f"g{n}", f"g{n + 1}"] for n in range(0, 10, 2)]
    await books_of(redis_client, RUN)
    assert await redis_client.zrange(KEYS.lane_heads, 0, -1) == [b"2:2"]


async def test_a_lane_that_loses_its_groups_while_it_is_chosen_hides_no_other(
    services: Services, redis_client: Redis
) -> None:
    for number in range(6):
        await join(services, f"env{number}")
    await send(services, *range(6))
    (oldest,) = await redis_client.zrange(KEYS.lane("0:2"), 0, -1)
    await redis_client.zrem(KEYS.lane("0:2"), oldest)  # as a take finds it that has read the order just before
    _, names = await take(services)
    assert names == ["g1", "g2", "g3", "g4"]
