"""Build the page that Prometheus scrapes: all runs as Redis has them now, and the counters of this process."""

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from app import telemetry
from app.core.batches.leases import LeaseState
from app.core.environments.record import EnvironmentRecord
from app.core.environments.scarcity import alarming
from app.core.errors import LachesisError
from app.core.model import DropReason
from app.core.ranks.sharding import BalanceHistory
from app.core.replay.buffer import ChunkDropReason
from app.core.replay.chunking import Arrival, FragmentDropReason
from app.core.replay.rate_limiter import error, may_insert, may_sample
from app.core.runs.view import RunView
from app.services.batches.factory import BatchServices
from app.services.replay.factory import ReplayServices
from app.services.replay.planning import REFUSED
from app.services.request_counts import RequestCounts
from app.services.runs.isolation import Failure, RunFailures, each
from app.services.status import oversized_groups
from app.services.stores import Stores
from app.store.curriculum.store import CurriculumSummary
from app.store.replay.view import ReplaySummary, ReplayView
from app.telemetry import Kind

_MOST_ENVIRONMENTS = 100  # environments with their own series; a run may have thousands
_MOST_CHARACTERS = 200  # of an environment's name; names with the same beginning count as one
_PATIENCE_S = 5.0  # Prometheus stops waiting after 10 s
_RUNS_AT_ONCE = 50  # other requests are served between chunks
_FAMILIES = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
    Kind.SUMMARY: SummaryMetricFamily,
}

log = logging.getLogger("lachesis.metrics")


class Samples:
    """Samples of declared metrics."""

    def __init__(self) -> None:
        self.all: list[tuple[telemetry.Metric, Sequence[str], Sequence[Any]]] = []

    def add(self, metric: telemetry.Metric, labels: Sequence[str], *values: Any) -> None:
        """Add a sample: the value of a counter or gauge; count and sum of a summary; buckets and sum of a histogram.

        Raises:
            TypeError, ValueError: A value is not a number.
        """
        self.all.append((metric, labels, [value if isinstance(value, list) else float(value) for value in values]))

    def add_each(self, metric: telemetry.Metric, label: str, values: Mapping[str, float]) -> None:
        """Add a sample for each value of the second label; ``label`` is the first."""
        for name, value in values.items():
            self.add(metric, (label, name), value)


class Page(Samples, Collector):
    """The data of one scrape."""

    def collect(self) -> Iterable[Metric]:
        """Return the metrics, in the order they were declared."""
        families = {
            metric: _FAMILIES[metric.kind](metric.name, metric.meaning, labels=metric.labels)
            for metric in telemetry.METRICS
        }
        for metric, labels, values in self.all:
            families[metric].add_metric(labels, *values)
        return families.values()

    def text(self) -> bytes:
        """Return the page in Prometheus's text format, version 0.0.4."""
        return generate_latest(self)


class Metrics:
    """Reads metrics on request. Metrics of runs are the same in every API process; each adds metrics of its own."""

    def __init__(
        self,
        stores: Stores,
        batches: BatchServices,
        replay: ReplayServices,
        requests: RequestCounts,
        upkeep: RunFailures,
        environment_ttl_ms: int,
    ) -> None:
        self._stores = stores
        self._batches = batches
        self._replay = replay
        self._requests = requests
        self._upkeep = upkeep
        self._reading = RunFailures("reading the metrics of a run")
        self._ttl_ms = environment_ttl_ms
        self._process = f"{socket.gethostname()}:{os.getpid()}"

    async def page(self) -> bytes:
        """Return the page, without runs if Redis does not answer within seconds: metrics must survive an outage."""
        page = Page()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                page = await self._page_of_runs()
            store_up = True
        except (LachesisError, TimeoutError) as error:
            log.warning("metrics are without runs: %s", str(error) or f"no answer within {_PATIENCE_S:g} s")
            store_up = False
        page.add(telemetry.STORE_UP, (self._process,), store_up)
        self._add_process(page)
        return await asyncio.to_thread(page.text)  # a thousand runs take long enough to delay other requests

    async def _page_of_runs(self) -> Page:
        page, names = Page(), await self._stores.runs.names()
        self._reading.keep_only(names)
        for start in range(0, len(names), _RUNS_AT_ONCE):
            together = names[start : start + _RUNS_AT_ONCE]
            failures: dict[str, Failure] = {}
            for samples_of in (self._of_runs, self._of_buffers, self._of_curricula):
                found, failed = await each(samples_of, together)
                page.all += chain.from_iterable(samples.all for samples in found.values())
                failures |= failed
            self._add_readable(page, together, failures)
        return page

    async def _of_runs(self, runs: Sequence[str]) -> dict[str, Samples]:
        return {run: _of_run(run, view, self._ttl_ms) for run, view in (await self._stores.runs.views(runs)).items()}

    async def _of_buffers(self, runs: Sequence[str]) -> dict[str, Samples]:
        return {run: _of_buffer(run, summary) for run, summary in (await self._stores.replay.summaries(runs)).items()}

    async def _of_curricula(self, runs: Sequence[str]) -> dict[str, Samples]:
        return {run: _of_curricula(run, found) for run, found in (await self._stores.curricula.summaries(runs)).items()}

    def _add_readable(self, page: Page, runs: Sequence[str], failures: Mapping[str, Failure]) -> None:
        for run in runs:
            page.add(telemetry.RUN_READABLE, (run,), run not in failures)
            page.add(telemetry.UPKEEP_FAILING, (self._process, run), self._upkeep.of(run) is not None)
            if run in failures:
                self._reading.failed(run, failures[run])
            else:
                self._reading.went_well(run)

    def _add_process(self, page: Page) -> None:
        process = self._process
        page.add(telemetry.BATCHES_HANDED_OUT, (process,), self._batches.dispatch.handed_out)
        page.add(telemetry.LONG_POLLS_WAITING, (process,), self._batches.long_poll.waiting)
        for side, door in (("insert", self._replay.insertion), ("sample", self._replay.samples)):
            page.add(telemetry.REPLAY_REQUESTS_BLOCKED, (process, side), door.queue.blocked)
            page.add(telemetry.REPLAY_REQUESTS_WAITING, (process, side), door.queue.waiting)
        for request, count in self._requests.counts():
            page.add(telemetry.HTTP_REQUESTS, (process, *request), count)
        for route, durations in self._requests.durations():
            page.add(telemetry.HTTP_DURATION, (process, route), durations.buckets, durations.sum_s)


def _of_run(run: str, view: RunView, ttl_ms: int) -> Samples:
    page = Samples()
    totals, oversized, dropped = view.totals, oversized_groups(view), view.dropped_by_reason
    leases = Counter(lease.state for lease in view.leases)
    environments = Counter(_state(environment, view, ttl_ms) for environment in view.environments.values())
    page.add(telemetry.STEP, (run,), view.step)
    page.add(telemetry.POLICY_VERSION, (run,), view.policy_version)
    page.add(telemetry.GROUPS_ACCEPTED, (run,), totals.accepted_groups)
    groups = {
        "queued": totals.queued_groups - oversized,
        "oversized": oversized,
        "buffered": totals.buffered_groups,
        "leased": totals.leased_groups,
        "delivered": totals.delivered_groups,
    }
    payload = {
        "queued": totals.queued_bytes,
        "buffered": totals.buffered_bytes,
        "leased": totals.leased_bytes,
        "kept": view.kept.payload_bytes,
    }
    page.add_each(telemetry.GROUPS, run, groups)
    page.add_each(telemetry.GROUPS_DROPPED, run, {reason: dropped.get(reason, 0) for reason in DropReason})
    page.add(telemetry.STARVATION, (run,), view.alert is not None)
    page.add_each(telemetry.SCARCE, run, _scarce(view, ttl_ms))
    page.add_each(telemetry.PAYLOAD, run, payload)
    page.add_each(telemetry.ENVIRONMENTS, run, {state: environments[state] for state in _STATES})
    page.add(telemetry.MEMBERS, (run,), sum(environment.members for environment in view.environments.values()))
    page.add_each(telemetry.SERVED, run, _served(view))
    page.add_each(telemetry.LEASES, run, {state: leases[state] for state in LeaseState})
    page.add(telemetry.BATCHES_RELAXED, (run,), view.relaxed_batches)
    page.add(telemetry.BATCHES_KEPT, (run,), view.kept.batches)
    if view.balance is not None:
        _add_balance(page, run, view.balance)
    return page


_STATES = ("alive", "silent", "disconnected")


def _state(environment: EnvironmentRecord, view: RunView, ttl_ms: int) -> str:
    if not environment.connected:
        return "disconnected"
    return "alive" if environment.alive(view.clock_ms, ttl_ms) else "silent"


def _served(view: RunView) -> Counter[str]:
    """Return the sequences handed out by environment name; "" is for all others and for groups without an environment.

    The environments with the smallest ids have names here. These stay the same, so that no series loses its sequences.
    """
    first = islice(view.environments.items(), _MOST_ENVIRONMENTS)
    named = {key: environment.name[:_MOST_CHARACTERS] for key, environment in first}
    served: Counter[str] = Counter(dict.fromkeys(named.values(), 0))
    for key, sequences in view.served.items():
        served["" if key is None else named.get(key, "")] += sequences
    return served


def _scarce(view: RunView, ttl_ms: int) -> dict[str, float]:
    """Return how long batches have waited for environments, by name; 0 for those without an alert."""
    first = islice(view.environments.values(), _MOST_ENVIRONMENTS)
    seconds = dict.fromkeys((environment.name[:_MOST_CHARACTERS] for environment in first), 0.0)
    for key, since_ms in islice(alarming(view, ttl_ms).items(), _MOST_ENVIRONMENTS):
        name = view.environments[key].name[:_MOST_CHARACTERS]
        seconds[name] = max(seconds.get(name, 0.0), (view.clock_ms - since_ms) / 1000)
    return seconds


def _of_buffer(run: str, summary: ReplaySummary) -> Samples:
    page = Samples()
    view, limiter = summary.view, summary.view.policy.limiter
    chunks = {
        "sampleable": view.size,
        "reserved": summary.reserved,
        "archived": summary.archived,
        "retired_in_use": summary.retired_in_use,
    }
    page.add_each(telemetry.REPLAY_CHUNKS, run, chunks)
    page.add_each(telemetry.REPLAY_FRAGMENTS, run, _in_chunks_or_waiting(view, "fragments"))
    page.add_each(telemetry.REPLAY_PAYLOAD, run, _in_chunks_or_waiting(view, "bytes"))
    page.add(telemetry.REPLAY_ACCEPTED, (run,), view.total("accepted_fragments"))
    page.add_each(telemetry.REPLAY_DROPPED, run, _by_reason(view, "dropped:", _DROPPED))
    page.add_each(telemetry.REPLAY_REFUSED, run, _by_reason(view, "refused:", _REFUSED))
    page.add(telemetry.REPLAY_GAPS, (run,), view.total("gaps"))
    page.add(telemetry.REPLAY_INSERTED, (run,), view.total("inserts"))
    page.add_each(telemetry.REPLAY_RETIRED, run, _by_reason(view, "retired:", _RETIRED))
    page.add(telemetry.REPLAY_USES, (run,), view.total("retired_chunks"), view.total("retired_uses"))
    page.add(telemetry.REPLAY_SAMPLED, (run,), view.total("samples"))
    page.add(telemetry.REPLAY_STALENESS, (run,), view.staleness_buckets(), view.total("sampled_staleness"))
    page.add(telemetry.REPLAY_SAMPLES_HELD, (run,), summary.samples)
    if limiter is not None:
        page.add(telemetry.REPLAY_LIMITER_ERROR, (run,), error(view.position, limiter))
    for side, may in (("insert", may_insert), ("sample", may_sample)):
        blocked = may(1, view.position, limiter, view.policy.min_size_to_sample)
        page.add(telemetry.REPLAY_BLOCKED, (run, side), blocked is not None)
    return page


# Counts by reason. Reasons that are usual but have not occurred yet count 0: a counter that begins at 1 has no rate.
_DROPPED = (*FragmentDropReason, ChunkDropReason.STALE, ChunkDropReason.EVICTED)
_REFUSED = (*REFUSED, Arrival.LATE)
_RETIRED = (*ChunkDropReason, "deleted")


def _by_reason(view: ReplayView, prefix: str, usual: Sequence[str]) -> Mapping[str, int]:
    return dict.fromkeys(usual, 0) | view.named(prefix)


def _in_chunks_or_waiting(view: ReplayView, what: str) -> dict[str, int]:
    return {"in_chunks": view.total(f"chunk_{what}"), "waiting": view.total(f"waiting_{what}")}


def _of_curricula(run: str, curricula: Sequence[CurriculumSummary]) -> Samples:
    page = Samples()
    for one in curricula:
        page.add(telemetry.CURRICULUM_ITEMS, (run, one.name, "seen"), one.seen)
        page.add(telemetry.CURRICULUM_ITEMS, (run, one.name, "unseen"), one.unseen)
        page.add(telemetry.CURRICULUM_IN_FLIGHT, (run, one.name), one.in_flight)
        page.add(telemetry.CURRICULUM_OBSERVATIONS, (run, one.name), one.updates)
        page.add(telemetry.CURRICULUM_SAMPLES, (run, one.name), one.samples)
        if one.mean_reward is not None:
            page.add(telemetry.CURRICULUM_MEAN_REWARD, (run, one.name), one.mean_reward)
    return page


def _add_balance(page: Samples, run: str, history: BalanceHistory) -> None:
    sums = {"chosen": history.imbalance, "contiguous": history.contiguous, "bound": history.bound}
    for sharding, sum_ in sums.items():
        page.add(telemetry.IMBALANCE, (run, sharding), history.batches, sum_)
    last = history.last
    of_last = {"chosen": last.imbalance, "contiguous": last.contiguous, "strided": last.strided, "bound": last.bound}
    page.add_each(telemetry.LAST_IMBALANCE, run, of_last)
