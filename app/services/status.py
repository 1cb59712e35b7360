"""Describe the state of a run for operators."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from app.core.access.rate_limits import LimitUse, limits_of
from app.core.batches.leases import WITH_A_TRAINER
from app.core.batches.pace import MOST_BATCHES, BatchPace, pace
from app.core.environments.record import EnvironmentRecord
from app.core.model import LaneId
from app.core.runs.alert import RunAlert, alert_of
from app.core.runs.ledger import TokenLedger, ledger_of, ledger_of_run
from app.core.runs.view import RunView
from app.services.batches.diagnostics import BatchDiagnosis, Diagnostics
from app.services.batches.spans import batch_spans
from app.services.isolation import RepeatedFailure, RunFailures
from app.store.access.rate_limits import LimitStore, of_run
from app.store.batches.records import BatchRecordStore
from app.store.groups.known import KnownGroupStore
from app.store.groups.store import GroupStore
from app.store.runs.store import RunStore
from app.store.server.watch import StoreWatch
from lachesis.wire.limits import RateLimitSettings

Kind = TypeVar("Kind")

ENVIRONMENTS_SHOWN = 256
"""Environments on a page of a status, unless a request says otherwise."""

MOST_ENVIRONMENTS_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """What is known of an environment.

    Attributes:
        record: Its settings and signs of life.
        alive: Whether its shares count.
        last_seen_age_ms: Time since its last sign of life, ``>= 0``.
        running_groups: Groups that its members have started and not submitted.
        queued: Groups of it in the queue, by size.
        buffered: Groups of it in the set buffer, by size.
        served_sequences: Sequences of it in batches.
        share_got: Fraction of it in all sequences served; None before any.
        needed_sequences: Sequences that the next batch must have of it.
        owed_sequences: Sequences that relaxed batches fell short of its minimum.
        dropped: Groups of it that were dropped, by reason.
        ledger: What happened to its tokens.
        token_cost: What a million tokens cost, if the run says so.
        sequences_per_s: Its trainable sequences per second; None if that is unknown.
    """

    record: EnvironmentRecord
    alive: bool
    last_seen_age_ms: int
    running_groups: int
    queued: Mapping[int, int]
    buffered: Mapping[int, int]
    served_sequences: int
    share_got: float | None
    needed_sequences: int
    owed_sequences: int
    dropped: Mapping[str, int]
    ledger: TokenLedger
    token_cost: float | None
    sequences_per_s: float | None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What operators need to know of a run.

    Attributes:
        run: Its name.
        diagnosis: The view of the run, and why there is no batch.
        alert: What an operator should look at, if anything.
        ledger: What happened to its tokens.
        environments: A page of its environments, by id.
        next_after: The id after which the next page begins; None on the last one.
        alive: Environments that are alive, on all pages.
        oldest_waiting_ms: Age of the oldest queued group that fits a batch, if there is one.
        oversized_groups: Queued groups that can never enter a batch.
        remembered_groups: Groups that have left and are remembered.
        failure: Why its maintenance keeps failing in this process, if it does.
        failing_age_s: Seconds since the first such failure.
        limits: Its rate limits, and how much of each is used.
        durability: How Redis keeps its data.
        pace: How fast batches follow each other.
    """

    run: str
    diagnosis: BatchDiagnosis
    alert: RunAlert | None
    ledger: TokenLedger
    environments: list[EnvironmentFacts]
    next_after: int | None
    alive: int
    oldest_waiting_ms: int | None
    oversized_groups: int
    remembered_groups: int
    failure: RepeatedFailure | None
    failing_age_s: float
    limits: Sequence[LimitUse]
    durability: str
    pace: BatchPace


class Status:
    """Describes runs. This also drops groups that are too old, as taking a batch does."""

    def __init__(
        self,
        runs: RunStore,
        groups: GroupStore,
        known: KnownGroupStore,
        records: BatchRecordStore,
        limits: LimitStore,
        diagnostics: Diagnostics,
        failures: RunFailures,
        watch: StoreWatch,
    ) -> None:
        self._runs = runs
        self._groups = groups
        self._known = known
        self._records = records
        self._limits = limits
        self._diagnostics = diagnostics
        self._failures = failures
        self._watch = watch

    async def of(self, run: str, limit: int = ENVIRONMENTS_SHOWN, after: int = -1) -> RunFacts:
        """Describe a run: its trainer and environments, what waits, and what blocks.

        Args:
            run: The run's name.
            limit: Most environments to describe.
            after: Describe environments with larger ids.
        """
        diagnosis = await self._diagnostics.of(run)
        view, failure = diagnosis.view, self._failures.of(run)
        fitting = view.fitting_lanes
        page = list(islice((key for key in view.environments if key > after), limit + 1))
        return RunFacts(
            run=run,
            diagnosis=diagnosis,
            alert=alert_of(view),
            ledger=ledger_of_run(view.tokens),
            environments=self.environments(run, view, page[:limit]),
            next_after=page[limit - 1] if len(page) > limit else None,
            alive=len(view.live.records),
            oldest_waiting_ms=await self._oldest_waiting_ms(run, view, fitting),
            oversized_groups=oversized_groups(view, fitting),
            remembered_groups=await self._known.remembered(run),
            failure=failure,
            failing_age_s=0.0 if failure is None else self._failures.failing_age_s(failure),
            limits=await self._used(run, view),
            durability=self._watch.durability,
            pace=await self._pace(run, diagnosis),
        )

    def environments(self, run: str, view: RunView, only: Collection[int] | None = None) -> list[EnvironmentFacts]:
        """Describe a run's environments, or those with some ids, in this order."""
        wanted = list(view.environments if only is None else only)
        bounds = view.bounds
        queued, buffered = _by_owner(view.lanes, wanted), _by_owner(view.buffers, wanted)
        dropped = _by_owner({(owner, reason): count for (reason, owner), count in view.dropped.items()}, wanted)
        tokens = _by_owner({(owner, state): count for (state, owner), count in view.tokens.items()}, wanted)
        handed_out, rates = sum(view.served.values()), self._diagnostics.rates(run)
        facts = []
        for key in wanted:
            env, served = view.environments[key], view.served.get(key, 0)
            facts.append(
                EnvironmentFacts(
                    record=env,
                    alive=view.is_alive(env),
                    last_seen_age_ms=max(0, view.clock_ms - env.last_seen_ms),
                    running_groups=view.running.get(key, 0),
                    queued=queued.get(key, {}),
                    buffered=buffered.get(key, {}),
                    served_sequences=served,
                    share_got=served / handed_out if handed_out else None,
                    needed_sequences=bounds[key].minimum if key in bounds else 0,
                    owed_sequences=max(0, view.debts.get(key, 0)),
                    dropped=dropped.get(key, {}),
                    ledger=ledger_of(tokens.get(key, {})),
                    token_cost=view.policy.cost_per_million_tokens,
                    sequences_per_s=rates.get(key),
                )
            )
        return facts

    async def _used(self, run: str, view: RunView) -> Sequence[LimitUse]:
        limits = limits_of(RateLimitSettings, view.policy) or RateLimitSettings()
        return (await self._limits.used([(of_run(run), limits)]))[0]

    async def _pace(self, run: str, diagnosis: BatchDiagnosis) -> BatchPace:
        view = diagnosis.view
        out = any(lease.state in WITH_A_TRAINER for lease in view.leases)
        spans = await batch_spans(self._records, run, view, MOST_BATCHES)
        return pace(spans, view.began_ms, view.clock_ms, blocked=diagnosis.not_ready is not None and not out)

    async def _oldest_waiting_ms(self, run: str, view: RunView, fitting: Mapping[LaneId, int]) -> int | None:
        by_age = await self._groups.lanes_by_age(run) if fitting else iter(())
        oldest = next((lane for lane in by_age if lane in fitting), None)
        if oldest is None:
            return None
        (lane,) = await self._groups.heads(run, {oldest: (1, 1)})
        heads = lane.heads
        if not heads:  # it has left in the meantime
            return None
        (entry,) = await self._groups.entries(run, [min(heads).group_id])
        return None if entry is None else max(0, view.clock_ms - entry.accepted_ms)  # it may be newer than the view


def oversized_groups(view: RunView, fitting: Mapping[LaneId, int]) -> int:
    """Count the queued groups that are not in ``fitting`` (`QueueView.fitting_lanes`): they can never enter a batch."""
    return sum(view.lanes.values()) - sum(fitting.values())


def _by_owner(
    counts: Mapping[tuple[int | None, Kind], int], wanted: Collection[int]
) -> dict[int | None, dict[Kind, int]]:
    """Sort counts by environment, of those that are wanted."""
    keys, found = set(wanted), dict[int | None, dict[Kind, int]]()
    for (owner, kind), count in counts.items():
        if owner in keys:
            found.setdefault(owner, {})[kind] = count
    return found
