"""What every API process does each second, whoever calls: clock, signs of life, overdue buffers, garbage."""

import asyncio
import logging

from app.core.errors import LachesisError
from app.services.dispatch import Dispatch
from app.services.intake import Intake
from app.services.presence import Presence
from app.store.groups import GroupStore
from app.store.runs import RunStore

_PERIOD_S = 1.0

log = logging.getLogger("lachesis.maintenance")


class Maintenance:
    """A loop that several API processes may run side by side: each step is safe to repeat."""

    def __init__(
        self,
        runs: RunStore,
        groups: GroupStore,
        intake: Intake,
        dispatch: Dispatch,
        presence: Presence,
        *,
        buffer_release_ms: int,
        orphan_ttl_ms: int,
    ) -> None:
        self._runs = runs
        self._groups = groups
        self._intake = intake
        self._dispatch = dispatch
        self._presence = presence
        self._buffer_release_ms = buffer_release_ms
        self._orphan_ttl_ms = orphan_ttl_ms

    async def run_forever(self) -> None:
        """Look after all runs until cancelled; trouble with Redis is logged once per pass and waited out."""
        while True:
            await self._pass()
            await asyncio.sleep(_PERIOD_S)

    async def _pass(self) -> None:
        try:
            names = await self._runs.names()
        except LachesisError as error:
            log.warning("maintenance waits: %s", error)
            return
        for run in names:
            try:
                await self.look_after(run)
            except LachesisError as error:  # one run's trouble must not keep the others waiting
                log.warning("maintenance of run %s waits: %s", run, error)

    async def look_after(self, run: str) -> None:
        """Do one pass over a run."""
        heard_of = self._presence.drain(run)
        try:
            clock_ms = await self._runs.tick(run, self._dispatch.worker, heard_of)
        except LachesisError:
            for environment in heard_of:
                self._presence.heard(run, environment)
            raise
        view = await self._runs.view(run)
        await self._dispatch.give_back_lost(run, view)
        if view.buffers:
            await self._intake.release_overdue(run, view, self._buffer_release_ms)
        await self._groups.give_up_orphans(run, clock_ms - self._orphan_ttl_ms)
        await self._groups.sweep(run)
