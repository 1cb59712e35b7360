"""``python -m benchmarks growth [CASE ...] [--tree PATH ...] [--quick] [--publish]``."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import machine, report
from benchmarks.growth import batches, environments, history, pages, runs, sampling, submissions, sweeps, trainers
from benchmarks.growth.effort import FULL, QUICK, Effort
from benchmarks.growth.server import Tree, Versions
from benchmarks.results import Results, Table
from tests.e2e.venv import REPOSITORY

CASES: dict[str, Callable[[Versions, Effort, Results], Awaitable[None]]] = {
    "environments": environments.measure,
    "idle-runs": runs.measure_idle,
    "many-runs": runs.measure_listing,
    "submissions": submissions.measure,
    "access": submissions.measure_access,
    "trainers": trainers.measure,
    "stale": sweeps.measure_stale,
    "deleted": sweeps.measure_deleted,
    "memory": sweeps.measure_memory,
    "sampling": sampling.measure,
    "batches": batches.measure,
    "history": history.measure,
    "pages": pages.measure,
}

_SIZES = ("environments", "runs", "stale_groups", "deleted_bytes", "items", "queued_groups")
"""The fields of `Effort` that the command line can change."""


def main(arguments: Sequence[str]) -> None:
    """Measure, print the tables, and keep them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks growth", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"some of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer and shorter rounds")
    for name in _SIZES:
        many = "*" if name == "environments" else None
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, nargs=many, metavar="N", help=f"size: {name}")
    parser.add_argument(
        "--tree",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="a checkout whose server is measured; several stand side by side (default: this one)",
    )
    parser.add_argument("--publish", action="store_true", help="write the page into docs/design/ too")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "benchmarks" / "results", help="where to keep them")
    asked = parser.parse_args(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # operators' services keep compiled modules between starts
    if unknown := set(asked.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers are ended on the way out
    trees = tuple(Tree(path.resolve().name, path.resolve()) for path in asked.tree or [REPOSITORY])
    effort = QUICK if asked.quick else FULL
    sizes = {name: value for name in _SIZES if (value := vars(asked)[name]) is not None}
    effort = replace(effort, **sizes)
    machine.prepare()
    described, results = machine.describe(), Results()

    def keep(folder: Path) -> None:
        results.save(folder / "growth.json", described)
        (folder / "growth.md").write_text(page(results, trees, described))

    uvloop.run(measure(asked.cases or list(CASES), Versions(trees), effort, results, lambda: keep(asked.output)))
    if asked.publish:
        (REPOSITORY / "docs" / "design" / "growth.md").write_text(page(results, trees, described))
    print(page(results, trees, described))


async def measure(
    cases: Sequence[str], versions: Versions, effort: Effort, results: Results, keep: Callable[[], None]
) -> None:
    """Run cases one after the other. Keep the results after each, in case that a later one fails."""
    for name in cases:
        began = time.perf_counter()
        await CASES[name](versions, effort, results)
        keep()
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


def page(results: Results, trees: Sequence[Tree], described: Mapping[str, Any]) -> str:
    """Write the tables."""
    named = "\n".join(f"| {name} | {value} |" for name, value in described.items())
    head = f"""# Growth

Measured by `python -m benchmarks growth`. **A** is the CPU time of all API processes, **V** that of Valkey, a call;
p50 and p99 are wall time. Each figure is the median over rounds; where versions stand side by side, each round measures
all of them. CPU time depends less on what else the machine does than wall time. On a virtual machine with shared cores
it still differs by half from minute to minute. So compare figures of one run only.

| machine | |
| --- | --- |
{named}
"""
    return head + "".join(section(results, table, trees) for table in results.tables.values())


def section(results: Results, table: Table, trees: Sequence[Tree]) -> str:
    """Write one table: a row a case; with two versions, a figure of each and their ratio side by side."""
    figures = [name.rpartition(": ")[2] for name in results.contestants(table.key)]
    compared = len(trees) == 2
    columns: list[str] = []
    for figure in dict.fromkeys(figures):
        columns += [f"{figure}, {tree.name}" for tree in trees] if len(trees) > 1 else [figure]
        columns += ["ratio"] * compared
    lines = [[table.unit, *columns], ["---", *["---:"] * len(columns)]]
    for case in results.values[table.key]:
        line = [case]
        for figure in dict.fromkeys(figures):
            medians = [results.median(table.key, case, tree.column(figure, len(trees))) for tree in trees]
            line += map(report.number, medians)
            before, now = medians[0], medians[-1]
            line += [report.times(now / before if now and before else None)] * compared
        lines.append(line)
    return f"\n## {table.title}\n\n{table.note}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
