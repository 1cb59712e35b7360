"""Explain whether a batch would form now. If not: what is missing, who causes it, and when it should be there."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.core.batches.diagnosis import old_groups, refusal_of, undivided
from app.core.batches.forecast import expected_s
from app.core.batches.planning import Decision
from app.core.environments.granting import Demand
from app.core.groups.filters import Arrived, with_filtered
from app.core.model import NotReady
from app.core.ranks.requests import awaiting
from app.core.runs.settings import RunConfig
from app.core.runs.view import RunView
from app.core.runs.warnings import RunWarning
from app.services.batches.dispatch import Dispatch
from app.services.batches.old_groups import DroppingAttempts
from app.services.groups.arrivals import Arrivals
from app.services.runs.capacity import RunCapacity
from app.services.runs.warnings import RunWarnings
from app.store.replay.store import ReplayStore
from app.store.runs.store import RunStore


@dataclass(frozen=True, slots=True)
class BatchDiagnosis:
    """Why a run is ready or not, as of one view of it.

    Attributes:
        view: The run; in a dry run with the settings to try.
        not_ready: Why there is no batch; None if there is one.
        rates: Trainable sequences per second, by environment.
        arrived: The groups that came lately, and how many of them filters dropped.
        expected_s: Seconds until a batch should form at the present arrival rates; None if that is unknown.
        relaxes_s: Seconds until a batch may form without some minimum; None if no minimum will be relaxed.
        warnings: Problems that no number of new groups solves.
    """

    view: RunView
    not_ready: NotReady | None
    rates: Mapping[int, float]
    arrived: Arrived
    expected_s: float | None = None
    relaxes_s: float | None = None
    warnings: tuple[RunWarning, ...] = ()

    @property
    def rate(self) -> float | None:
        """Trainable sequences per second of all environments; None if that is unknown."""
        return sum(self.rates.values()) if self.rates else None


class Diagnostics:
    """Explains the state of a run. Like the next take, it drops groups that are too old; it changes nothing else."""

    def __init__(
        self,
        runs: RunStore,
        dispatch: Dispatch,
        arrivals: Arrivals,
        buffers: ReplayStore,
        capacity: RunCapacity,
        warnings: RunWarnings,
    ) -> None:
        self._runs = runs
        self._dispatch = dispatch
        self._arrivals = arrivals
        self._buffers = buffers
        self._capacity = capacity
        self._warnings = warnings

    def expected_s(self, run: str, not_ready: NotReady) -> float | None:
        """Return the seconds until a batch should form at the present arrival rates; None if that is unknown."""
        arrivals = self._arrivals
        return expected_s(not_ready, arrivals.rates(run), arrivals.gone(run), arrivals.silent_s(run))

    def rates(self, run: str) -> Mapping[int, float]:
        """Return the known arrival rates of environments: trainable sequences per second."""
        return self._arrivals.rates(run)

    async def of(self, run: str, overrides: Mapping[str, float] | None = None) -> BatchDiagnosis:
        """Return whether a trainer that asked now would get a batch.

        Payloads are not read. A damaged one is found when its batch is taken.

        Args:
            run: The run's name.
            overrides: Settings to try instead of the run's: ``batch_size``, ``relax_after_s``.
        """
        diagnosis = await self._of(run, overrides)
        warnings = self._warnings.tried(diagnosis.view) if overrides else self._warnings.note(run, diagnosis.view)
        return replace(diagnosis, warnings=warnings)

    async def _of(self, run: str, overrides: Mapping[str, float] | None) -> BatchDiagnosis:
        dropping, gives_up = DroppingAttempts(self._runs, run), False
        while True:
            view = await self._runs.view(run)
            refusal = refusal_of(view)
            if view.config is None:
                return BatchDiagnosis(view, refusal, {}, Arrived())
            self._arrivals.note(run, view)
            view = _tried(view, view.config, overrides or {})
            ready = BatchDiagnosis(view, None, self._arrivals.rates(run), self._arrivals.lately(run, view))
            if refusal is not None:
                return replace(ready, not_ready=refusal)
            again = None if overrides else self._dispatch.next_redelivery(view)
            if again is not None:
                return replace(ready, not_ready=undivided(view.undivided, again.batch_id, ()))
            if gives_up:
                return replace(ready, not_ready=old_groups())
            decision = await self._dispatch.plan_next(run, view)
            if decision is None:
                gives_up = await dropping.was_last()
                continue
            if decision.plan is None:
                return await self._explained(run, ready, decision)
            planned = [*(group.group_id for group in decision.plan.groups), *decision.replayed]
            return replace(ready, not_ready=undivided(view.undivided, None, planned))

    async def _explained(self, run: str, ready: BatchDiagnosis, decision: Decision) -> BatchDiagnosis:
        """Add why there is no plan, who causes it, and when there should be one."""
        view, why = ready.view, decision.not_ready
        assert why is not None, "a decision has one or the other"  # noqa: S101
        why = awaiting(with_filtered(why, ready.arrived, view.policy, view.named), view.leases)
        fresh_fraction = view.policy.fresh_fraction
        if fresh_fraction < 1 and not await self._buffers.takes_groups(run):
            idle = f"fresh_fraction is {fresh_fraction}, but no replay buffer takes groups to fill batches up"
            why = why.adding(idle)
        why = why.adding(await self._capacity.reached(run, view))
        why = why.adding(await asyncio.to_thread(self._who_must_act, run, view))
        left_ms = decision.relaxes_in_ms
        return replace(
            ready,
            not_ready=why,
            expected_s=expected_s(why, ready.rates, view.gone_senders, self._arrivals.silent_s(run)),
            relaxes_s=None if left_ms is None else left_ms / 1000,
        )

    def _who_must_act(self, run: str, view: RunView) -> str | None:
        return Demand(run, view).who_must_act()


def _tried(view: RunView, config: RunConfig, overrides: Mapping[str, float]) -> RunView:
    config = config.model_copy(update={"batch_size": int(overrides.get("batch_size", config.batch_size))})
    policy = view.policy.model_copy(update={name: overrides[name] for name in overrides if name == "relax_after_s"})
    return replace(view, config=config, policy=policy)


def stale_groups(view: RunView) -> int:
    """Return how many groups were dropped so far because they were too old."""
    counts = view.dropped_by_reason
    return counts.get("stale", 0) + counts.get("expired", 0)
