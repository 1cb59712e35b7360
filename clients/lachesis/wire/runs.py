"""Runs, as they are made, changed and shown under ``/v1/runs``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.atropos import MAX_BATCH_SIZE
from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.filters import RunFilters

RUN_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

YEAR_S = 366 * 24 * 3600.0

_Text = Annotated[str, Field(max_length=4096)]
_Count = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]
FutureVersions = Literal["restamp", "refuse"]
LongSequences = Literal["refuse", "drop"]
BatchSize = Annotated[
    int, Field(ge=1, le=MAX_BATCH_SIZE, description="Sequences in each batch, exactly.", examples=[128])
]
LeaseSeconds = Annotated[float, Field(gt=0, le=YEAR_S)]
Rewinds = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
"""Number of rewinds of a run."""
PolicyVersionNumber = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
"""Weight updates so far."""


class AtroposSettings(Body):
    """The run's settings for environments of the Atropos surface. The service hands them on, and uses few itself."""

    max_token_len: _Count = Field(
        default=-1,
        description="Longest sequence that the trainer takes, tokens; 0 or less: no limit. `max_sequence_tokens` has "
        "precedence.",
    )
    wandb_group: _Text = Field(default="", description="Weights & Biases group that environments log to.")
    wandb_project: _Text = Field(default="", description="Weights & Biases project that environments log to.")
    checkpoint_dir: _Text = Field(default="", description="Folder where environments keep their checkpoints.")
    save_checkpoint_interval: _Count = Field(default=-1, description="Steps between checkpoints.")
    starting_step: _Count = Field(default=0, description="Step that the run starts at.")
    num_steps: _Count = Field(default=-1, description="Steps that the run takes in all.")


class RunSettings(RunFilters):
    """How a run keeps groups and forms batches: the one definition, for the service, the SDK and the documents.

    `RunCreate`, `RunChange` and `Run` inherit it, and the rules of `app.core` read it. The defaults are those of
    `POST /v1/runs`.
    """

    max_staleness: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="Most policy versions between sampling and training. The run drops older groups. Null: no limit.",
    )
    max_age_s: float | None = Field(
        default=None,
        gt=0,
        le=YEAR_S,
        description="Longest time that a group waits, seconds. The run drops older groups. Null: no limit.",
    )
    future_versions: FutureVersions = Field(
        default="restamp",
        description="What happens to a group whose policy version is later than the current one, as after a rewind. "
        "`restamp`: it counts as sampled by the current version. `refuse`: the run refuses it, or drops it from the "
        "queue.",
    )
    max_sequence_tokens: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Most tokens in a sequence, for groups that arrive from now on. Null: `max_token_len` of `atropos` "
        "if that is above 0, else no limit.",
    )
    long_sequences: LongSequences = Field(
        default="refuse",
        description="What happens to a group with a longer sequence. `refuse`: the request fails (422). `drop`: the "
        "run drops the group and counts it as `too_long`. Groups of Atropos environments are always dropped.",
    )
    relax_after_s: float | None = Field(
        default=None,
        ge=0,
        le=YEAR_S,
        description="How long a batch waits if group sizes make the minimum shares impossible together, seconds. Then "
        "the batch with the smallest shortfall is served, marked relaxed. Null: LACHESIS_RELAX_AFTER_S of the service.",
    )
    relax_scarce_after_s: float | None = Field(
        default=None,
        ge=0,
        le=YEAR_S,
        description="How long a batch waits for a live environment if only its minimum share is missing, seconds. Then "
        "the batch contains less of it, is marked relaxed, and owes it the rest. Null: forever.",
    )
    max_queued_groups: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Waiting groups at which the run refuses further ones (429). Groups that can never enter a batch "
        "are counted apart, up to the same number. Null: no limit.",
    )
    max_queued_bytes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Payload of waiting groups at which the run refuses further ones (429), bytes. Null: no limit.",
    )
    lease_s: LeaseSeconds = Field(
        default=600.0,
        description="How long a trainer may hold a batch, seconds. Then the run hands it out again.",
    )
    max_deliveries: int = Field(
        default=5,
        ge=1,
        le=1_000_000,
        description="How often the run hands out a batch. If its lease expires this often, the batch is quarantined.",
    )
    keep_batches: int = Field(
        default=16,
        ge=0,
        le=100_000,
        description="Acknowledged batches that the run keeps for a rewind. A checkpoint releases them.",
    )
    keep_bytes: int = Field(
        default=1024**3,
        ge=0,
        le=MAX_INTEGER,
        description="Most payload of the batches that the run keeps for a rewind, bytes.",
    )
    dedup_window_s: float = Field(
        default=3600.0,
        ge=0,
        le=YEAR_S,
        description="How long the run recognises a repeated submission by the group's id, seconds.",
    )
    history_retention_s: float = Field(
        default=3600.0,
        ge=120,
        le=YEAR_S,
        description="How long the run remembers what happened to a group that has left, seconds.",
    )
    balance_window: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Lookahead for rank balancing, in batches: the run chooses among so many batches of the oldest "
        "groups to load ranks evenly. 0 or 1: it takes the oldest. Only for batches that ranks share.",
    )
    max_delay_batches: int = Field(
        default=2,
        ge=1,
        le=1000,
        description="How many batches a group may miss because of `balance_window`.",
    )
    alert_after_batches: int | None = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="The status carries an alert when so many batches of sequences have arrived and the run dropped "
        "all of them. Null: never.",
    )
    fresh_fraction: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Smallest share of a batch that comes from the queue. The rest comes from the replay buffer, if "
        "that has groups that fit exactly. Below 1 needs a replay buffer with `groups`.",
    )
    archived: bool = Field(
        default=False,
        description="Whether the run is archived: it takes no groups and hands out no batches. Nothing is deleted.",
    )


class _NewRun(Body):
    """What a new run must be given."""

    name: str = Field(pattern=f"^{RUN_NAME}$", description="The name of the run, for paths.", examples=["math-rl"])
    batch_size: BatchSize


class RunCreate(RunSettings, _NewRun):
    """A new run (`POST /v1/runs`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "math-rl", "batch_size": 128}]})

    atropos: AtroposSettings = Field(default_factory=AtroposSettings, description="For environments of Atropos.")


class RunChange(RunSettings, Change):
    """Changes to a run (`PATCH /v1/runs/{run}`). Only the fields that it names change (JSON merge patch)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"batch_size": 256, "max_staleness": None}]})

    batch_size: BatchSize = 1


class Run(RunCreate):
    """A run as it is."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # clients read replies of newer services

    step: int = Field(description="Batches taken so far, from the starting step on.")
    policy_version: int = Field(description="Weight updates so far, as the trainer reported.")
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

    checkpoint: int | None = Field(description="Step of the last checkpoint that the trainer reported.")
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
