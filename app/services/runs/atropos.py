"""Register the trainer of a run of Atropos, and reset the run."""

import uuid

from app.core.runs.settings import RunConfig
from app.core.runs.view import RunView
from app.events import RunReset, TrainerRegistered, emit, note_settings
from app.services.batches.retention import Retention
from app.store.runs.store import RunStore
from lachesis.wire.errors import NotAnAtroposRun, RunArchived


class AtroposRuns:
    """The runs, for clients of Atropos."""

    def __init__(self, runs: RunStore, retention: Retention) -> None:
        self._runs = runs
        self._retention = retention

    async def view(self, run: str) -> RunView:
        """Return a run. Before a trainer has registered, it has no configuration."""
        return await self._runs.view(run)

    async def register(self, run: str, config: RunConfig, *, by_operator: bool = True) -> None:
        """Register a trainer. The same configuration again changes nothing; another one replaces it.

        Batches that a former trainer has not acknowledged are handed out again first.

        Args:
            run: The run's name.
            config: Its configuration from now on.
            by_operator: Whether an operator asks. Others change no archived run, and no configuration of a run that
                was made under ``/v1``.

        Raises:
            NotAnAtroposRun: The run was made under ``/v1``, with another configuration. Nothing has changed.
            RunArchived: The run is archived. Nothing has changed.
        """
        await self._runs.announce(run)
        view = await self._runs.view(run)
        if view.policy.archived and not by_operator:
            raise RunArchived(f"run {run} is archived; only role operator registers a trainer")
        if view.config != config:
            if not by_operator and await self._runs.was_created(run):
                raise NotAnAtroposRun(
                    f"run {run} was made under /v1 with another configuration; only role operator replaces it here"
                )
            await self._retention.forget(run)  # their steps belong to the former configuration
        new = await self._runs.register(run, config)
        note_settings("run", {"run": run}, view.config, config)
        emit(TrainerRegistered(run=run, batch_size=config.batch_size, config="new" if new else "same"))

    async def reset(self, run: str, *, by_operator: bool = True) -> None:
        """Forget everything about a run, unless it was made under ``/v1``.

        Args:
            run: The run's name.
            by_operator: Whether an operator asks. Others reset no archived run.

        Raises:
            NotAnAtroposRun: The run was made under ``/v1``. Nothing has changed.
            RunArchived: The run is archived. Nothing has changed.
        """
        outcome = await self._runs.reset(run, uuid.uuid4().hex, spare_native=True, spare_archived=not by_operator)
        if outcome == "spared":
            if not await self._runs.was_created(run):
                raise RunArchived(f"run {run} is archived; only role operator resets it")
            how = f"DELETE /v1/runs/{run} removes it"
            raise NotAnAtroposRun(f"run {run} was made under /v1, so clients of Atropos do not reset it; {how}")
        emit(RunReset(run=run))
