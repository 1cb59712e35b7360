"""What it costs to sample a few of many items of a curriculum."""

import json
from functools import partial

from benchmarks import native
from benchmarks.curriculum_speed import OBSERVED_AT_ONCE, REGISTERED_AT_ONCE, key, observed
from benchmarks.growth.effort import Effort
from benchmarks.growth.server import Meter, Server, Versions
from benchmarks.native import RUN
from benchmarks.results import Results, Table

SAMPLED = 32
STRATEGIES = ("uniform", "plr", "thompson")
CURRICULUM = f"{RUN}/curricula/bench"

TABLE = Table(
    "growth_sampling",
    f"{SAMPLED} items of a curriculum",
    "ms",
    False,
    (),
    f"`POST …/samples` for {SAMPLED} items, one request after the other. Every item was observed. `commands` are those "
    "that Valkey counts for each request, within scripts too.",
)


async def measure(versions: Versions, effort: Effort, results: Results) -> None:
    """Register items, observe all of them, and sample by each strategy."""
    with versions.running() as servers:
        for server in servers:
            prepare(server, effort.items)
        for strategy in STRATEGIES:
            for server in servers:
                server.made("PATCH", CURRICULUM, json={"strategy": strategy, "in_flight_ttl_s": 0.0})
            for _ in range(effort.rounds):
                for server in servers:
                    server.hang_up()
                    call = partial(server.call, native.post_json(f"{CURRICULUM}/samples", {"n": SAMPLED, "step": 50}))
                    await call()
                    meter, before = Meter(server), commands(server)
                    await meter.repeat(call, effort.seconds, effort.least_calls)
                    per_call = (commands(server) - before) / len(meter.cost.walls_s)
                    columns = meter.cost.columns | {"commands": per_call}
                    server.note(results, TABLE, f"{effort.items:,} items: {strategy}", columns)


def prepare(server: Server, items: int) -> None:
    """Register items and observe each of them once."""
    server.fresh("bench", batch_size=1)
    server.made("PUT", CURRICULUM, json={"strategy": "uniform", "total_steps": 100})
    for first in range(0, items, REGISTERED_AT_ONCE):
        keys = [key(number) for number in range(first, min(items, first + REGISTERED_AT_ONCE))]
        server.made("POST", f"{CURRICULUM}/items", content=json.dumps({"items": keys}))
    for first in range(0, items, 10 * OBSERVED_AT_ONCE):
        told = observed(range(first, min(items, first + 10 * OBSERVED_AT_ONCE)))
        server.made("POST", f"{CURRICULUM}/observations", content=told)


def commands(server: Server) -> int:
    """Count the commands that Valkey has executed, those of scripts among them."""
    counted = server.redis.info("commandstats")
    return sum(int(one["calls"]) for one in counted.values())
