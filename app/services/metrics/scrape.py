"""Build the page that Prometheus scrapes: all runs as Redis has them now, and the counters of this process."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

from app import telemetry
from app.services.batches.factory import BatchServices
from app.services.isolation import Failure, RunFailures, for_each_run
from app.services.metrics.runs import depends_on_time, of_buffer, of_curricula, of_run
from app.services.metrics.text import Lines, Samples, page_text
from app.services.replay.factory import ReplayServices
from app.services.request_counts import RequestCounts
from app.services.stores import Stores
from app.store.runs.sleeps import Sleep
from lachesis.wire.errors import LachesisError

T = TypeVar("T")

_PATIENCE_S = 4.5  # with the time to count the request, 5 s. Prometheus stops waiting after 10 s
_LOOKED_AT_ONCE = 100  # runs: other requests are served between chunks
_READ_AT_ONCE = 10
_READ_ANYWAY = 20  # sleeping runs that each scrape reads: of a thousand, each is read once in 50 scrapes

log = logging.getLogger("lachesis.metrics")


@dataclass(frozen=True, slots=True)
class _SleepingRun:
    """The samples of a run that sleeps. They stay the same while its sleep does."""

    sleep: Sleep
    lines: Lines


class Metrics:
    """Reads metrics on request. Metrics of runs are the same in every API process; each adds metrics of its own.

    A scrape looks at each run, and reads those in which anything may have changed since the last one. A record that was
    damaged by other means than this service shows when the run is read: after 50 scrapes at the latest.

    Args:
        stores: The stores.
        batches: Counts batches and requests that wait.
        replay: Counts requests that wait.
        requests: Counts requests.
        failures: Failures of maintenance.
        edge: Yield samples of the HTTP edge of this process.
        read_anyway: How many of the runs that have not changed a scrape reads, those read longest ago.
    """

    def __init__(
        self,
        stores: Stores,
        batches: BatchServices,
        replay: ReplayServices,
        requests: RequestCounts,
        failures: RunFailures,
        edge: Sequence[Callable[[], Iterable[telemetry.Sample]]] = (),
        read_anyway: int = _READ_ANYWAY,
    ) -> None:
        self._stores = stores
        self._batches = batches
        self._replay = replay
        self._requests = requests
        self._failures = failures
        self._reading = RunFailures("reading the metrics of a run")
        self._edge = edge
        self._read_anyway = read_anyway
        self._known: dict[str, _SleepingRun] = {}  # by run; those read longest ago come first
        self._process = f"{socket.gethostname()}:{os.getpid()}"

    async def page(self, own: Callable[[Iterable[str]], Sequence[str]] = list, *, reads_runs: bool = True) -> bytes:
        """Return the page, without runs if Redis does not answer within seconds: metrics must survive an outage.

        Args:
            own: Returns those of the runs that the page is to show.
            reads_runs: False if Redis is known not to answer.
        """
        found: list[Lines] = []
        try:
            async with asyncio.timeout(_PATIENCE_S):
                found = await self._of_runs_shown(own) if reads_runs else []
            store_up = reads_runs
        except (LachesisError, TimeoutError) as error:
            log.warning("metrics are without runs: %s", str(error) or f"no answer within {_PATIENCE_S:g} s")
            store_up = False
        found.append(self._of_process(store_up))
        return await asyncio.to_thread(page_text, found)  # a thousand runs take long enough to delay other requests

    async def _of_runs_shown(self, own: Callable[[Iterable[str]], Sequence[str]]) -> list[Lines]:
        names, failures = await self._stores.runs.names(), dict[str, Failure]()
        sleeps = await _in_chunks(self._stores.sleeps.of, names, _LOOKED_AT_ONCE, failures)
        again = set(islice(self._known, self._read_anyway))
        known = {run: one for run, one in self._known.items() if run not in again and sleeps.get(run) == one.sleep}
        rest = [run for run in names if run not in known]
        read = await _in_chunks(self._of_runs, rest, _READ_AT_ONCE, failures)
        buffers = await _in_chunks(self._of_buffers, rest, _READ_AT_ONCE, failures)
        curricula = await _in_chunks(self._of_curricula, names, _LOOKED_AT_ONCE, failures)
        for run, (lines, lasting) in read.items():
            sleep = sleeps.get(run)  # read before the run, so what came in between is read again next time
            if sleep is not None and lasting and run not in buffers:
                known[run] = _SleepingRun(sleep, lines)
        self._known = known
        of_runs = {run: one.lines for run, one in known.items()} | {run: lines for run, (lines, _) in read.items()}
        parts = (of_runs, buffers, curricula)
        self._note_failures(names, failures)
        shown = own(names)
        return [part[run] for run in shown for part in parts if run in part] + [self._readable(shown, failures)]

    async def _of_runs(self, runs: Sequence[str]) -> dict[str, tuple[Lines, bool]]:
        """Read runs. Also return of each whether its samples stay the same while it sleeps."""
        views = await self._stores.runs.views(runs)
        return {run: (of_run(run, one), not depends_on_time(one)) for run, one in views.items()}

    async def _of_buffers(self, runs: Sequence[str]) -> dict[str, Lines]:
        return {run: of_buffer(run, summary) for run, summary in (await self._stores.replay.summaries(runs)).items()}

    async def _of_curricula(self, runs: Sequence[str]) -> dict[str, Lines]:
        return {run: of_curricula(run, found) for run, found in (await self._stores.curricula.summaries(runs)).items()}

    def _note_failures(self, runs: Sequence[str], failures: Mapping[str, Failure]) -> None:
        self._reading.keep_only(runs)
        for run in runs:
            if run in failures:
                self._reading.failed(run, failures[run])
            else:
                self._reading.went_well(run)

    def _readable(self, runs: Sequence[str], failures: Mapping[str, Failure]) -> Lines:
        samples = Samples()
        for run in runs:
            samples.add(telemetry.RUN_READABLE, (run,), run not in failures)
            samples.add(telemetry.UPKEEP_FAILING, (self._process, run), self._failures.of(run) is not None)
        return samples.lines()

    def _of_process(self, store_up: bool) -> Lines:
        samples, process = Samples(), self._process
        samples.add(telemetry.STORE_UP, (process,), store_up)
        samples.add(telemetry.BATCHES_HANDED_OUT, (process,), self._batches.dispatch.handed_out)
        samples.add(telemetry.LONG_POLLS_WAITING, (process,), self._batches.long_poll.waiting)
        for side, door in (("insert", self._replay.insertion), ("sample", self._replay.samples)):
            samples.add(telemetry.REPLAY_REQUESTS_BLOCKED, (process, side), door.queue.blocked)
            samples.add(telemetry.REPLAY_REQUESTS_WAITING, (process, side), door.queue.waiting)
        for request, count in self._requests.counts():
            samples.add(telemetry.HTTP_REQUESTS, (process, *request), count)
        for route, durations in self._requests.durations():
            samples.add(telemetry.HTTP_DURATION, (process, route), durations.buckets, durations.sum_s)
        for metric, labels, value in chain.from_iterable(of_part() for of_part in self._edge):
            samples.add(metric, (process, *labels), value)
        return samples.lines()


async def _in_chunks(
    do: Callable[[Sequence[str]], Awaitable[dict[str, T]]], runs: Sequence[str], size: int, failures: dict[str, Failure]
) -> dict[str, T]:
    """Do something for all runs, a few at a time; note which failed."""
    results: dict[str, T] = {}
    for start in range(0, len(runs), size):
        found, failed = await for_each_run(do, runs[start : start + size])
        results |= found
        failures |= failed
    return results
