"""The values that rules are written in: small, frozen, and free of tokens.

A rule never sees a payload. It sees lanes (how many groups of which size wait for which environment, and
the oldest few of them), the bounds each environment must be kept within, and answers with a plan or with
the reason why there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.core.batches.leases import Lease
from app.core.ranks.sharding import BalanceHistory, Undivided
from app.core.runs.counters import KeptBatches, RunTotals, Sent, Starvation, Trained
from app.core.runs.settings import Policy

NEWCOMER_MS = 3000
"""How long a registration alone makes an environment bind, milliseconds of run clock. An answer that arrives is noted
within one or two seconds; a client that never gets it must not hold up batches as a ghost of itself."""

LaneId = tuple[int | None, int]
"""(environment id or None, size in sequences)."""


@dataclass(frozen=True, slots=True, order=True)
class QueuedGroup:
    """A group in the queue, as far as selection needs to know it.

    ``arrival`` is the run's submission counter: unique, and smaller for older groups.
    """

    arrival: int
    group_id: str


@dataclass(frozen=True, slots=True)
class Lane:
    """The queued groups of one environment and one size.

    Attributes:
        environment: Environment id, or None for groups that no registered environment owns (they have no share).
        size: Sequences in each group, ``>= 1``.
        queued: Groups in the lane, ``>= len(heads)``.
        heads: The oldest groups, oldest first; at least ``min(queued, batch_size // size)`` of them.
    """

    environment: int | None
    size: int
    queued: int
    heads: tuple[QueuedGroup, ...]


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The fraction of each batch, 0 to 1, that an environment was promised and may at most have."""

    min_share: float | None = None
    max_share: float | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many sequences of one batch an environment must (at least) and may (at most) have."""

    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group chosen for a batch."""

    arrival: int
    group_id: str
    environment: int | None
    size: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Whole groups whose sizes sum to exactly the batch size, in arrival order.

    Attributes:
        groups: The chosen groups, oldest first.
        relaxed: Whether some minimum is not kept (only after ``relax_after_s`` or ``relax_scarce_after_s``).
        shortfall: Sequences missing to the minimum, by environment; empty unless relaxed.
    """

    groups: tuple[PlannedGroup, ...]
    relaxed: bool = False
    shortfall: Mapping[int, int] = field(default_factory=dict)


class Blocker(StrEnum):
    """Why no batch can be had now. The first that applies, in this order."""

    NOT_REGISTERED = "not_registered"
    ARCHIVED = "archived"
    TOO_FEW_SEQUENCES = "too_few_sequences"
    MINIMUM_SHORT = "minimum_short"
    MINIMUMS_CONFLICT = "minimums_conflict"
    NO_EXACT_FIT = "no_exact_fit"
    CANNOT_BE_DIVIDED = "cannot_be_divided"


@dataclass(frozen=True, slots=True)
class NotReady:
    """Why no batch can be had now, in numbers an operator can act on.

    Attributes:
        blocker: The reason.
        detail: The same as a sentence with the values in it.
        missing_sequences: The fewest sequences that must still arrive, over all environments, in groups of any size.
        missing_by_environment: Sequences each environment is short of its own minimum.
        oversized_groups: Groups set aside because they can never fit, by environment (None: no environment).
        unblocked_by: One group each of which would let a batch form: (environment, size) pairs, smallest first.
    """

    blocker: Blocker
    detail: str
    missing_sequences: int = 0
    missing_by_environment: Mapping[int, int] = field(default_factory=dict)
    oversized_groups: Mapping[int | None, int] = field(default_factory=dict)
    unblocked_by: tuple[tuple[int | None, int], ...] = ()


class DropReason(StrEnum):
    """Every way a group can leave the store other than delivered and acknowledged."""

    PAYLOAD_LOST = "payload_lost"
    CORRUPT = "corrupt"
    STALE = "stale"
    FUTURE_VERSION = "future_version"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    DELETED = "deleted"
    TOO_LONG = "too_long"
    ZERO_VARIANCE = "zero_variance"
    REWARD_RANGE = "reward_range"
    PASS_RATE = "pass_rate"  # noqa: S105 - no password


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """A producer registered with a run.

    Attributes:
        environment: Its id, ``>= 0``, unique in the run.
        desired_name: The name it asked for.
        name: Its name. For Atropos: ``<desired_name>_<n>``, which is its checkpoint folder; otherwise the desired one.
        group_size: Sequences it declared per group.
        max_token_length: Context length it declared, tokens.
        weight: Relative inference weight it declared.
        min_share: Promised fraction of each batch, 0 to 1, or None.
        max_share: Largest fraction of each batch, 0 to 1, or None.
        registered_ms: Run clock when it registered, or last came back, milliseconds.
        left_ms: Run clock when it, or the last of its members, said goodbye, milliseconds; None if it has not.
        heard_ms: Run clock at its last sign of life since it registered, milliseconds, or None. The registration itself
            does not count: a client that never gets the answer registers again, and gets another id.
        members: Worker processes that joined under its name and are alive. An environment of Atropos has none.
    """

    environment: int
    desired_name: str
    name: str
    group_size: int
    max_token_length: int
    weight: float
    min_share: float | None
    max_share: float | None
    registered_ms: int
    left_ms: int | None = None
    heard_ms: int | None = None
    members: int = 0

    @property
    def of_atropos(self) -> bool:
        """Whether a client of Atropos registered it; otherwise workers join it under its name."""
        return self.name != self.desired_name

    @property
    def connected(self) -> bool:
        """Whether a member is alive, it never said goodbye, or it was heard of after its goodbye."""
        if self.members or self.left_ms is None:
            return True
        return self.heard_ms is not None and self.heard_ms > self.left_ms

    def alive(self, clock_ms: int, ttl_ms: int) -> bool:
        """Whether it binds at run clock ``clock_ms``.

        It does while a member is alive. Without members it must be connected, and heard of within ``ttl_ms``: by a
        group, or by a poll of Atropos. Before it was heard of at all, it binds for `NEWCOMER_MS` after it registered.
        """
        if self.members:
            return True
        since_ms = self.registered_ms if self.heard_ms is None else self.heard_ms
        patience_ms = min(ttl_ms, NEWCOMER_MS) if self.heard_ms is None else ttl_ms
        return self.connected and clock_ms - since_ms <= patience_ms

    @property
    def last_seen_ms(self) -> int:
        """Run clock at its last sign of life or, before there was one, at its registration, milliseconds."""
        return self.registered_ms if self.heard_ms is None else self.heard_ms


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a trainer registered. The fields are those of the Atropos contract."""

    batch_size: int
    max_token_len: int
    wandb_group: str
    wandb_project: str
    checkpoint_dir: str
    save_checkpoint_interval: int
    starting_step: int
    num_steps: int


@dataclass(frozen=True, slots=True)
class RunView:
    """What a run looks like now, without its queue: one consistent-enough read that every use case starts from.

    Attributes:
        config: None before a trainer registered.
        epoch: Changes whenever configuration or environments do.
        step: Batches taken so far, from the starting step on.
        started: Whether the trainer has asked for a batch since it registered.
        clock_ms: The run clock.
        environments: By id, in id order.
        lanes: Groups queued, by (environment, size).
        buffers: Groups buffered, by (environment, size).
        leases: In the order they were taken.
        workers: API processes and the run clock at their last tick, ms.
        served: Sequences handed out, by environment (None: no environment).
        dropped: Groups dropped, by reason and environment (None: no environment).
        debts: Sequences owed to environments because of relaxed batches; below 0:
            `app.core.environments.shares.settle_debts`.
        conflict_since_ms: Run clock since which minimums are impossible together, or None.
        last_batch_ms: Run clock when the last batch was planned, or None.
        relaxed_batches: Batches served without keeping every minimum.
        latest: The newest group's id, or None.
        policy: What the run does with groups and batches.
        policy_version: The policy version in force.
        rewinds: How often its trainer went back to a saved state.
        kept: Acknowledged batches that are kept.
        sent: What environments have sent.
        running: Groups that the live members of each environment have started and not submitted.
        balance: How evenly batches were divided between ranks, if any were.
        delays: How often groups that wait were passed over for others that balance better, by id.
        starvation: What came since the last group that could be trained on, if anything.
        undivided: The last batch that ranks asked for, if it could not be divided.
        next_environment: The id of the next new environment. Ids are never used twice.
        unfilled: Whether there was no batch when a trainer asked last, though what must be fresh of one was queued: the
            replay buffer could not fill it up.
        trained: Batches that were trained on and are in no policy version yet.
        scarce: Since when batches wait for environments that send too little, run clock, by id
            (`app.core.environments.scarcity`).
    """

    config: RunConfig | None
    epoch: int
    step: int
    started: bool
    clock_ms: int
    environments: Mapping[int, EnvironmentRecord]
    lanes: Mapping[LaneId, int]
    buffers: Mapping[LaneId, int]
    leases: tuple[Lease, ...]
    workers: Mapping[str, int]
    served: Mapping[int | None, int]
    dropped: Mapping[tuple[str, int | None], int]
    totals: RunTotals
    debts: Mapping[int, int]
    conflict_since_ms: int | None
    last_batch_ms: int | None
    relaxed_batches: int
    latest: str | None
    policy: Policy = field(default_factory=Policy)
    policy_version: int = 0
    rewinds: int = 0
    kept: KeptBatches = field(default_factory=KeptBatches)
    sent: Mapping[int, Sent] = field(default_factory=dict)
    running: Mapping[int, int] = field(default_factory=dict)
    balance: BalanceHistory | None = None
    delays: Mapping[str, int] = field(default_factory=dict)
    starvation: Starvation = field(default_factory=Starvation)
    next_environment: int = 0
    unfilled: bool = False
    undivided: Undivided | None = None
    trained: Trained = field(default_factory=Trained)
    scarce: Mapping[int, int] = field(default_factory=dict)

    @property
    def alert(self) -> Starvation | None:
        """The starvation, if the run's owner wants to know of one as long."""
        if self.config is None or not self.starvation.alarms(self.config.batch_size, self.policy.alert_after_batches):
            return None
        return self.starvation

    @property
    def dropped_by_reason(self) -> dict[str, int]:
        """Groups dropped, by reason."""
        totals: dict[str, int] = {}
        for (reason, _), count in self.dropped.items():
            totals[reason] = totals.get(reason, 0) + count
        return totals
