"""Maintain runs every second, in one API process: clocks, silent members, old buffers, garbage, empty runs.

Each process writes down the heartbeats that it got, finds the batches that it lost, and asks Redis what it promises.
One process does the rest, under a lease: it is renewed every second, and another process takes over when it was silent
(`app.store.runs.processes`). Each lease has a term; ticks of an older term change nothing. A process that was paused
may still be in the middle of other work when it goes on. That does no harm: each step decides on what it has read, and
its script does nothing if that has changed, or has the same effect twice.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import TypeVar

from app.logs import LogBackoff
from app.services.batches.factory import BatchServices
from app.services.curriculum.factory import CurriculumServices
from app.services.environments.factory import EnvironmentServices
from app.services.events.factory import EventServices
from app.services.groups.factory import GroupServices
from app.services.history.writer import HistoryWriter
from app.services.isolation import Failure, RunFailures, for_each_run, isolated
from app.services.replay.factory import ReplayServices
from app.services.resting import Resting
from app.services.runs.factory import RunServices
from app.services.stores import Stores
from app.services.timing import Timing
from app.store.groups.known import MOST_FORGOTTEN
from app.store.runs.processes import Maintained
from app.store.runs.tick import Tick
from app.store.server.watch import StoreWatch
from lachesis.wire.errors import LachesisError

T = TypeVar("T")

_PERIOD_S = 1.0
_CLOSE_TIMEOUT_S = 1.0
_LONGEST_SILENCE_S = 600.0  # between log lines during an outage
_FORGET_EVERY = 30  # passes between two looks for runs that are gone
_ALERTS_EVERY = 2  # rounds of maintenance between two looks at the alerts of a run
_WATCH_EVERY = 60  # rounds between two questions to Redis about its durability
_IDLE_EVERY = 30  # rounds between two checks for environments to forget, of a run that does not sleep

log = logging.getLogger("lachesis.maintenance")


class Maintenance:
    """The loop of one process.

    A *pass* comes every second: the sign of life of this process, heartbeats, and the ticks of runs. A *round* is the
    work that ticks found, and may take longer. It begins with the first pass after the last round has ended.
    """

    def __init__(
        self,
        stores: Stores,
        runs: RunServices,
        environments: EnvironmentServices,
        groups: GroupServices,
        batches: BatchServices,
        replay: ReplayServices,
        curriculum: CurriculumServices,
        history: HistoryWriter,
        events: EventServices,
        watch: StoreWatch,
        timing: Timing,
    ) -> None:
        self._processes = stores.processes
        self._runs = stores.runs
        self._worker = batches.atropos_delivery.worker
        self._known = stores.known_groups
        self._garbage = stores.garbage
        self._environments = environments
        self._groups = groups
        self._batches = batches
        self._replay = replay
        self._curriculum = curriculum
        self._history = history
        self._alerts = events.alerts
        self._recorder = events.recorder
        self._resting = Resting(stores.runs, replay.buffers)
        self._watch = watch
        self._timing = timing
        self._passes = 0
        self._rounds = 0
        self._sweeps: dict[str, asyncio.Task[None]] = {}  # by run
        self._awake: set[str] = set()  # the runs of the last pass
        self._unlooked: set[str] = set()  # the runs that may have other alerts since these were last looked for
        self._expired: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)  # expired members to log, by run
        self._failures = runs.failures
        self._ticks = RunFailures("the tick of a run")
        self._heartbeats = RunFailures("recording the heartbeats of a run")
        self._histories = RunFailures("the history of a run")
        self._outage_lines = LogBackoff(_PERIOD_S, _LONGEST_SILENCE_S)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the loop in its own task."""
        self._task = asyncio.create_task(self.run_forever(), name="maintenance")
        self._task.add_done_callback(self._report_end)

    async def stop(self) -> None:
        """Stop the task that `start` began, and let another process maintain runs at once."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with contextlib.suppress(LachesisError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._processes.remove(self._worker)
                    await self._history.write_all()

    @property
    def goes_on(self) -> bool:
        """Return whether the task that `start` began is running."""
        return self._task is not None and not self._task.done()

    def _report_end(self, task: asyncio.Task[None]) -> None:
        if self._task is None or all(one.cancelling() for one in asyncio.all_tasks()):
            return  # it was stopped, or the process ends
        error = None if task.cancelled() else task.exception()
        log.critical("maintenance has ended: this process no longer looks after runs, restart it", exc_info=error)

    async def run_forever(self) -> None:
        """Note every second that this process is alive, and maintain runs if no other process does, until cancelled.

        If Redis fails, log it and wait. Signs of life and ticks do not wait for other work: without them, other
        processes would count this one as dead, and environments would expire.
        """
        this_round: asyncio.Task[None] | None = None
        try:
            while True:
                ticks = await self._pass()
                if this_round is None or this_round.done():
                    if this_round is not None:
                        this_round.result()
                    this_round = asyncio.create_task(self._do_round(ticks))
                await asyncio.sleep(_PERIOD_S)
        finally:
            ending = [*self._sweeps.values(), *([] if this_round is None else [this_round])]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def maintain(self, run: str) -> None:
        """Do for one run now what passes and rounds do, even if another process maintains it."""
        if run in self._environments.heartbeats.runs():
            await self._record([run])
        await self._return_lost(run)
        tick = await self._runs.tick(run, self._resting.last([run])[run])
        self._note(run, tick)
        await self._do_due_work(run, tick, forget_idle=True)
        await self._look_for_alerts(run)
        if tick.unswept:
            await self._sweeps.pop(run)

    async def _pass(self) -> dict[str, Tick]:
        """Do what each process does; return the ticks of the runs that this one maintains."""
        try:
            maintained = await self._processes.beat(self._worker)
            await self._isolated(self._record, self._environments.heartbeats.runs(), self._heartbeats)
            ticks: dict[str, Tick] = {}
            if maintained is None:
                self._alerts.keep_only(())
            else:
                ticks = await self._isolated(partial(self._tick, maintained), maintained.due, self._ticks)
            self._unlooked |= ticks.keys()
            self._passes += 1
            if self._passes % _FORGET_EVERY == 0:
                self._forget_others(await self._runs.names())
        except LachesisError as error:
            self._log_outage(error)
            return {}
        self._outage_lines.forget("outage")
        return ticks

    async def _isolated(
        self, do: Callable[[Sequence[str]], Awaitable[dict[str, T]]], runs: Sequence[str], known: RunFailures
    ) -> dict[str, T]:
        found, failures = await for_each_run(do, [run for run in runs if not known.rests(run)])
        for run in found:
            known.went_well(run)
        for run, failure in failures.items():
            known.failed(run, failure)
        return found

    async def _record(self, runs: Sequence[str]) -> dict[str, None]:
        pending = {run: self._environments.heartbeats.drain(run) for run in runs}
        try:
            await self._runs.record_heartbeats(pending)
        except BaseException:
            for run, heartbeats in pending.items():
                self._environments.heartbeats.put_back(run, heartbeats)
            raise
        return dict.fromkeys(runs)

    async def _tick(self, maintained: Maintained, runs: Sequence[str]) -> dict[str, Tick]:
        ticks = await self._runs.tick_all(self._resting.last(runs), maintained.term)
        for run, tick in ticks.items():
            self._note(run, tick)
        return ticks

    def _note(self, run: str, tick: Tick) -> None:
        self._resting.note(run, tick)
        if tick.expired:
            self._expired[run] += tick.expired

    def _forget_others(self, names: Collection[str]) -> None:
        """Forget what this process knows of runs that are gone."""
        names = set(names)
        admission, arrivals, insertion = self._groups.admission, self._groups.arrivals, self._replay.insertion
        failures = self._failures, self._heartbeats, self._ticks, self._histories
        others = self._resting, self._history, self._alerts, self._recorder
        for known in (admission, arrivals, insertion, *others, *failures):
            known.keep_only(names)
        self._sweeps = {run: task for run, task in self._sweeps.items() if not task.done()}
        for run in self._expired.keys() - names:
            del self._expired[run]
        self._runs.forget_unused()
        self._environments.demand.forget_unused()

    async def _do_round(self, ticks: Mapping[str, Tick]) -> None:
        for run in self._batches.atropos_delivery.runs_to_recheck():
            await self._guarded(run, self._return_lost(run))
        self._rounds += 1
        if ticks or self._rounds % _WATCH_EVERY == 0:  # buffers of sleeping runs count, too
            await self._evict_if_full()
        if self._rounds % _WATCH_EVERY == 0:
            await self._watch.look()
        woken, self._awake = ticks.keys() - self._awake, set(ticks)
        for run, tick in ticks.items():
            forget_idle = run in woken or self._rounds % _IDLE_EVERY == 0
            await self._guarded(run, self._do_due_work(run, tick, forget_idle=forget_idle))
        for run in await self._due_histories(ticks):
            replay = run in ticks and ticks[run].replay
            writing = self._history.write(run, maintained=run in ticks, replay=replay)
            await self._guarded(run, writing, self._histories)
        if self._rounds % _ALERTS_EVERY == 0:
            for run in list(self._unlooked):  # a run that was awake for one pass may have changed, too
                await self._guarded(run, self._look_for_alerts(run))
                self._unlooked.discard(run)

    async def _guarded(self, run: str, work: Coroutine[None, None, None], failures: RunFailures | None = None) -> None:
        failures = failures or self._failures
        if failures.rests(run):
            work.close()
            return
        try:
            done = await isolated(work)
        except LachesisError as error:
            self._log_outage(error)
            return
        if isinstance(done, Failure):
            failures.failed(run, done)
        else:
            failures.went_well(run)

    async def _look_for_alerts(self, run: str) -> None:
        await self._alerts.look(run, await self._runs.view(run))

    def _sweep(self, run: str) -> None:
        """Check waiting groups in a task of its own, as there may be millions."""
        task = self._sweeps.get(run)
        if task is None or task.done():
            work = self._guarded(run, self._groups.staleness.finish(run))
            self._sweeps[run] = asyncio.create_task(work, name=f"sweep of run {run}")

    async def _return_lost(self, run: str) -> None:
        await self._batches.atropos_delivery.return_lost(run, await self._runs.queue(run))

    async def _evict_if_full(self) -> None:
        try:
            await self._replay.eviction.evict_if_full()
        except LachesisError as error:
            self._log_outage(error)

    async def _due_histories(self, ticks: Mapping[str, Tick]) -> Collection[str]:
        try:
            return await self._history.due({run: tick.replay for run, tick in ticks.items()})
        except LachesisError as error:
            self._log_outage(error)
            return ()

    def _log_outage(self, error: LachesisError) -> None:
        if self._outage_lines.is_due("outage"):
            log.warning("maintenance cannot reach Redis, trying again: %s", error)

    async def _do_due_work(self, run: str, tick: Tick, *, forget_idle: bool) -> None:
        """Do the work that the tick found; nothing for an idle run."""
        if tick.buffered or tick.leased:
            view = await self._runs.queue(run)
            await self._batches.dispatch.quarantine_exhausted(run, view)
            await self._groups.atropos.release_overdue(run, view, self._timing.buffer_release_ms)
        if tick.replay:
            await self._replay.buffers.maintain(run)
        if tick.loading:
            await self._curriculum.states.maintain(run, tick.clock_ms)
        if tick.unreferenced:
            await self._garbage.mark_abandoned(run, tick.clock_ms - self._timing.orphan_ttl_ms)
        if tick.unreferenced or tick.marked_hashes:
            await self._garbage.delete_marked(run)
        if tick.aging:
            await self._groups.staleness.sweep_ages(run)
        if tick.unswept:
            self._sweep(run)
        if tick.due:
            while await self._known.forget_old(run) >= MOST_FORGOTTEN:
                pass
        if run in self._expired:
            await self._environments.registry.note_expired(run, self._expired.pop(run))
        if tick.environments and forget_idle:
            await self._environments.registry.forget_idle(run)
        if not tick.held:
            await self._runs.forget(run)
        await self._resting.look_ahead(run, tick)
