"""Map the state of a run and of its environments to the models of replies."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from app.api.wire.access import shown_uses
from app.core.batches.leases import seconds_left
from app.core.groups.staleness_forecast import staleness_forecast
from app.core.ranks.sharding import BalanceHistory
from app.core.runs.alert import RunAlert
from app.core.runs.ledger import TokenLedger
from app.core.runs.view import QueueView
from app.core.runs.warnings import RunWarning
from app.services.batches.diagnostics import BatchDiagnosis
from app.services.status import EnvironmentFacts, RunFacts
from lachesis.wire.access import AccessMode
from lachesis.wire.ranks import BalanceInfo
from lachesis.wire.status import (
    Alert,
    BatchBlocked,
    ByteCounts,
    EnvironmentStatus,
    GroupCounts,
    LeaseStatus,
    Ledger,
    LedgerCost,
    Pace,
    RanksStatus,
    RunStatus,
    StalenessForecast,
    UpkeepStatus,
    Warned,
)


def shown_status(facts: RunFacts, access: AccessMode, connections: int) -> RunStatus:
    """Describe a run: its trainer and environments, what waits, and what blocks."""
    view, failure = facts.diagnosis.view, facts.failure
    totals, oversized = view.totals, facts.oversized_groups
    forecast = staleness_forecast(view)
    return RunStatus(
        current_step=view.step,
        queue_size=totals.queued_groups - oversized,
        run=facts.run,
        batch_size=view.batch_size if view.config else -1,
        trainer_started=view.started,
        ready=facts.diagnosis.not_ready is None,
        blocked=_blocked(facts.diagnosis),
        pace=_pace(facts),
        intake_paused=view.policy.intake_paused,
        serving_paused=view.policy.serving_paused,
        oldest_waiting_s=None if facts.oldest_waiting_ms is None else facts.oldest_waiting_ms / 1000,
        environments=shown_environments(facts.environments),
        next_after=facts.next_after,
        registered_environments=len(view.environments),
        alive_environments=facts.alive,
        unowned_groups=sum(count for (environment, _), count in view.lanes.items() if environment is None),
        groups=GroupCounts(
            accepted=totals.accepted_groups,
            queued=totals.queued_groups,
            buffered=totals.buffered_groups,
            leased=totals.leased_groups,
            delivered=totals.delivered_groups,
            oversized=oversized,
            remembered=facts.remembered_groups,
        ),
        bytes=ByteCounts(
            queued=totals.queued_bytes,
            buffered=totals.buffered_bytes,
            leased=totals.leased_bytes,
            kept=view.kept.payload_bytes,
        ),
        ledger=_ledger(facts.ledger, view.policy.cost_per_million_tokens),
        policy_version=view.policy_version,
        kept_batches=view.kept.batches,
        dropped=view.dropped_by_reason,
        staleness_forecast=None if forecast is None else StalenessForecast(**asdict(forecast)),
        alert=shown_alert(facts.alert),
        warnings=shown_warnings(facts.diagnosis.warnings),
        leases=[
            LeaseStatus(
                batch=lease.batch_id,
                state=lease.state,
                step=lease.step,
                delivery_count=lease.delivery_count,
                expires_s=seconds_left(lease, view.clock_ms),
            )
            for lease in view.leases
        ],
        relaxed_batches=view.relaxed_batches,
        ranks=None if view.balance is None else _ranks(view.balance),
        upkeep=None
        if failure is None
        else UpkeepStatus(detail=failure.failure.detail, attempts=failure.attempts, failing_age_s=facts.failing_age_s),
        limits=shown_uses(facts.limits),
        connections=connections,
        durability=facts.durability,
        access=access,
    )


def shown_environments(environments: Sequence[EnvironmentFacts]) -> list[EnvironmentStatus]:
    """Describe environments."""
    return list(map(shown_environment, environments))


def shown_environment(facts: EnvironmentFacts) -> EnvironmentStatus:
    """Describe an environment."""
    record = facts.record
    return EnvironmentStatus(
        id=record.environment,
        name=record.name,
        alive=facts.alive,
        connected=record.connected,
        members=record.members,
        running_groups=facts.running_groups,
        last_seen_age_s=facts.last_seen_age_ms / 1000,
        group_size=record.group_size,
        weight=record.weight,
        queued_groups=sum(facts.queued.values()),
        queued_sequences=_sequences(facts.queued),
        buffered_groups=sum(facts.buffered.values()),
        buffered_sequences=_sequences(facts.buffered),
        served_sequences=facts.served_sequences,
        share_promised=record.min_share or 0.0,
        share_limit=record.max_share,
        share_got=facts.share_got,
        needs_sequences=facts.needed_sequences,
        owed_sequences=facts.owed_sequences,
        dropped=dict(facts.dropped),
        ledger=_ledger(facts.ledger, facts.token_cost),
        sequences_per_s=facts.sequences_per_s,
    )


def shown_warnings(warnings: Sequence[RunWarning]) -> list[Warned]:
    """Describe the warnings of a run."""
    return [Warned(kind=one.kind.value, detail=one.detail, environments=list(one.environments)) for one in warnings]


def shown_alert(alert: RunAlert | None) -> Alert | None:
    """Describe what an operator should look at, if anything."""
    if alert is None:
        return None
    return Alert(
        started_age_s=alert.age_ms / 1000,
        sequences=alert.sequences,
        dropped=dict(alert.dropped),
        environments=list(alert.environments),
        detail=alert.detail,
    )


def _ledger(ledger: TokenLedger, token_cost: float | None) -> Ledger:
    tokens = {f"{state}_tokens": count for state, count in ledger.by_state().items()}
    cost = None if token_cost is None else LedgerCost(**ledger.cost(token_cost))
    return Ledger(generated_tokens=ledger.generated, **tokens, cost=cost)


def _sequences(groups_by_size: Mapping[int, int]) -> int:
    return sum(size * count for size, count in groups_by_size.items())


def _ranks(history: BalanceHistory) -> RanksStatus:
    return RanksStatus(
        batches=history.batches,
        world_size=history.world_size,
        mean_imbalance=history.imbalance / history.batches,
        mean_contiguous=history.contiguous / history.batches,
        mean_bound=history.bound / history.batches,
        last=BalanceInfo(**asdict(history.last)),
    )


def _pace(facts: RunFacts) -> Pace:
    view = facts.diagnosis.view
    return Pace(
        last_batch_age_s=last_batch_age_s(view),
        batch_interval_s=facts.pace.batch_interval_s,
        trainer_idle_share=facts.pace.idle_share,
        blocked_s=facts.pace.blocked_s,
        waiting_age_s=None if view.waited_ms is None else (view.clock_ms - view.waited_ms) / 1000,
        arriving_sequences_per_s=facts.diagnosis.rate,
    )


def last_batch_age_s(view: QueueView) -> float | None:
    """Return the seconds since the last batch was taken; None before the first."""
    return None if view.last_batch_ms is None else (view.clock_ms - view.last_batch_ms) / 1000


def _blocked(diagnosis: BatchDiagnosis) -> BatchBlocked | None:
    not_ready = diagnosis.not_ready
    if not_ready is None:
        return None
    return BatchBlocked(
        reason=not_ready.blocker.value,
        detail=not_ready.detail,
        missing_sequences=not_ready.missing_sequences,
        missing_by_environment=dict(not_ready.missing_by_environment),
        unblocked_by=list(not_ready.unblocked_by),
        expected_s=diagnosis.expected_s,
        relaxes_s=diagnosis.relaxes_s,
    )
