"""What the history of a run costs while its environments send groups, and to read."""

import asyncio
import time
from functools import partial

from benchmarks.bodies import http_get
from benchmarks.growth.effort import Effort
from benchmarks.growth.environments import State, prepare
from benchmarks.growth.server import Call, Meter, Server, Versions
from benchmarks.native import RUN
from benchmarks.results import Results, Table

ENVIRONMENTS = 200
GROUPS_PER_S = 40
WRITTEN_EVERY_S = 10  # spans of a history

KEEPING = Table(
    "growth_history",
    f"A run of {ENVIRONMENTS} environments that send groups",
    "%",
    False,
    (),
    f"{GROUPS_PER_S} groups a second, of all environments in turn. Percent of a core. Compare with a version that has "
    "no history (`--tree`).",
)
READING = Table(
    "growth_history_reads",
    f"Read the history of {ENVIRONMENTS} environments",
    "ms",
    False,
    (),
    "One request after the other, of a run that has just sent groups for some spans of 10 s.",
)


async def measure(versions: Versions, effort: Effort, results: Results) -> None:
    """Measure each version on its own: the same load would take the machine's cores from the others."""
    with versions.running() as servers:
        for server in servers:
            state = prepare(server, ENVIRONMENTS, ENVIRONMENTS)
            for _ in range(effort.rounds):
                await measure_load(state, max(effort.idle_s, 2.0 * WRITTEN_EVERY_S), results)
            if server.http("GET", f"{RUN}/history").is_success:
                await measure_reads(server, effort, results)


async def measure_load(state: State, seconds: float, results: Results) -> None:
    """Send groups at a steady rate, and note what that takes of a core."""
    api_s, store_s = state.server.cpu_s()
    began = time.perf_counter()
    sent = 0
    while (passed_s := time.perf_counter() - began) < seconds:
        while sent < passed_s * GROUPS_PER_S:
            await state.send_one()
            sent += 1
        await asyncio.sleep(0.01)
    api_s, store_s = (after - before for after, before in zip(state.server.cpu_s(), (api_s, store_s), strict=True))
    columns = {"A": 100 * api_s / passed_s, "V": 100 * store_s / passed_s}
    state.server.note(results, KEEPING, f"{GROUPS_PER_S} groups a second", columns)


async def measure_reads(server: Server, effort: Effort, results: Results) -> None:
    """Read an hour of all environments, an hour of one, and a heat map."""
    server.hang_up()
    calls: dict[str, Call] = {
        "an hour of all": partial(server.call, http_get(f"{RUN}/history")),
        "an hour of one": partial(server.call, http_get(f"{RUN}/history?environment=env7")),
        "a heat map": partial(server.call, http_get(f"{RUN}/history/histograms?value=reward")),
    }
    for what, call in calls.items():
        await call()
        meter = Meter(server)
        await meter.repeat(call, effort.seconds, effort.least_calls)
        server.note(results, READING, what, meter.cost.columns)
