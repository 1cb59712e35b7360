"""What every API process does each second, whoever calls: clock, signs of life, old buffers, garbage, empty runs."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from app.core.errors import LachesisError, StoreRefused
from app.services.admission import Admission
from app.services.arrivals import Arrivals
from app.services.curriculum.states import CurriculumStates
from app.services.dispatch import Dispatch
from app.services.intake import Intake
from app.services.presence import Presence
from app.services.replay.buffer import Replay
from app.services.sending import Sending
from app.services.staleness import Staleness
from app.store.groups import GroupStore
from app.store.run_tick import Tick
from app.store.runs import MOST_FORGOTTEN, RunStore

_PERIOD_S = 1.0

log = logging.getLogger("lachesis.maintenance")


class Maintenance:
    """A loop that several API processes may run side by side: each step is safe to repeat."""

    def __init__(
        self,
        runs: RunStore,
        groups: GroupStore,
        admission: Admission,
        intake: Intake,
        dispatch: Dispatch,
        sending: Sending,
        staleness: Staleness,
        arrivals: Arrivals,
        presence: Presence,
        replay: Replay,
        curriculum_states: CurriculumStates,
        *,
        buffer_release_ms: int,
        orphan_ttl_ms: int,
    ) -> None:
        self._runs = runs
        self._groups = groups
        self._admission = admission
        self._intake = intake
        self._dispatch = dispatch
        self._sending = sending
        self._staleness = staleness
        self._arrivals = arrivals
        self._presence = presence
        self._replay = replay
        self._curriculum_states = curriculum_states
        self._buffer_release_ms = buffer_release_ms
        self._orphan_ttl_ms = orphan_ttl_ms

    async def run_forever(self) -> None:
        """Tick all runs each second and look after them, until cancelled; trouble with Redis is logged and waited out.

        Ticks do not wait for the rest: others take a process that does not tick for dead, and so its environments.
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
        """Do one pass over a run."""
        await self._do(run, (await self._tick([run]))[run])

    async def _tick_all(self) -> dict[str, Tick]:
        try:
            names = await self._runs.names()
            self._admission.keep_only(names)
            self._arrivals.keep_only(names)
            try:
                return await self._tick(names)
            except StoreRefused:
                return await self._tick_one_by_one(names)
        except LachesisError as error:
            log.warning("maintenance waits: %s", error)
            return {}

    async def _tick_one_by_one(self, names: Sequence[str]) -> dict[str, Tick]:
        """Tick where one run makes trouble, which must not keep the others waiting."""
        ticks: dict[str, Tick] = {}
        for run in names:
            try:
                ticks |= await self._tick([run])
            except LachesisError as error:
                log.warning("maintenance of run %s waits: %s", run, error)
        return ticks

    async def _tick(self, names: Sequence[str]) -> dict[str, Tick]:
        heard_of = {run: self._presence.drain(run) for run in names}
        try:
            return await self._runs.tick_all(self._sending.worker, heard_of)
        except LachesisError:
            for run, environments in heard_of.items():
                for environment in environments:
                    self._presence.heard(run, environment)
            raise

    async def _look_after_all(self, ticks: Mapping[str, Tick]) -> None:
        for run, tick in ticks.items():
            try:
                await self._do(run, tick)
            except LachesisError as error:
                log.warning("maintenance of run %s waits: %s", run, error)

    async def _do(self, run: str, tick: Tick) -> None:
        """Do what the tick found there is to do: for an idle run, nothing."""
        if tick.buffered or tick.leased:
            view = await self._runs.view(run)
            await self._sending.return_lost(run, view)
            await self._dispatch.quarantine_exhausted(run, view)
            await self._intake.release_overdue(run, view, self._buffer_release_ms)
        if tick.replay:
            await self._replay.look_after(run)
        if tick.loading:
            await self._curriculum_states.look_after(run, tick.clock_ms)
        if tick.unindexed:
            await self._groups.give_up_orphans(run, tick.clock_ms - self._orphan_ttl_ms)
        if tick.unindexed or tick.trash:
            await self._groups.sweep(run)
        if tick.aging:
            await self._staleness.sweep_ages(run)
        if tick.due:
            while await self._runs.forget_old(run) >= MOST_FORGOTTEN:
                pass
        if not tick.held:
            await self._runs.forget(run)
