"""What readers find of a history."""

from collections.abc import Callable
from functools import partial
from typing import Any

from redis.asyncio import Redis

from app.api.deps import Services
from app.core.history.resolution import AskedRange
from app.core.history.series import MOST_CHARTED_ENVIRONMENTS, MOST_NAME, OTHERS, Facts, HistorySpan
from app.core.history.wanted import COUNTS, SKETCHES, WantedHistory
from app.services.batches.request import BatchRequest
from app.services.stores import Stores
from app.store.history.codec import encode_span
from app.store.redis.keys import RunKeys
from lachesis.wire.filters import ZeroVarianceFilter
from lachesis.wire.history import EnvironmentSeries, RunSeries
from tests.core.views import TTL_MS
from tests.services.conftest import RUN, Process, join
from tests.services.history.history_runs import group, make_run, sampler_of


async def groups_in(services: Services, environment: str, from_s: int, to_s: int) -> list[float | None]:
    """Return the groups of the only environment that is found."""
    wanted = WantedHistory((), ("groups_in",), environment)
    found = await services.history.reading.series(RUN, AskedRange(from_s, to_s), wanted)
    (series,) = found.environments.values()
    groups: list[float | None] = series["groups_in"]
    return groups


async def test_the_first_span_of_an_hour_is_there(process: Callable[..., Process], redis_client: Redis) -> None:
    """What is older was added up, and dropped, a moment before."""
    services, _ = process()
    await make_run(services)
    now_s = (await redis_client.time())[0]
    text = encode_span(HistorySpan(environments={"math": Facts({"groups_in": 1})}))
    for ago_s in (4000, 3606):
        await redis_client.xadd(RunKeys(RUN).series(10), {"facts": text}, f"{(now_s - ago_s) * 1000}-0")
    await services.history.writer.write(RUN, maintained=True)
    assert await redis_client.xlen(RunKeys(RUN).series(60)) == 2
    assert (await groups_in(services, "math", now_s - 3606, now_s))[0] == 1


async def test_environments_whose_long_names_begin_alike_count_together(process: Callable[..., Process]) -> None:
    """Their history is found under each of these names."""
    services, _ = process()
    await make_run(services)
    names = ["n" * 250 + letter for letter in "ab"]
    for name in names:
        own = (await join(services, name)).environment
        await services.groups.native.submit(RUN, [group(f"{name[-1]}{n}", own, 0.0, 1.0) for n in range(2)])
        await services.groups.deletion.delete(RUN, f"{name[-1]}0")
    _, growth = await sampler_of(services, Stores.on(services.connection, TTL_MS)).sample(RUN, replay=False)
    assert growth.now[names[0][:MOST_NAME]] == {"dropped:deleted": 2}
    await services.history.writer.write(RUN, maintained=False)
    (now_s, _) = await services.connection.call("TIME")
    for name in names:
        groups = await groups_in(services, name, int(now_s) - 600, int(now_s) + 1)
        assert sum(count for count in groups if count is not None) == 4


async def test_one_series_is_the_same_as_among_all(process: Callable[..., Process]) -> None:
    services, _ = process()
    math = await make_run(services, filter_zero_variance=ZeroVarianceFilter())
    same = group("same", math, 1.0, 1.0)
    await services.groups.native.submit(RUN, [same, *[group(f"{n}", math, 0.0, 1.0) for n in range(3)]])
    assert (await services.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch is not None
    await services.history.writer.write(RUN, maintained=True)
    (now_s, _) = await services.connection.call("TIME")
    asked = AskedRange(int(now_s) - 600, int(now_s))
    read = partial(services.history.reading.series, RUN, asked)
    whole = await read()
    assert {name for name, series in whole.environments["math"].items() if is_known(series)} >= {
        *COUNTS, *SKETCHES, "queued_groups", "dropped", "share_promised", "share_got", "owed_sequences"
    }  # fmt: skip
    for name in EnvironmentSeries.model_fields:
        expected = {environment: {name: series[name]} for environment, series in whole.environments.items()}
        assert (await read(WantedHistory((), (name,)))).environments == expected
    for name in RunSeries.model_fields:
        assert (await read(WantedHistory((name,), ()))).run == {name: whole.run[name]}


def is_known(series: Any) -> bool:
    """Return whether a series, or one of several, has a value."""
    if isinstance(series, dict):
        return any(map(is_known, series.values()))
    return any(value is not None for value in series)


async def test_processes_name_the_same_environments_whichever_sends_first(process: Callable[..., Process]) -> None:
    """The first to register have series of their own, as groups come in and as they go out."""
    (one, _), (two, _) = process(), process()
    joined = {"math": await make_run(one)}
    for n in range(MOST_CHARTED_ENVIRONMENTS + 1):
        joined[f"e{n}"] = (await join(one, f"e{n}")).environment
    for name, environment in reversed(joined.items()):
        await one.groups.native.submit(RUN, [group(name, environment, 0.0, 1.0)])
    assert (await two.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch is not None
    await one.history.writer.write(RUN, maintained=True)
    await two.history.writer.write(RUN, maintained=False)
    (now_s, _) = await one.connection.call("TIME")
    _, found = await one.history.reading.shares(RUN, "groups", AskedRange(int(now_s) - 600, int(now_s) + 1))
    first = list(joined)[:MOST_CHARTED_ENVIRONMENTS]
    assert {share.name: share.generated for share in found.environments} == {OTHERS: 2, **dict.fromkeys(first, 1)}
    assert {share.name: share.trained for share in found.environments if share.trained} == {OTHERS: 1, "math": 1}
