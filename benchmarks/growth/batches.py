"""What a large batch costs as JSON: CPU time, and the memory of the process that writes it."""

import asyncio
import time
from itertools import count
from pathlib import Path

from benchmarks.bodies import Shape, bodies, http_get, http_post
from benchmarks.growth.effort import Effort
from benchmarks.growth.server import Server, Versions
from benchmarks.results import Results, Table

SHAPE = Shape(8, 2048)
SEQUENCES = (256, 4096)
MEGABYTE = 1e6
IDLE_S = 3.0

TABLE = Table(
    "growth_batches",
    f"`GET /batch` of groups of {SHAPE}, as JSON",
    "",
    False,
    (),
    "One API process. `peak` is how much its resident memory grows while it writes the batch, MB. `kept` is how much "
    f"of that is left {IDLE_S:.0f} s later, MB. `text` is the size of the JSON, MB. A is CPU time, ms; `wait` is wall "
    "time until the last byte, ms.",
)


async def measure(versions: Versions, effort: Effort, results: Results) -> None:
    """Take batches of some sizes. Each is taken by a process of its own: memory that was kept hides what is needed."""
    for sequences in SEQUENCES[: 1 if effort.rounds < 5 else None]:
        for _ in range(effort.rounds):
            with versions.running() as servers:
                for server in servers:
                    await one_batch(server, sequences, results)


async def one_batch(server: Server, sequences: int, results: Results) -> None:
    """Queue exactly one batch, and take it."""
    register = {"wandb_group": "", "wandb_project": "", "batch_size": sequences, "max_token_len": SHAPE.tokens}
    more = {"checkpoint_dir": "", "save_checkpoint_interval": 1, "starting_step": 0, "num_steps": 10}
    server.made("POST", "/register", json=register | more)
    server.made("GET", "/batch")
    texts = bodies(SHAPE)
    for _, n in zip(range(sequences // SHAPE.sequences), count(), strict=False):
        await server.call(http_post("/scored_data", texts[n % len(texts)]))
    await asyncio.sleep(IDLE_S)
    pid = server.api_pids[-1]
    before, cpu_s = resident_bytes(pid), server.cpu_s()[0]
    forget_peak(pid)
    began = time.perf_counter()
    reply = await server.call(http_get("/batch", accept_gzip=False))
    wait_s = time.perf_counter() - began
    columns = {
        "A": (server.cpu_s()[0] - cpu_s) * 1000,
        "wait": wait_s * 1000,
        "text": len(reply.body) / MEGABYTE,
        "peak": (resident_bytes(pid, "VmHWM") - before) / MEGABYTE,
    }
    await asyncio.sleep(IDLE_S)
    columns["kept"] = (resident_bytes(pid) - before) / MEGABYTE
    server.note(results, TABLE, f"{sequences} x {SHAPE.tokens}", columns)


def forget_peak(pid: int) -> None:
    """Let the kernel measure the peak of a process's memory from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def resident_bytes(pid: int, figure: str = "VmRSS") -> int:
    """Read the memory of a process that is resident, or was at its peak, bytes."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(figure)]
    return int(line.split()[1]) * 1024
