"""A wrong clock of Redis costs a history little."""

from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from app.api.deps import Services
from app.core.history.resolution import DAY_S, KEPT, AskedRange
from app.core.history.series import Facts, HistorySpan
from app.services.history.recorder import HistoryRecorder
from app.services.history.writer import HistoryWriter
from app.services.stores import Stores
from app.store.history.codec import encode_span
from app.store.history.store import HistoryStore
from app.store.redis.keys import RunKeys
from tests.core.views import TTL_MS
from tests.services.conftest import RUN, Process
from tests.services.history.history_runs import make_run, sampler_of

KEYS = RunKeys(RUN)


def span_of(groups: int) -> HistorySpan:
    return HistorySpan(environments={"math": Facts({"groups_in": groups})})


async def add(redis: Redis, ago_s: int, groups: int = 1) -> None:
    """Add an entry to each stream of the history, as if its span had begun some time ago."""
    now_s, _ = await redis.time()
    for step_s in (one.step_s for one in KEPT):
        begin_s = (now_s - ago_s) // step_s * step_s
        await redis.xadd(KEYS.series(step_s), {"facts": encode_span(span_of(groups))}, f"{begin_s * 1000}-0")


async def entries_after(histories: HistoryStore, ago_s: int) -> list[int]:
    """Count the entries of each stream after a time."""
    from_s = int(await histories.now_s()) - ago_s
    return [len(await histories.spans(RUN, one, from_s, 1e12)) for one in KEPT]


def keeper(services: Services, stores: Stores) -> Callable[[float], Awaitable[None]]:
    """Return what lets a process that maintains the run write its history at a time of the process."""
    clock_s = 0.0
    sampler = sampler_of(services, stores)
    writer = HistoryWriter(stores.histories, HistoryRecorder(), sampler, clock=lambda: clock_s)

    async def keep_at(time_s: float) -> None:
        nonlocal clock_s
        clock_s = time_s
        await writer.write(RUN, maintained=True)

    return keep_at


async def test_a_clock_that_was_ahead_hides_new_spans_for_minutes_only(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    stores = Stores.on(services.connection, TTL_MS)
    histories, keep_at = stores.histories, keeper(services, stores)
    await make_run(services)
    await add(redis_client, DAY_S, groups=3)
    await add(redis_client, -DAY_S)
    for time_s in (0, 599):
        await keep_at(time_s)
        assert all(await entries_after(histories, 0)), "the clock may be behind now, and soon right again"
    await keep_at(600)
    assert await entries_after(histories, 0) == [0, 0, 0, 0]
    assert await entries_after(histories, 2 * DAY_S) == [1, 1, 1, 1], "what came before goes on"

    await histories.append(RUN, span_of(2))
    now_s = await histories.now_s()
    found = await services.history.reading.series(RUN, AskedRange(now_s - 600, now_s + 1))
    assert [groups for groups in found.environments["math"]["groups_in"] if groups is not None] == [2]
    assert await histories.merge(RUN, KEPT[0], KEPT[1], int(now_s) // 60 * 60, span_of(2), now_s)


async def test_a_clock_that_is_behind_for_minutes_drops_nothing(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """It is behind twice, and right in between."""
    services, _ = process()
    stores = Stores.on(services.connection, TTL_MS)
    keep_at = keeper(services, stores)
    await make_run(services)
    await add(redis_client, -DAY_S)
    await keep_at(0)
    await redis_client.delete(*(KEYS.series(one.step_s) for one in KEPT))
    await keep_at(500)
    await add(redis_client, -DAY_S)
    await keep_at(1000)
    assert all(await entries_after(stores.histories, 0))
