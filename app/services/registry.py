"""Who takes part in a run: its trainer and its environments."""

import uuid
from dataclasses import replace

from app.core.enrolment import Application, enrol
from app.core.errors import InvalidField
from app.core.model import Environment, RunConfig, RunView
from app.core.pacing import Pace, pace
from app.services.presence import Presence
from app.store.runs import RunStore

MOST_ENVIRONMENTS = 4096
"""Environments a run takes. Every view reads their records, so a worker gone mad must not add them without end."""


class Registry:
    """Registers trainers and environments, and answers what they ask about the run."""

    def __init__(self, runs: RunStore, presence: Presence, environment_ttl_ms: int) -> None:
        self._runs = runs
        self._presence = presence
        self._ttl_ms = environment_ttl_ms

    async def view(self, run: str) -> RunView:
        """Read the run without its queue."""
        return await self._runs.view(run)

    async def register_trainer(self, run: str, config: RunConfig) -> None:
        """Register a trainer. The same configuration again changes nothing; another one replaces it.

        Batches that a former trainer has not acknowledged are served again first.
        """
        await self._runs.announce(run)
        await self._runs.register(run, config)

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
            if environment.environment not in view.environments and len(view.environments) >= MOST_ENVIRONMENTS:
                raise InvalidField(f"the run has {MOST_ENVIRONMENTS} environments, and takes no more")
            if await self._runs.put_environment(run, environment, view.epoch):
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
            if await self._runs.put_environment(run, replace(known, connected=False), view.epoch):
                return True

    async def pace(self, run: str, environment: int) -> Pace:
        """Tell an environment how full the queue is; a sign of life."""
        view = await self._runs.view(run)
        if environment in view.environments:
            self._presence.heard(run, environment)
        return pace(view, environment, self._ttl_ms)

    async def reset(self, run: str) -> None:
        """Forget everything about a run."""
        await self._runs.reset(run, uuid.uuid4().hex)
