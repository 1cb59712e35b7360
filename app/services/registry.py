"""Who takes part in a run: its trainer and its environments."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.core.enrolment import Application, enrol, recorded
from app.core.errors import EnvironmentNotFound, InvalidField, NotAnAtroposRun
from app.core.granting import Grant, granted
from app.core.model import Environment, RunConfig, RunView
from app.core.pacing import Pace, pace
from app.events import EnvironmentJoined, EnvironmentLeft, RunReset, TrainerRegistered, emit
from app.services.bookmarks import Bookmarks
from app.services.presence import Presence
from app.store.runs import RunStore

MOST_ENVIRONMENTS = 4096
"""Environments a run takes. Every view reads their records, so a worker gone mad must not add them without end."""


class Registry:
    """Registers trainers and environments, and answers what they ask about the run."""

    def __init__(self, runs: RunStore, bookmarks: Bookmarks, presence: Presence, environment_ttl_ms: int) -> None:
        self._runs = runs
        self._bookmarks = bookmarks
        self._presence = presence
        self._ttl_ms = environment_ttl_ms

    async def view(self, run: str) -> RunView:
        """Read the run without its queue."""
        return await self._runs.view(run)

    async def register_trainer(self, run: str, config: RunConfig) -> None:
        """Register a trainer. The same configuration again changes nothing; another one replaces it.

        Batches that a former trainer has not acknowledged are handed out again first.
        """
        await self._runs.announce(run)
        if (await self._runs.view(run)).config != config:
            await self._bookmarks.forget(run)  # their steps mean nothing in what begins now
        new = await self._runs.register(run, config)
        emit(TrainerRegistered(run=run, batch_size=config.batch_size, config="new" if new else "same"))

    async def register_environment(self, run: str, application: Application) -> tuple[Environment, RunView] | None:
        """Register an environment, or take an old one's place (`app.core.enrolment`).

        Raises:
            InvalidField: The run is full.

        Returns:
            Its record and the run it joined, or None while the trainer has not asked for its first batch.
        """
        while True:
            view = await self._runs.view(run)
            if view.config is None or not view.started:
                return None
            environment = enrol(application, view.environments, view.clock_ms, self._ttl_ms)
            _refuse_beyond_most(environment, view)
            if await self._put(run, environment, view):
                emit(EnvironmentJoined(run=run, environment=environment.environment, name=environment.name))
                return environment, view

    def answered(self, run: str, environment: int) -> None:
        """Note that an environment has the answer to its registration: only now it is heard of."""
        self._presence.heard(run, environment)

    def answer_lost(self, run: str, environment: int) -> None:
        """Note that the answer to a registration did not arrive, whatever was noted before."""
        self._presence.forget(run, environment)

    async def disconnect_environment(self, run: str, environment: int) -> bool:
        """Note that an environment said goodbye; False if there is none of that id."""
        while True:
            view = await self._runs.view(run)
            known = view.environments.get(environment)
            if known is None:
                return False
            if await self._put(run, replace(known, connected=False), view):
                emit(EnvironmentLeft(run=run, environment=environment, name=known.name))
                return True

    async def _put(self, run: str, environment: Environment, view: RunView) -> bool:
        """Write an environment's record if it says anything new: that outdates every plan in flight.

        Returns:
            False if the run changed since ``view``: look again, decide again.
        """
        if view.environments.get(environment.environment) == environment:
            return True
        return await self._runs.put_environment(run, environment, view.epoch)

    # Environments of the native API: their name is who they are

    async def join(self, run: str, application: Application) -> tuple[Environment, RunView, bool]:
        """Register an environment under its name; it is the same one if that is known.

        Returns:
            Its record, the run, and whether it is new.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: The run is full.
        """
        while True:
            view = await self._runs.existing(run)
            known = next((env for env in view.environments.values() if env.name == application.desired_name), None)
            environment = recorded(application, known, view.environments, view.clock_ms)
            _refuse_beyond_most(environment, view)
            if await self._put(run, environment, view):
                emit(EnvironmentJoined(run=run, environment=environment.environment, name=environment.name))
                self._presence.heard(run, environment.environment)
                return environment, await self._runs.view(run), known is None

    async def change_environment(self, run: str, environment: int, changes: Mapping[str, Any]) -> RunView:
        """Change an environment's shares, weight or group size; returns the run.

        Raises:
            EnvironmentNotFound: There is none of that id.
        """
        while True:
            view = await self.known(run, environment)
            changed = replace(view.environments[environment], **changes)
            if await self._put(run, changed, view):
                return await self._runs.view(run)

    async def known(self, run: str, environment: int) -> RunView:
        """Read a run that has this environment.

        Raises:
            RunNotFound: There is no such run.
            EnvironmentNotFound: It has none of that id.
        """
        view = await self._runs.existing(run)
        if environment not in view.environments:
            raise EnvironmentNotFound(f"run {run} has no environment {environment}")
        return view

    async def heartbeat(self, run: str, environment: int, running_groups: int | None) -> Grant:
        """Note a sign of life, and answer how many groups the environment may start now.

        Args:
            run: The run's name.
            environment: The environment's id.
            running_groups: Groups it has started and not submitted yet; None: as it said before.

        Raises:
            EnvironmentNotFound: There is none of that id.
            RunNotFound: There is no such run.
        """
        view = await self.known(run, environment)
        self._presence.heard(run, environment)
        if running_groups is not None and view.running.get(environment, 0) != running_groups:
            await self._runs.note_running(run, environment, running_groups)
            view = replace(view, running={**view.running, environment: running_groups})
        return granted(run, view, environment, self._ttl_ms)

    async def pace(self, run: str, environment: int) -> Pace:
        """Tell an environment how full the queue is; a sign of life."""
        view = await self._runs.view(run)
        if environment in view.environments:
            self._presence.heard(run, environment)
        return pace(view, environment, self._ttl_ms)

    async def reset(self, run: str) -> None:
        """Forget everything about a run, if no client of the native API made it.

        Raises:
            NotAnAtroposRun: One did; nothing was changed.
        """
        if not await self._runs.reset(run, uuid.uuid4().hex, spare_native=True):
            how = f"DELETE /v1/runs/{run} removes it"
            raise NotAnAtroposRun(f"run {run} was made under /v1, so clients of Atropos do not reset it; {how}")
        emit(RunReset(run=run))


def _refuse_beyond_most(environment: Environment, view: RunView) -> None:
    if environment.environment not in view.environments and len(view.environments) >= MOST_ENVIRONMENTS:
        raise InvalidField(f"the run has {MOST_ENVIRONMENTS} environments, and takes no more")
