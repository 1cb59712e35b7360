"""``python -m benchmarks [SECTION ...] [--quick] [--deep] [--publish]``, or ``growth`` or ``hostile``."""

import argparse
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import (
    balance,
    batch,
    curriculum,
    curriculum_speed,
    forming,
    hostile,
    ingest,
    loader,
    lookahead,
    machine,
    memory,
    native_batch,
    native_depth,
    native_ingest,
    native_waiters,
    relay,
    replay,
    replay_depth,
    report,
    shards,
)
from benchmarks.arena import FULL, QUICK, Arena, Effort, arena
from benchmarks.growth import command as growth
from benchmarks.results import Results
from tests.e2e.venv import REPOSITORY

# Memory first: Atropos's process must not have grown from anything else.
SECTIONS: dict[str, Callable[[Arena, Results], Awaitable[None]]] = {
    "memory": memory.measure,
    "ingest": ingest.measure,
    "batch": batch.measure,
    "forming": forming.measure,
    "native-ingest": native_ingest.measure,
    "native-batch": native_batch.measure,
    "native-depth": native_depth.measure,
    "native-waiters": native_waiters.measure,
    "relay": relay.measure,
    "replay": replay.measure,
    "replay-depth": replay_depth.measure,
    "balance": balance.measure,
    "lookahead": lookahead.measure,
    "curriculum": curriculum.measure,
    "curriculum-speed": curriculum_speed.measure,
    "loader": loader.measure,
    "shards": shards.measure,
}


def main() -> None:
    """Measure, print the tables, and keep them."""
    if sys.argv[1:2] == ["growth"]:
        growth.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["hostile"]:
        hostile.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"some of: {', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, shallower queues")
    parser.add_argument("--deep", action="store_true", help="with --quick: queues as deep as without")
    parser.add_argument("--publish", action="store_true", help="write the page and its pictures into docs/design/ too")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "benchmarks" / "results", help="where to keep them")
    asked = parser.parse_args()
    if unknown := set(asked.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the contestants are ended on the way out
    effort = QUICK if asked.quick else FULL
    effort = replace(effort, depths=FULL.depths) if asked.deep else effort
    machine.prepare()
    described = machine.describe()
    results = uvloop.run(measure(asked.sections or list(SECTIONS), effort, described, asked.output))
    if asked.publish:
        report.write(REPOSITORY / "docs" / "design", results, described)
    print(report.page(results, described))


async def measure(sections: list[str], effort: Effort, described: Mapping[str, Any], folder: Path) -> Results:
    """Run sections one after the other. Keep the results in a folder after each."""
    results = Results()
    with arena(effort) as everyone:
        for name in SECTIONS:
            if name in sections:
                began = time.perf_counter()
                await SECTIONS[name](everyone, results)
                results.save(folder / "benchmarks.json", described)
                report.write(folder, results, described)
                print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    return results


if __name__ == "__main__":
    main()
