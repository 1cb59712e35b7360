"""``python -m benchmarks hostile [ATTACK ...]``: what honest workers lose beside a hostile one.

Honest workers submit groups in a closed loop, and a trainer takes them in batches. Each round measures them alone and
beside each attack in turn. Attacks have a fixed pace, and run in a process of their own: on few cores its CPU time is
missing elsewhere, so it stands beside the rest.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import uvloop

from benchmarks import machine, native
from benchmarks.attacks import ATTACKS
from benchmarks.bodies import Shape
from benchmarks.growth.server import Server, Tree, Versions, cpu_time_s, quantile
from benchmarks.members import train
from benchmarks.results import Results, Table
from tests.e2e.venv import REPOSITORY

SHAPE = Shape(8, 512)
WORKERS = 4
BATCH_GROUPS = 16

TABLE = Table(
    "hostile",
    "Honest submissions beside a hostile worker",
    "",
    True,
    (),
    f"{WORKERS} workers submit groups of {SHAPE} in a closed loop; a trainer takes batches of {BATCH_GROUPS} groups. A "
    "and V are the CPU time of the API process and of Valkey a submission, X is that of the attack a second. C is what "
    "the attack costs the API process, in hundredths of a core: what a submission costs more, times submissions a "
    "second. It hardly depends on what else the machine does.",
)


@dataclass
class Honest:
    """What honest clients did: how long each submission took, seconds, and the batches."""

    walls_s: list[float] = field(default_factory=list)
    batches: int = 0
    ended: bool = False


async def submit(server: Server, numbers: "count[int]", honest: Honest) -> None:
    """Submit groups, one after the other."""
    submissions = native.binary_submissions(SHAPE, 1)
    while not honest.ended:
        number, began = next(numbers), time.perf_counter()
        await server.call(submissions[number % len(submissions)](number))
        honest.walls_s.append(time.perf_counter() - began)


async def measured(server: Server, numbers: "count[int]", seconds: float, attack_pid: int | None) -> dict[str, float]:
    """Measure honest clients for some seconds."""
    honest = Honest()
    tasks = [asyncio.create_task(submit(server, numbers, honest)) for _ in range(WORKERS)]
    tasks.append(asyncio.create_task(train(server, honest)))
    await asyncio.sleep(seconds / 4)
    honest.walls_s.clear()
    before, began = server.cpu_s(), time.perf_counter()
    attack_s = cpu_time_s(attack_pid) if attack_pid else 0.0
    await asyncio.sleep(seconds)
    elapsed_s, after, walls_s = time.perf_counter() - began, server.cpu_s(), list(honest.walls_s)
    attack_s = (cpu_time_s(attack_pid) if attack_pid else 0.0) - attack_s
    honest.ended = True
    await asyncio.gather(*tasks)
    return {
        "groups/s": len(walls_s) / elapsed_s,
        "p50, ms": quantile(walls_s, 0.5) * 1000,
        "p99, ms": quantile(walls_s, 0.99) * 1000,
        "A, ms": (after[0] - before[0]) * 1000 / len(walls_s),
        "V, ms": (after[1] - before[1]) * 1000 / len(walls_s),
        "X, s/s": attack_s / elapsed_s,
    }


@contextmanager
def attacking(attack: str, port: int) -> Iterator[tuple[int, dict[str, int]]]:
    """Run an attack; gives its process, and afterwards how many answers of each status it got."""
    command = [sys.executable, "-m", "benchmarks.attacks", attack, str(port)]
    answers: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "begun\n", f"the attack {attack!r} did not begin"
            yield process.pid, answers
        finally:
            process.terminate()
        answers |= json.loads(process.stdout.readline())


async def measure(server: Server, attacks: Sequence[str], rounds: int, seconds: float, results: Results) -> None:
    """Measure honest clients alone and beside each attack, in turn."""
    numbers = count()
    for attack in attacks:
        for _ in range(rounds):
            server.fresh("bench", batch_size=BATCH_GROUPS * SHAPE.sequences, keep_batches=0)
            alone = await measured(server, numbers, seconds, None)
            with attacking(attack, server.service.port) as (pid, answers):
                beside = await measured(server, numbers, seconds, pid)
            alone["C, %"] = 0.0
            beside["C, %"] = (beside["A, ms"] - alone["A, ms"]) * beside["groups/s"] / 10
            for name, value in alone.items():
                results.add(TABLE, attack, f"alone: {name}", value)
                results.add(TABLE, attack, f"beside: {name}", beside[name])
            slower = alone["groups/s"] / beside["groups/s"]
            print(f"{attack}: {slower:.2f} x slower; answers {json.dumps(answers)}", file=sys.stderr, flush=True)


def page(results: Results) -> str:
    """Write the table: a row a case, alone and beside each attack."""
    names = [name.removeprefix("alone: ") for name in results.contestants(TABLE.key) if name.startswith("alone")]
    lines = [["", *names], ["---", *["---:"] * len(names)]]
    for attack in results.values[TABLE.key]:
        medians = {
            side: [results.median(TABLE.key, attack, f"{side}: {name}") or 0.0 for name in names]
            for side in ("alone", "beside")
        }
        lines.append([f"alone, before {attack}", *(f"{value:.3g}" for value in medians["alone"])])
        ratios = [
            f"{beside:.3g} ({beside / alone:.2f} x)" if alone else f"{beside:.3g}"
            for alone, beside in zip(medians["alone"], medians["beside"], strict=True)
        ]
        lines.append([f"beside {attack}", *ratios])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"## {TABLE.title}\n\n{TABLE.note}\n\n{table}\n"


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks hostile", description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"words of some of: {'; '.join(ATTACKS)}")
    parser.add_argument("--rounds", type=int, default=3, help="how often each pair is measured")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each side of a pair is measured")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="a checkout whose server is measured")
    asked = parser.parse_args(arguments)
    attacks = [name for name in ATTACKS if not asked.attacks or any(words in name for words in asked.attacks)]
    results = Results()
    machine.prepare()
    with Versions((Tree("here", asked.tree.resolve()),)).running() as (server,):
        uvloop.run(measure(server, attacks, asked.rounds, asked.seconds, results))
    print(json.dumps(machine.describe()))
    print(page(results))
