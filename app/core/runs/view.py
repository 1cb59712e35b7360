"""Show a run as it is now: its settings and counts, not its groups."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from app.core.batches.leases import Lease
from app.core.environments.live import LiveEnvironments, live
from app.core.environments.record import EnvironmentRecord
from app.core.environments.shares import is_oversized
from app.core.model import Bounds, LaneId, by_number
from app.core.ranks.sharding import BalanceHistory, Undivided
from app.core.runs.counters import KeptBatches, RunTotals, Sent, Starvation, Trained
from app.core.runs.settings import Policy, RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """The state of a run that batches are decided on: settings, counters, environments, leases, counts of the queue.

    Attributes:
        config: None before a trainer registered.
        epoch: Changes whenever configuration or environments do.
        first_epoch: Another one means another run of the same name, or the same run after a reset. 0 until the run is
            configured.
        step: Batches taken so far, from the starting step on.
        started: Whether the trainer has asked for a batch since it registered.
        clock_ms: The run clock.
        environments: By id, in id order.
        environment_ttl_ms: Silence after which an environment no longer counts as alive, milliseconds.
        lanes: Groups queued, by (environment, size).
        buffers: Groups buffered, by (environment, size).
        leases: In the order they were taken.
        totals: Groups and bytes by where they are.
        workers: API processes and the run clock at their last sign of life, ms.
        debts: Sequences owed to environments because of relaxed batches; below 0 for those that were overpaid (see
            `app.core.environments.shares.settle_debts`).
        conflict_since_ms: Run clock since which minimums are impossible together, or None.
        last_batch_ms: Run clock when the last batch was planned, or None.
        relaxed_batches: Batches served without keeping every minimum.
        latest: The newest group's id, or None.
        policy: What the run does with groups and batches.
        policy_version: The policy version in force.
        rewinds: How often its trainer went back to a saved state.
        rewound_by: The id of the request of the last rewind. Empty before the first one.
        rewound_to: The step that the last rewind went back to, or None.
        kept: Acknowledged batches that are kept.
        balance: How evenly batches were divided between ranks, if any were.
        delays: How often groups that wait were passed over for others that balance better, by id.
        undivided: The last batch that ranks asked for, if it could not be divided.
        next_environment: The id of the next new environment. Ids are never used twice.
        unfilled: Whether the last request of a trainer got no batch although the fresh part was queued: the replay
            buffer could not fill it.
        trained: Batches that were trained on and are in no policy version yet.
        scarce: Since when batches wait for environments that send too little, run clock, by id
            (`app.core.environments.scarcity`).
        began_ms: Run clock when the run began: 0, or when it was reset.
        waited_ms: Run clock when it was last noted that a trainer waits for a batch, or None.
    """

    config: RunConfig | None
    epoch: int
    step: int
    started: bool
    clock_ms: int
    environments: Mapping[int, EnvironmentRecord]
    environment_ttl_ms: int
    lanes: Mapping[LaneId, int]
    buffers: Mapping[LaneId, int]
    leases: tuple[Lease, ...]
    workers: Mapping[str, int]
    totals: RunTotals
    debts: Mapping[int, int]
    conflict_since_ms: int | None
    last_batch_ms: int | None
    relaxed_batches: int
    latest: str | None
    policy: Policy = field(default_factory=Policy)
    policy_version: int = 0
    rewinds: int = 0
    rewound_by: str = ""
    rewound_to: int | None = None
    kept: KeptBatches = field(default_factory=KeptBatches)
    balance: BalanceHistory | None = None
    delays: Mapping[str, int] = field(default_factory=dict)
    next_environment: int = 0
    unfilled: bool = False
    undivided: Undivided | None = None
    trained: Trained = field(default_factory=Trained)
    scarce: Mapping[int, int] = field(default_factory=dict)
    began_ms: int = 0
    waited_ms: int | None = None
    first_epoch: int = 0

    @property
    def batch_size(self) -> int:
        """The sequences of a batch. Only a configured run has one."""
        assert self.config is not None, "the run has no settings yet"  # noqa: S101
        return self.config.batch_size

    @property
    def intake_closed(self) -> str | None:
        """Why no environment may start a group, whatever is queued; None if groups may start."""
        if self.policy.archived:
            return "the run is archived, so no group may start"
        return "an operator has paused intake, so no group may start" if self.policy.intake_paused else None

    @property
    def live(self) -> LiveEnvironments:
        """The environments that are alive: only these bind."""
        return live(self.environments, self.clock_ms, self.environment_ttl_ms)

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """What each live environment must and may have of a batch. Empty before the batch size is known."""
        return {} if self.config is None else self.live.bounds(self.config.batch_size)

    def named(self, environment: int) -> str:
        """Return what a sentence calls an environment: ``environment 1 (gsm8k)``."""
        record = self.environments.get(environment)
        return by_number(environment) if record is None else f"{by_number(environment)} ({record.short_name})"

    def is_alive(self, environment: EnvironmentRecord) -> bool:
        """Return whether an environment counts as alive."""
        return environment.alive(self.clock_ms, self.environment_ttl_ms)

    @property
    def oversized_senders(self) -> frozenset[int]:
        """The environments with waiting groups that can never enter a batch."""
        batch_size, maximums = self.batch_size, self.live.maximums(self.batch_size)
        waiting = chain(self.lanes, self.buffers)
        return frozenset(
            lane[0] for lane in waiting if lane[0] is not None and is_oversized(lane, batch_size, maximums)
        )

    @property
    def fitting_lanes(self) -> Mapping[LaneId, int]:
        """The queued groups that can enter a batch, by lane. Before the batch size is known, these are all."""
        if self.config is None:
            return self.lanes
        batch_size = self.batch_size
        maximums = self.live.maximums(batch_size)
        return {lane: count for lane, count in self.lanes.items() if not is_oversized(lane, batch_size, maximums)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandView(QueueView):
    """The state of a run that credits are computed from.

    Attributes:
        running: Groups that the live members of each environment have started and not submitted.
        sent: What environments have sent: those of `oversized_senders` at least.
    """

    running: Mapping[int, int] = field(default_factory=dict)
    sent: Mapping[int, Sent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView(DemandView):
    """The whole state of a run now, without its queue. It costs the more the more environments there are.

    Attributes:
        served: Sequences handed out, by environment (None: no environment).
        dropped: Groups dropped, by reason and environment (None: no environment).
        tokens: Tokens of groups, by state and environment, for `app.core.runs.ledger`.
        starvation: What came since the last group that could be trained on, if anything.
    """

    served: Mapping[int | None, int]
    dropped: Mapping[tuple[str, int | None], int]
    tokens: Mapping[tuple[str, int | None], int] = field(default_factory=dict)
    starvation: Starvation = field(default_factory=Starvation)

    @property
    def alarming_starvation(self) -> Starvation | None:
        """The starvation, if it has lasted long enough for an alarm by the run's settings."""
        if self.config is None or not self.starvation.alarms(self.batch_size, self.policy.alert_after_batches):
            return None
        return self.starvation

    @property
    def gone_senders(self) -> frozenset[int]:
        """The environments that have sent groups and send no more: no longer alive, or no group may start."""
        if self.intake_closed is not None:
            return frozenset(self.sent)
        alive = self.live.records
        return frozenset(sender for sender in self.sent if sender in self.environments and sender not in alive)

    @property
    def dropped_by_reason(self) -> dict[str, int]:
        """Groups dropped, by reason."""
        totals: dict[str, int] = {}
        for (reason, _), count in self.dropped.items():
            totals[reason] = totals.get(reason, 0) + count
        return totals
