"""What trainers cost that wait for a batch."""

import asyncio
import json
from itertools import count
from pathlib import Path

from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.batch import one
from benchmarks.bodies import Shape
from benchmarks.contestants import Lachesis, process_cpu_s
from benchmarks.native import RUN
from benchmarks.results import Results, Table

WAITERS = 500
GROUPS_PER_S = 5
SETTLED_S = 2.0
MEASURED_S = 8.0
BYTES_PER_KB = 1000
PAGE_BYTES = 4096
TINY = Shape(4, 8)

CPU = Table(
    "native_waiters",
    "Trainers that wait",
    "% of a core",
    False,
    (),
    f"{WAITERS} connections in `POST {RUN}/batches?wait_s=…`. Groups: {GROUPS_PER_S} a second, of an environment that "
    "cannot complete a batch, because half of it is promised to another.",
)
MEMORY = Table(
    "native_waiter_memory", "Memory of a trainer that waits", "kB", False, (), "Growth of the API process, for each."
)


async def measure(arena: Arena, results: Results) -> None:
    """Let them wait, first for nothing, then beside groups that are of no use."""
    lachesis = arena.lachesis
    native.fresh(lachesis, 64)
    promised = await join(lachesis, "promised", 0.5)
    other = await join(lachesis, "other", None)
    api, redis = lachesis.pids()[0], lachesis.redis_pid()
    await measured(results, "nobody waits", api, redis)
    before = resident_bytes(api)
    callers = [await lachesis.dial() for _ in range(WAITERS)]
    request = native.take_batch(binary=True, wait_s=120)
    waiting = [asyncio.create_task(caller.call(request)) for caller in callers]
    await asyncio.sleep(SETTLED_S)
    results.add(MEMORY, f"{WAITERS} trainers", "API process", (resident_bytes(api) - before) / WAITERS / BYTES_PER_KB)
    await measured(results, f"{WAITERS} trainers, nothing comes", api, redis)
    trickle = asyncio.create_task(submit(lachesis, other))
    await asyncio.sleep(SETTLED_S)
    await measured(results, f"{WAITERS} trainers, {GROUPS_PER_S} groups/s of no use", api, redis)
    trickle.cancel()
    assert not any(task.done() for task in waiting), f"a batch formed without environment {promised}"
    for caller in callers:
        caller.close()
    await asyncio.gather(*waiting, trickle, return_exceptions=True)
    native.fresh(lachesis, 64)


async def join(lachesis: Lachesis, name: str, min_share: float | None) -> int:
    """Register an environment; gives its id."""
    asked = {"name": name, "group_size": TINY.sequences, "min_share": min_share}
    reply = await one(lachesis, native.post_json(f"{RUN}/environments", asked))
    return int(json.loads(reply.body)["id"])


async def submit(lachesis: Lachesis, environment: int) -> None:
    """Send groups of an environment forever."""
    for n in count():
        columns = native.made_up(TINY)[0] | {"env_id": None, "environment": environment, "id": f"trickle-{n}"}
        del columns["env_id"]
        await one(lachesis, native.post_json(f"{RUN}/groups", columns))
        await asyncio.sleep(1 / GROUPS_PER_S)


async def measured(results: Results, case: str, api: int, redis: int) -> None:
    """Take down what share of a core the processes use for a while."""
    before = process_cpu_s(api), process_cpu_s(redis)
    await asyncio.sleep(MEASURED_S)
    for name, pid, used_s in (("API process", api, before[0]), ("Redis", redis, before[1])):
        results.add(CPU, case, name, (process_cpu_s(pid) - used_s) / MEASURED_S * 100)


def resident_bytes(pid: int) -> int:
    """Memory that a process occupies."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
