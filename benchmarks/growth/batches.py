"""What a large batch costs as JSON: CPU time, and the memory of the process that writes it."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bodies import VARIANTS, Shape, bodies, group, http_get, http_post, logprobs
from benchmarks.growth.effort import Effort
from benchmarks.growth.server import Server, Versions
from benchmarks.results import Results, Table

SHAPE = Shape(8, 2048)
FLOATS = ("advantages", "ref_logprobs")  # the columns that groups may have beside the sampler's logprobs
MEGABYTE = 1e6
IDLE_S = 3.0

TABLE = Table(
    "growth_batches",
    f"`GET /batch` of groups of {SHAPE}, as JSON",
    "",
    False,
    (),
    "One API process, started for each round. `peak` is how much its resident memory grows while it writes its first "
    f"batch, MB. `kept` is how much of that is left {IDLE_S:.0f} s later, MB. `text` is the size of the JSON, MB. A is "
    "CPU time, ms, and `wait` is wall time until the last byte, ms; both are of its second batch. Groups have tokens, "
    f"masks, scores and logprobs. Those with all floats have {' and '.join(FLOATS)} as well.",
)


async def measure(versions: Versions, effort: Effort, results: Results) -> None:
    """Take batches of some sizes. Each is taken by a process of its own: memory that was kept hides what is needed."""
    with_floats = bodies_with_floats()
    cases = [("256 x 2048", 256, bodies(SHAPE)), ("256 x 2048, all floats", 256, with_floats)]
    large = [("4096 x 2048", 4096, bodies(SHAPE))]
    for case, sequences, texts in cases if effort.rounds < 5 else cases + large:
        for _ in range(effort.rounds):
            with versions.running() as servers:
                for server in servers:
                    await two_batches(server, case, sequences, texts, results)


def bodies_with_floats() -> list[bytes]:
    """Make groups that have all columns of floats."""
    rng = random.Random(SHAPE.tokens)
    made = [group(SHAPE, rng) | {name: logprobs(SHAPE, rng) for name in FLOATS} for _ in range(VARIANTS)]
    return [json.dumps(one).encode() for one in made]


async def two_batches(server: Server, case: str, sequences: int, texts: Sequence[bytes], results: Results) -> None:
    """Queue exactly one batch and take it, twice."""
    register = {"wandb_group": "", "wandb_project": "", "batch_size": sequences, "max_token_len": SHAPE.tokens}
    more = {"checkpoint_dir": "", "save_checkpoint_interval": 1, "starting_step": 0, "num_steps": 10}
    server.made("POST", "/register", json=register | more)
    server.made("GET", "/batch")
    pid = server.api_pids[-1]
    await fill(server, sequences, texts)
    before = resident_bytes(pid)
    forget_peak(pid)
    reply = await server.call(http_get("/batch", accept_gzip=False))
    columns = {
        "text": len(reply.body) / MEGABYTE,
        "peak": (resident_bytes(pid, "VmHWM") - before) / MEGABYTE,
    }
    await asyncio.sleep(IDLE_S)
    columns["kept"] = (resident_bytes(pid) - before) / MEGABYTE
    await fill(server, sequences, texts)
    cpu_s, began = server.cpu_s()[0], time.perf_counter()
    await server.call(http_get("/batch", accept_gzip=False))
    wait_s = time.perf_counter() - began
    columns = {"A": (server.cpu_s()[0] - cpu_s) * 1000, "wait": wait_s * 1000} | columns
    server.note(results, TABLE, case, columns)


async def fill(server: Server, sequences: int, texts: Sequence[bytes]) -> None:
    """Queue so many sequences, and wait until the process has put its things away."""
    for n in range(sequences // SHAPE.sequences):
        await server.call(http_post("/scored_data", texts[n % len(texts)]))
    await asyncio.sleep(IDLE_S)


def forget_peak(pid: int) -> None:
    """Let the kernel measure the peak of a process's memory from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def resident_bytes(pid: int, figure: str = "VmRSS") -> int:
    """Read the memory of a process that is resident, or was at its peak, bytes."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(figure)]
    return int(line.split()[1]) * 1024
