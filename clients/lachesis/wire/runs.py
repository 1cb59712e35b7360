"""Runs, as they are made, changed and shown under ``/v1/runs``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.atropos import MAX_BATCH_SIZE
from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.filters import PassRateFilter, RewardRangeFilter, ZeroVarianceFilter

RUN_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

YEAR_S = 366 * 24 * 3600.0

_Text = Annotated[str, Field(max_length=4096)]
_Count = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]
BatchSize = Annotated[
    int, Field(ge=1, le=MAX_BATCH_SIZE, description="Sequences in each batch, exactly.", examples=[128])
]
MaxStaleness = Annotated[
    int | None,
    Field(
        ge=0,
        le=MAX_INTEGER,
        description="Most policy versions between sampling and training; older groups are dropped. Null: no limit.",
    ),
]
MaxAge = Annotated[
    float | None,
    Field(gt=0, le=YEAR_S, description="Seconds after which a group that waits is dropped. Null: no limit."),
]
FutureVersions = Annotated[
    Literal["restamp", "refuse"],
    Field(
        description="What becomes of groups sampled by a version later than the current one, as after a trainer "
        "went back to a checkpoint: they count as of the current version, or are refused (and dropped if queued)."
    ),
]
MaxSequenceTokens = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_INTEGER,
        description="Most tokens of a sequence, for groups that arrive from now on. Null: the "
        "`max_token_len` of `atropos`, if that is above 0; else no limit.",
    ),
]
LongSequences = Annotated[
    Literal["refuse", "drop"],
    Field(
        description="What happens to groups with a longer sequence: the request is refused (422), or they are dropped "
        "and counted as `too_long`. Those of Atropos environments are always dropped."
    ),
]
RelaxAfter = Annotated[
    float | None,
    Field(
        ge=0,
        le=YEAR_S,
        description="Patience with minimums that group sizes make impossible together. Null: the service's setting.",
    ),
]
RelaxScarceAfter = Annotated[
    float | None,
    Field(
        ge=0,
        le=YEAR_S,
        description="How long batches wait for a live environment if only its minimum is missing, seconds. "
        "After that they contain less of it, are marked relaxed, and owe it the rest. Null: for ever.",
    ),
]
MaxQueuedGroups = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_INTEGER,
        description="Waiting groups from which on submissions are answered 429. Groups that can never enter a batch "
        "are counted apart, up to the same number. Null: no limit.",
    ),
]
MaxQueuedBytes = Annotated[
    int | None,
    Field(ge=1, le=MAX_INTEGER, description="The same in bytes of payload. Null: no limit."),
]
LeaseSeconds = Annotated[
    float, Field(gt=0, le=YEAR_S, description="How long a trainer may hold a batch before it is handed out again.")
]
MaxDeliveries = Annotated[
    int, Field(ge=1, le=1_000_000, description="A batch whose lease ran out this many times is quarantined.")
]
KeepBatches = Annotated[
    int,
    Field(ge=0, le=100_000, description="Acknowledged batches kept for a rewind, until a checkpoint makes them safe."),
]
KeepBytes = Annotated[int, Field(ge=0, le=MAX_INTEGER, description="The same in bytes of payload.")]
DedupWindow = Annotated[
    float,
    Field(ge=0, le=YEAR_S, description="How long the repetition of a submission is recognised by its group's id."),
]
HistoryRetention = Annotated[
    float, Field(ge=120, le=YEAR_S, description="How long it is remembered what became of a group that has left.")
]
BalanceWindow = Annotated[
    int,
    Field(
        ge=0,
        le=64,
        description="Of how many batches' worth of the oldest groups those are chosen that load ranks evenly. 0, 1: "
        "the oldest are taken. Counts for batches that are divided between ranks.",
    ),
]
MaxDelayBatches = Annotated[
    int,
    Field(
        ge=1, le=1000, description="A group is passed over for that so many times at most, by batches it was due for."
    ),
]
FilterZeroVariance = Annotated[
    ZeroVarianceFilter | None, Field(description="Finds groups without reward variance; set as a whole. Null: off.")
]
FilterRewardRange = Annotated[
    RewardRangeFilter | None, Field(description="Finds groups by their mean reward; set as a whole. Null: off.")
]
FilterPassRate = Annotated[
    PassRateFilter | None, Field(description="Finds groups by their pass rate; set as a whole. Null: off.")
]
AlertAfterBatches = Annotated[
    int | None,
    Field(
        ge=1,
        le=1_000_000,
        description="After so many batches' worth of sequences in groups that all came in vain, the status "
        "carries an alert. Null: never.",
    ),
]
FreshFraction = Annotated[
    float,
    Field(
        gt=0,
        le=1,
        description="How much of a batch must come from the queue at least; the rest comes from the replay buffer, "
        "where that has groups that fit exactly. Below 1 only in a run whose buffer takes `groups`.",
    ),
]
Rewinds = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
"""Number of rewinds of a run."""
PolicyVersionNumber = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
"""Weight updates so far."""
Archived = Annotated[
    bool, Field(description="An archived run takes no groups and hands out no batches; nothing is deleted.")
]


class AtroposSettings(Body):
    """The run's settings for environments of the Atropos surface."""

    max_token_len: _Count = Field(
        default=-1, description="Longest sequence the trainer takes, tokens; `max_sequence_tokens` has precedence."
    )
    wandb_group: _Text = Field(default="", description="Weights & Biases group that environments log to.")
    wandb_project: _Text = Field(default="", description="Weights & Biases project.")
    checkpoint_dir: _Text = Field(default="", description="Where environments keep their checkpoints.")
    save_checkpoint_interval: _Count = Field(default=-1, description="Steps between checkpoints.")
    starting_step: _Count = Field(default=0, description="Step the run starts at.")
    num_steps: _Count = Field(default=-1, description="Steps the run takes in all.")


class RunCreate(Body):
    """A new run (`POST /v1/runs`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "math-rl", "batch_size": 128}]})

    name: str = Field(pattern=f"^{RUN_NAME}$", description="Its name, for paths.", examples=["math-rl"])
    batch_size: BatchSize
    max_staleness: MaxStaleness = None
    max_age_s: MaxAge = None
    future_versions: FutureVersions = "restamp"
    max_sequence_tokens: MaxSequenceTokens = None
    long_sequences: LongSequences = "refuse"
    relax_after_s: RelaxAfter = None
    relax_scarce_after_s: RelaxScarceAfter = None
    max_queued_groups: MaxQueuedGroups = None
    max_queued_bytes: MaxQueuedBytes = None
    lease_s: LeaseSeconds = 600.0
    max_deliveries: MaxDeliveries = 5
    keep_batches: KeepBatches = 16
    keep_bytes: KeepBytes = 1024**3
    dedup_window_s: DedupWindow = 3600.0
    history_retention_s: HistoryRetention = 3600.0
    balance_window: BalanceWindow = 0
    max_delay_batches: MaxDelayBatches = 2
    filter_zero_variance: FilterZeroVariance = None
    filter_reward_range: FilterRewardRange = None
    filter_pass_rate: FilterPassRate = None
    alert_after_batches: AlertAfterBatches = 10
    fresh_fraction: FreshFraction = 1.0
    atropos: AtroposSettings = Field(default_factory=AtroposSettings, description="For environments of Atropos.")


class RunChange(Change):
    """Changes to a run while it goes on (`PATCH /v1/runs/{run}`): only what is named changes (JSON merge patch)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"batch_size": 256, "max_staleness": None}]})

    batch_size: BatchSize = 1
    max_staleness: MaxStaleness = None
    max_age_s: MaxAge = None
    future_versions: FutureVersions = "restamp"
    max_sequence_tokens: MaxSequenceTokens = None
    long_sequences: LongSequences = "refuse"
    relax_after_s: RelaxAfter = None
    relax_scarce_after_s: RelaxScarceAfter = None
    max_queued_groups: MaxQueuedGroups = None
    max_queued_bytes: MaxQueuedBytes = None
    lease_s: LeaseSeconds = 600.0
    max_deliveries: MaxDeliveries = 5
    keep_batches: KeepBatches = 16
    keep_bytes: KeepBytes = 1024**3
    dedup_window_s: DedupWindow = 3600.0
    history_retention_s: HistoryRetention = 3600.0
    balance_window: BalanceWindow = 0
    max_delay_batches: MaxDelayBatches = 2
    filter_zero_variance: FilterZeroVariance = None
    filter_reward_range: FilterRewardRange = None
    filter_pass_rate: FilterPassRate = None
    alert_after_batches: AlertAfterBatches = 10
    fresh_fraction: FreshFraction = 1.0
    archived: Archived = False


class Run(RunCreate):
    """A run as it is."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # clients read answers of newer services

    archived: Archived
    step: int = Field(description="Batches taken so far, from the starting step on.")
    policy_version: int = Field(description="Weight updates so far, as the trainer told.")
    rewinds: int = Field(default=0, description="How often a trainer rewound the run to a saved state.")


class UnreadableRun(BaseModel):
    """A run whose settings cannot be read."""

    name: str
    detail: str = Field(description="Why, and what to do.")


class Runs(BaseModel):
    """All runs (`GET /v1/runs`), by name."""

    runs: list[Run]
    unreadable: list[UnreadableRun] = Field(description="Runs whose settings cannot be read.")


class PolicyVersion(Body):
    """The policy version now in force (`PUT /v1/runs/{run}/policy-version`)."""

    policy_version: PolicyVersionNumber = Field(description="Weight updates so far.", examples=[42])
    rewinds: Rewinds | None = Field(
        default=None,
        examples=[0],
        description="`rewinds` of the run when this trainer began. If the run was rewound since, nothing changes: 409 "
        "`run_rewound`.",
    )


class PolicyVersionSet(BaseModel):
    """What setting a policy version did."""

    policy_version: int = Field(description="The version now in force.")
    dropped_groups: int = Field(description="Queued groups that this made too old (or, if refused, too new).")


class Checkpoint(Body):
    """The trainer has saved its own state (`POST /v1/runs/{run}/checkpoints`)."""

    step: int = Field(
        ge=-MAX_INTEGER, le=MAX_INTEGER, description="Step of the last batch in the saved state.", examples=[5]
    )
    policy_version: PolicyVersionNumber | None = Field(
        default=None,
        examples=[5],
        description="The policy version of that state; a rewind restores it. Null: the one in force.",
    )
    rewinds: Rewinds | None = Field(
        default=None,
        examples=[0],
        description="`rewinds` of the run when this trainer began. If the run was rewound since, nothing changes: 409 "
        "`run_rewound`.",
    )


class RetentionState(BaseModel):
    """Which steps a run can be rewound to."""

    checkpoint: int | None = Field(description="Step of the last checkpoint the trainer told of.")
    policy_version: int | None = Field(default=None, description="The policy version stored with that checkpoint.")
    rewindable_to: int = Field(description="Earliest step that `rewind` accepts.")
    kept_batches: int = Field(description="Acknowledged batches kept.")
    kept_bytes: int = Field(description="Their payload.")


class Rewind(Body):
    """The trainer goes back to the state it saved after a step (`POST /v1/runs/{run}/rewind`)."""

    step: int = Field(
        ge=-MAX_INTEGER, le=MAX_INTEGER, description="Step of the last batch in that state.", examples=[5]
    )


class Rewound(BaseModel):
    """The batches that are handed out again, in this order, and those that are left out."""

    batches: list[str] = Field(description="Batch ids; the first `POST …/batches` gets the first.")
    steps: list[int] = Field(description="Their steps.")
    quarantined: list[str] = Field(
        default_factory=list,
        description="Quarantined batches after that step, which are left out. Nack puts their groups "
        "back into the queue, DELETE drops them.",
    )
    quarantined_steps: list[int] = Field(default_factory=list, description="Their steps.")
    policy_version: int = Field(
        description="The policy version from now on: that of the checkpoint of this step, or without one the version "
        "in force when the batch after it was acknowledged."
    )
    rewinds: int = Field(description="Number of rewinds of the run; trainers send it when they take batches.")
