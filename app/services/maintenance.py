"""Maintain runs each second, in every API process: clock, heartbeats, old buffers, garbage, empty runs."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence

from app.core.errors import LachesisError
from app.logs import Backoff
from app.services.batches.factory import BatchServices
from app.services.batches.request import Timing
from app.services.curriculum.factory import CurriculumServices
from app.services.environments.factory import EnvironmentServices
from app.services.groups.factory import GroupServices
from app.services.replay.factory import ReplayServices
from app.services.runs.factory import RunServices
from app.services.runs.isolation import Failure, RunFailures, each, isolated
from app.services.stores import Stores
from app.store.runs.store import MOST_FORGOTTEN
from app.store.runs.tick import Tick

_PERIOD_S = 1.0
_LONGEST_SILENCE_S = 600.0  # between log lines during an outage
_IDLE_EVERY = 30  # passes over all runs between two checks for environments to forget

log = logging.getLogger("lachesis.maintenance")


class Maintenance:
    """A loop that several API processes may run at once, because each step is safe to repeat."""

    def __init__(
        self,
        stores: Stores,
        runs: RunServices,
        environments: EnvironmentServices,
        groups: GroupServices,
        batches: BatchServices,
        replay: ReplayServices,
        curriculum: CurriculumServices,
        timing: Timing,
    ) -> None:
        self._runs = stores.runs
        self._stored_groups = stores.groups
        self._environments = environments
        self._groups = groups
        self._batches = batches
        self._replay = replay
        self._curriculum = curriculum
        self._timing = timing
        self._passes = 0
        self._expired: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)  # expired members to log, by run
        self._upkeep = runs.failures
        self._ticks = RunFailures("the tick of a run")
        self._outage_lines = Backoff(_PERIOD_S, _LONGEST_SILENCE_S)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the loop in its own task."""
        self._task = asyncio.create_task(self.run_forever(), name="maintenance")
        self._task.add_done_callback(self._report_end)

    async def stop(self) -> None:
        """Stop the task that `start` began."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def goes_on(self) -> bool:
        """Return whether the task that `start` began is running."""
        return self._task is not None and not self._task.done()

    def _report_end(self, task: asyncio.Task[None]) -> None:
        if self._task is None:
            return  # it was stopped
        error = None if task.cancelled() else task.exception()
        log.critical("maintenance has ended: this process no longer looks after runs, restart it", exc_info=error)

    async def run_forever(self) -> None:
        """Tick and maintain all runs each second until cancelled. If Redis fails, log it and wait.

        Ticks do not wait for other work: without ticks, other processes would count this one and its environments as
        dead.
        """
        upkeep: asyncio.Task[None] | None = None
        try:
            while True:
                ticks = await self._tick_all()
                if upkeep is None or upkeep.done():
                    if upkeep is not None:
                        upkeep.result()
                    upkeep = asyncio.create_task(self._look_after_all(ticks))
                await asyncio.sleep(_PERIOD_S)
        finally:
            if upkeep is not None:
                upkeep.cancel()
                await asyncio.gather(upkeep, return_exceptions=True)

    async def look_after(self, run: str) -> None:
        """Do one maintenance pass over a run."""
        await self._do(run, (await self._tick([run]))[run], forget_idle=True)

    async def _tick_all(self) -> dict[str, Tick]:
        try:
            names = await self._runs.names()
            for known in (self._groups.admission, self._groups.arrivals, self._upkeep, self._ticks):
                known.keep_only(names)
            for run in self._expired.keys() - set(names):
                del self._expired[run]
            ticks, failures = await each(self._tick, [run for run in names if not self._ticks.rests(run)])
        except LachesisError as error:
            self._log_outage(error)
            return {}
        for run in ticks:
            self._ticks.went_well(run)
        for run, failure in failures.items():
            self._ticks.failed(run, failure)
        self._outage_lines.forget("outage")
        return ticks

    async def _tick(self, names: Sequence[str]) -> dict[str, Tick]:
        heard_of = {run: self._environments.heartbeats.drain(run) for run in names}
        ticks: dict[str, Tick] = {}
        try:
            ticks = await self._runs.tick_all(
                self._batches.atropos_delivery.worker, heard_of, self._timing.environment_ttl_ms
            )
        finally:
            for run, heard in heard_of.items() if not ticks else ():
                self._environments.heartbeats.put_back(run, heard)
        for run, tick in ticks.items():
            if tick.expired:
                self._expired[run] += tick.expired
        return ticks

    async def _look_after_all(self, ticks: Mapping[str, Tick]) -> None:
        self._passes += 1
        if any(tick.replay for tick in ticks.values()):
            await self._make_way()
        for run, tick in ticks.items():
            if self._upkeep.rests(run):
                continue
            try:
                done = await isolated(self._do(run, tick, forget_idle=self._passes % _IDLE_EVERY == 0))
            except LachesisError as error:
                self._log_outage(error)
                continue
            if isinstance(done, Failure):
                self._upkeep.failed(run, done)
            else:
                self._upkeep.went_well(run)

    async def _make_way(self) -> None:
        try:
            await self._replay.eviction.make_way()
        except LachesisError as error:
            self._log_outage(error)

    def _log_outage(self, error: LachesisError) -> None:
        if self._outage_lines.is_due("outage"):
            log.warning("maintenance waits: %s", error)

    async def _do(self, run: str, tick: Tick, *, forget_idle: bool) -> None:
        """Do the work that the tick found; nothing for an idle run."""
        if tick.buffered or tick.leased:
            view = await self._runs.view(run)
            await self._batches.atropos_delivery.return_lost(run, view)
            await self._batches.dispatch.quarantine_exhausted(run, view)
            await self._groups.atropos.release_overdue(run, view, self._timing.buffer_release_ms)
        if tick.replay:
            await self._replay.buffers.look_after(run)
        if tick.loading:
            await self._curriculum.states.look_after(run, tick.clock_ms)
        if tick.unreferenced:
            await self._stored_groups.mark_abandoned(run, tick.clock_ms - self._timing.orphan_ttl_ms)
        if tick.unreferenced or tick.marked_hashes:
            await self._stored_groups.delete_marked(run)
        if tick.aging:
            await self._groups.staleness.sweep_ages(run)
        if tick.due:
            while await self._runs.forget_old(run) >= MOST_FORGOTTEN:
                pass
        if run in self._expired:
            await self._environments.registry.note_expired(run, self._expired.pop(run))
        if tick.environments and forget_idle:
            await self._environments.registry.forget_idle(run)
        if not tick.held:
            await self._runs.forget(run)
