"""What readings of histories take of memory."""

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from redis.asyncio import Redis

from app.core.history.resolution import AskedRange
from app.core.history.series import MOST_CHARTED_ENVIRONMENTS, Facts, HistorySpan
from app.core.history.sketch import Sketch
from app.core.history.wanted import SKETCHES
from app.store.history.codec import decode_span, encode_span
from app.store.redis.keys import RunKeys
from tests.services.conftest import RUN, Process
from tests.services.history.history_runs import make_run


async def write_quarters(redis: Redis, spans: int, text: bytes) -> int:
    """Write spans of a quarter of an hour up to now, all alike. Return when the first one begins."""
    now_s = int((await redis.time())[0])
    begin_s = (now_s // 900 - spans) * 900
    for n in range(spans):
        await redis.xadd(RunKeys(RUN).series(900), {"facts": text}, f"{(begin_s + 900 * n) * 1000}-0")
    return begin_s


@pytest.mark.parametrize("together", [True, False])
async def test_a_reading_takes_the_memory_of_what_it_shows(
    process: Callable[..., Process], redis_client: Redis, together: bool
) -> None:
    """What it reads is four times as much, and histograms are of all environments together."""
    services, _ = process()
    await make_run(services)
    rng, environments = np.random.default_rng(1), {}
    for n in range(12):
        sketches = {name: Sketch.of(rng.lognormal(size=60).tolist()) for name in SKETCHES}
        environments[f"e{n}"] = Facts({"groups_in": 60}, sketches=sketches)
    text = encode_span(HistorySpan(environments=environments))
    begin_s = await write_quarters(redis_client, 100, text)
    tracemalloc.start()
    try:
        one = decode_span(text)
        span_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        asked = AskedRange(begin_s, begin_s + 100 * 900)
        if together:
            _, found = await services.history.reading.histograms(RUN, "reward", asked)
            assert sum(found.generated_total) == 100 * 12 * 60
        else:
            series = await services.history.reading.series(RUN, replace(asked, least_step_s=3600))
            assert sum(groups or 0 for groups in series.environments["e7"]["groups_in"]) == 100 * 60
        _, peak = tracemalloc.get_traced_memory()
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (40 if together else 90) * span_bytes
    assert kept < 20 * span_bytes
    assert one.environments.keys() == environments.keys()


async def test_what_is_kept_for_followers_is_bounded(process: Callable[..., Process], redis_client: Redis) -> None:
    """Shares of many environments take much. Those that were asked for last stay."""
    services, _ = process()
    await make_run(services)
    counts = ("groups", "sequences", "tokens")
    rng, environments = np.random.default_rng(1), {}
    for n in range(MOST_CHARTED_ENVIRONMENTS):
        sketches = {"reward_in": Sketch.of(rng.lognormal(size=20).tolist())}
        environments[f"e{n}"] = Facts({f"{count}_in": 1000.0 for count in counts}, sketches=sketches)
    text = encode_span(HistorySpan(environments=environments))
    begin_s = await write_quarters(redis_client, 70, text)
    kept = []
    tracemalloc.start()
    try:
        for count in counts:
            asked = AskedRange(begin_s, begin_s + 70 * 900, 900)
            _, found = await services.history.reading.shares(RUN, count, asked)
            assert found.generated == 70 * 1000 * MOST_CHARTED_ENVIRONMENTS
            del found
            gc.collect()
            kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(kept) < 1.5 * kept[0]
