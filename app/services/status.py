"""Describe the state of a run for operators."""

from collections.abc import Collection, Sequence
from dataclasses import asdict

from app.core.environments.pacing import live_shares
from app.core.environments.record import EnvironmentRecord
from app.core.environments.scarcity import alarming, relaxed_in_ms
from app.core.environments.shares import bounds_for
from app.core.model import Bounds
from app.core.ranks.sharding import BalanceHistory
from app.core.runs.view import RunView
from app.core.runs.warnings import RunWarning
from app.services.batches.explain import BatchDiagnosis, Diagnostics
from app.services.runs.isolation import RunFailures
from app.store.groups.store import GroupStore
from app.store.runs.store import RunStore
from lachesis.wire.ranks import BalanceInfo
from lachesis.wire.status import (
    Alert,
    Blocked,
    ByteCounts,
    EnvironmentStatus,
    GroupCounts,
    LeaseStatus,
    RanksStatus,
    RunStatus,
    UpkeepStatus,
    Warned,
)

_MOST_NAMED = 8  # environments in a sentence


class Status:
    """Describes runs without changing them."""

    def __init__(
        self,
        runs: RunStore,
        groups: GroupStore,
        explain: Diagnostics,
        upkeep: RunFailures,
        environment_ttl_ms: int,
        durability: str,
    ) -> None:
        self._runs = runs
        self._groups = groups
        self._explain = explain
        self._upkeep = upkeep
        self._ttl_ms = environment_ttl_ms
        self._durability = durability

    async def of(self, run: str) -> RunStatus:
        """Describe a run: its trainer and environments, what waits, and what blocks."""
        reason = await self._explain.of(run)
        view, not_ready = reason.view, reason.not_ready
        config = view.config
        oversized = oversized_groups(view)
        return RunStatus(
            current_step=view.step,
            queue_size=view.totals.queued_groups - oversized,
            run=run,
            batch_size=config.batch_size if config else -1,
            trainer_started=view.started,
            ready=not_ready is None,
            blocked=_blocked(reason),
            oldest_waiting_s=await self._oldest_waiting_s(run, view),
            environments=self.environments(view),
            unowned_groups=sum(count for (environment, _), count in view.lanes.items() if environment is None),
            groups=GroupCounts(
                accepted=view.totals.accepted_groups,
                queued=view.totals.queued_groups,
                buffered=view.totals.buffered_groups,
                leased=view.totals.leased_groups,
                delivered=view.totals.delivered_groups,
                oversized=oversized,
            ),
            bytes=ByteCounts(
                queued=view.totals.queued_bytes,
                buffered=view.totals.buffered_bytes,
                leased=view.totals.leased_bytes,
                kept=view.kept.payload_bytes,
            ),
            policy_version=view.policy_version,
            kept_batches=view.kept.batches,
            dropped=view.dropped_by_reason,
            alert=alert_of(view, self._ttl_ms),
            warnings=shown_warnings(reason.warnings),
            leases=[
                LeaseStatus(
                    batch=lease.batch_id, state=lease.state.value, step=lease.step, delivery_count=lease.delivery_count
                )
                for lease in view.leases
            ],
            relaxed_batches=view.relaxed_batches,
            ranks=None if view.balance is None else _ranks(view.balance),
            upkeep=self._upkeep_of(run),
            durability=self._durability,
        )

    def environments(self, view: RunView, only: Collection[int] | None = None) -> list[EnvironmentStatus]:
        """Describe a run's environments, or some of them, by id."""
        bounds = bounds_for(view.config.batch_size, live_shares(view, self._ttl_ms)) if view.config else {}
        handed_out = sum(view.served.values())
        return [
            _environment(environment, view, bounds.get(key, Bounds()), handed_out, self._ttl_ms)
            for key, environment in view.environments.items()
            if only is None or key in only
        ]

    def _upkeep_of(self, run: str) -> UpkeepStatus | None:
        trouble = self._upkeep.of(run)
        if trouble is None:
            return None
        failing_age_s = self._upkeep.failing_age_s(trouble)
        return UpkeepStatus(detail=trouble.failure.detail, attempts=trouble.attempts, failing_age_s=failing_age_s)

    async def _oldest_waiting_s(self, run: str, view: RunView) -> float | None:
        limit = view.config.batch_size if view.config else None
        wanted = {lane: (count, 1) for lane, count in view.lanes.items() if limit is None or lane[1] <= limit}
        heads = [head for lane in await self._groups.heads(run, wanted) for head in lane.heads]
        if not heads:
            return None
        (entry,) = await self._groups.entries(run, [min(heads).group_id])
        return None if entry is None else (view.clock_ms - entry.accepted_ms) / 1000


def shown_warnings(warnings: Sequence[RunWarning]) -> list[Warned]:
    """Describe the warnings of a run."""
    return [Warned(kind=one.kind.value, detail=one.detail, environments=list(one.environments)) for one in warnings]


def _ranks(history: BalanceHistory) -> RanksStatus:
    return RanksStatus(
        batches=history.batches,
        world_size=history.world_size,
        mean_imbalance=history.imbalance / history.batches,
        mean_contiguous=history.contiguous / history.batches,
        mean_bound=history.bound / history.batches,
        last=BalanceInfo(**asdict(history.last)),
    )


def alert_of(view: RunView, ttl_ms: int) -> Alert | None:
    """Return the alert that nothing trainable arrives, or that an environment sends too little; None if neither."""
    starvation, scarce = view.alert, alarming(view, ttl_ms)
    if starvation is None and not scarce:
        return None
    since_ms = min([*scarce.values(), *([] if starvation is None else [starvation.since_ms])])
    details = [_scarce_detail(view, key, ms) for key, ms in list(scarce.items())[:_MOST_NAMED]]
    return Alert(
        started_age_s=max(0, view.clock_ms - since_ms) / 1000,
        sequences=0 if starvation is None else starvation.sequences,
        dropped={} if starvation is None else dict(starvation.dropped),
        environments=list(scarce),
        detail="; ".join([*([] if starvation is None else [str(starvation)]), *details]),
    )


def _scarce_detail(view: RunView, key: int, since_ms: int) -> str:
    left_ms = relaxed_in_ms(view, since_ms)
    ends = "forever, because relax_scarce_after_s is null" if left_ms is None else f"for {left_ms / 1000:.1f} s more"
    waits = "no longer wait" if left_ms == 0 else f"wait {ends}"
    seconds = (view.clock_ms - since_ms) / 1000
    name = view.environments[key].name
    return f"environment {key} ({name}) has sent too little for its minimum for {seconds:.0f} s: batches {waits}"


def oversized_groups(view: RunView) -> int:
    """Count the queued groups that can never fit a batch."""
    if view.config is None:
        return 0
    return sum(count for (_, size), count in view.lanes.items() if size > view.config.batch_size)


def _blocked(reason: BatchDiagnosis) -> Blocked | None:
    not_ready = reason.not_ready
    if not_ready is None:
        return None
    return Blocked(
        reason=not_ready.blocker.value,
        detail=not_ready.detail,
        missing_sequences=not_ready.missing_sequences,
        missing_by_environment=dict(not_ready.missing_by_environment),
        unblocked_by=list(not_ready.unblocked_by),
        expected_s=reason.expected_s,
        relaxes_s=reason.relaxes_s,
    )


def _environment(
    env: EnvironmentRecord, view: RunView, bound: Bounds, handed_out: int, ttl_ms: int
) -> EnvironmentStatus:
    key = env.environment
    queued = {size: count for (owner, size), count in view.lanes.items() if owner == key}
    buffered = {size: count for (owner, size), count in view.buffers.items() if owner == key}
    served = view.served.get(key, 0)
    return EnvironmentStatus(
        id=key,
        name=env.name,
        alive=env.alive(view.clock_ms, ttl_ms),
        connected=env.connected,
        members=env.members,
        running_groups=view.running.get(key, 0),
        last_seen_age_s=max(0, view.clock_ms - env.last_seen_ms) / 1000,
        group_size=env.group_size,
        weight=env.weight,
        queued_groups=sum(queued.values()),
        queued_sequences=sum(size * count for size, count in queued.items()),
        buffered_groups=sum(buffered.values()),
        buffered_sequences=sum(size * count for size, count in buffered.items()),
        served_sequences=served,
        share_promised=env.min_share or 0.0,
        share_limit=env.max_share,
        share_got=served / handed_out if handed_out else None,
        needs_sequences=bound.minimum,
        owed_sequences=max(0, view.debts.get(key, 0)),
        dropped={reason: count for (reason, owner), count in view.dropped.items() if owner == key},
    )
