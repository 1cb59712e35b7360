"""Runs, as they are made, changed and shown under ``/v1/runs``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.filters import RunFilters
from lachesis.wire.limits import MAX_BATCH_SIZE, RunLimitSettings

RUN_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
DEFAULT_RUN = "default"
"""The run of requests and clients that name none."""

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
RequestId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
"""The id of a request. A repetition has the same one."""
PolicyVersionNumber = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
"""Weight updates so far."""


class AtroposSettings(Body):
    """The run's settings for environments of the Atropos surface. The service hands all on, and uses a few itself."""

    max_token_len: _Count = Field(
        default=-1,
        description="Maximum length of a sequence, tokens. 0 or less means no limit. `max_sequence_tokens` has "
        "precedence.",
    )
    wandb_group: _Text = Field(default="", description="Weights & Biases group that environments log to.")
    wandb_project: _Text = Field(default="", description="Weights & Biases project that environments log to.")
    checkpoint_dir: _Text = Field(default="", description="Folder where environments keep their checkpoints.")
    save_checkpoint_interval: _Count = Field(default=-1, description="Steps between checkpoints.")
    starting_step: _Count = Field(default=0, description="Step that the run starts at.")
    num_steps: _Count = Field(default=-1, description="Total number of steps of the run.")


class RunSettings(RunFilters, RunLimitSettings):
    """How a run keeps groups and forms batches: the one definition, for the service, the SDK and the documents.

    `RunCreate`, `RunChange` and `Run` inherit it, and the rules of `app.core` read it. The defaults are those of
    `POST /v1/runs`.
    """

    max_staleness: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="Maximum number of policy versions between sampling and training. The run drops older groups. Null "
        "means no limit.",
    )
    max_age_s: float | None = Field(
        default=None,
        gt=0,
        le=YEAR_S,
        description="Maximum time that a group waits, seconds. The run drops older groups. Null means no limit.",
    )
    future_versions: FutureVersions = Field(
        default="restamp",
        description="What happens to a group whose policy version is later than the current one, as after a rewind. "
        "`restamp`: the group counts as sampled by the current version. `refuse`: the run drops the group, on arrival "
        "or from the queue.",
    )
    max_sequence_tokens: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Maximum number of tokens in a sequence, for groups that arrive from now on. Null means "
        "`max_token_len` of `atropos` if `max_token_len` is above 0, and no limit otherwise.",
    )
    long_sequences: LongSequences = Field(
        default="refuse",
        description="What happens to a group with a sequence over `max_sequence_tokens`. `refuse`: the request fails "
        "(`sequence_too_long`). `drop`: the run drops the group and counts it as `too_long`. The run drops too long "
        "groups of Atropos environments under both values.",
    )
    relax_after_s: float | None = Field(
        default=None,
        ge=0,
        le=YEAR_S,
        description="How long a batch waits if the sizes of groups make the minimum shares impossible together, "
        "seconds. Then the run hands out the batch with the smallest shortfall, marked relaxed. Null means "
        "LACHESIS_RELAX_AFTER_S of the service.",
    )
    relax_scarce_after_s: float | None = Field(
        default=None,
        ge=0,
        le=YEAR_S,
        description="How long batches wait for a live environment that sends too little for its minimum share, "
        "seconds. Then the run hands out batches with less of the environment, marked relaxed. The rest counts as "
        "owed. Null means no limit.",
    )
    max_queued_groups: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Number of waiting groups at which the run refuses further ones (`queue_full`). It takes a request "
        "as a whole, so one request more may wait. A full queue still takes groups that a batch needs. Groups that "
        "are too large for a batch count apart, with the same limit. Null means no limit.",
    )
    max_queued_bytes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Payload of waiting groups at which the run refuses further ones (`queue_full`), bytes. It takes "
        "a request as a whole, so one request more may wait. A full queue still takes groups that a batch needs. "
        "Null means no limit.",
    )
    lease_s: LeaseSeconds = Field(
        default=600.0,
        description="Time that a trainer may hold a batch, seconds. Then the run hands the batch out again.",
    )
    max_deliveries: int = Field(
        default=5,
        ge=1,
        le=1_000_000,
        description="Maximum number of deliveries of a batch. When the lease of the last delivery expires, the run "
        "quarantines the batch.",
    )
    keep_batches: int = Field(
        default=16,
        ge=0,
        le=100_000,
        description="Maximum number of acknowledged batches that the run keeps for a rewind. A checkpoint releases "
        "them.",
    )
    keep_bytes: int = Field(
        default=1024**3,
        ge=0,
        le=MAX_INTEGER,
        description="Maximum payload of the batches that the run keeps for a rewind, bytes.",
    )
    dedup_window_s: float = Field(
        default=3600.0,
        ge=0,
        le=YEAR_S,
        description="Time during which the run recognises a repeated submission by the group's id, seconds. "
        "While the run holds the group, it recognises the id in any case. After that time, a group with the same id "
        "is a new one. `groups.remembered` of the status counts the groups that have left and are remembered.",
    )
    history_retention_s: float = Field(
        default=3600.0,
        ge=120,  # a trainer may repeat the end of a batch for two minutes: its end must be known that long
        le=YEAR_S,
        description="Time during which the run remembers what happened to a group that has left, seconds. A "
        "shorter time takes effect at once, and saves memory if `dedup_window_s` is not longer.",
    )
    balance_window: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Lookahead for rank balancing, in batches. To load ranks evenly, the run chooses groups among the "
        "oldest groups that would fill this many batches. 0 or 1 means that the run takes the oldest groups. The "
        "setting affects batches that ranks share.",
    )
    max_delay_batches: int = Field(
        default=2,
        ge=1,
        le=1000,
        description="Maximum number of batches that a group misses because of `balance_window`.",
    )
    alert_after_batches: int | None = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="Number of batches. The status carries an alert when so many sequences in a row have arrived that "
        "the run dropped, or kept with loss weight 0. Null means no alert.",
    )
    fresh_fraction: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Minimum share of a batch that comes from the queue. The rest comes from the replay buffer, if the "
        "buffer has groups that fit exactly. Below 1, the run needs a replay buffer with `groups`. "
        "A new run may get it afterwards.",
    )
    cost_per_million_tokens: float | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="What a million generated tokens cost, in any unit. With it, `ledger` of the status has costs. "
        "Null means unknown.",
    )
    intake_paused: bool = Field(
        default=False,
        description="Whether intake is paused. Environments get no credits, and groups are refused "
        "(`intake_paused`), so that senders repeat them until intake resumes. Environments of Atropos 0.3 "
        "and newer start no groups either. The run still takes the groups that environments of Atropos send, because "
        "they would lose refused groups.",
    )
    serving_paused: bool = Field(
        default=False,
        description="Whether serving is paused. The run hands out no batch: requests for batches wait, and `explain` "
        "says `serving_paused`. Trainers keep the batches that they hold, and may extend and acknowledge them.",
    )
    archived: bool = Field(
        default=False,
        description="Whether the run is archived. An archived run keeps its data, and refuses groups and requests for "
        "batches (`run_archived`). Environments get no credits.",
    )


class _NewRun(Body):
    """The required fields of a new run."""

    name: str = Field(pattern=f"^{RUN_NAME}$", description="The name of the run, for paths.", examples=["math-rl"])
    batch_size: BatchSize


class RunCreate(RunSettings, _NewRun):
    """A new run (`POST /v1/runs`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "math-rl", "batch_size": 128}]})

    atropos: AtroposSettings = Field(default_factory=AtroposSettings, description="For environments of Atropos.")


class RunChange(RunSettings, Change):
    """Changes to a run (`PATCH /v1/runs/{run}`): a JSON merge patch. Fields that are left out stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"batch_size": 256, "max_staleness": None}]})

    batch_size: BatchSize = 1


class Run(RunCreate):
    """A run as it is."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # clients read replies of newer services

    step: int = Field(description="Batches taken so far, from the starting step on.")
    policy_version: int = Field(description="Weight updates so far, as the trainer reported.")
    rewinds: int = Field(default=0, description="Number of rewinds of the run.")


class UnreadableRun(BaseModel):
    """A run whose settings cannot be read."""

    name: str
    detail: str = Field(description="The reason, and what to do.")


class Runs(BaseModel):
    """Runs by name, page by page (`GET /v1/runs`)."""

    runs: list[Run]
    unreadable: list[UnreadableRun] = Field(description="Runs whose settings cannot be read.")
    unconfigured: list[str] = Field(
        default=[], description="Names of runs without settings: only groups came, or the run was reset."
    )
    next_after: str | None = Field(
        default=None, description="Send this value as `after` to get the next page. Null on the last page."
    )


class PolicyVersion(Body):
    """The policy version now in force (`PUT /v1/runs/{run}/policy-version`)."""

    policy_version: PolicyVersionNumber = Field(description="Weight updates so far.", examples=[42])
    rewinds: Rewinds | None = Field(
        default=None,
        examples=[0],
        description="`rewinds` of the run when this trainer began. If the run was rewound since then, the request "
        "fails (`run_rewound`).",
    )


class PolicyVersionReply(BaseModel):
    """What setting a policy version did."""

    policy_version: int = Field(description="The version now in force.")
    dropped_groups: int = Field(
        description="Waiting groups dropped so far because the new version made them too old, or too new with "
        "`future_versions` `refuse`. If there are several hundred such groups, the rest follows within seconds.",
    )


class Checkpoint(Body):
    """The trainer has saved its own state (`POST /v1/runs/{run}/checkpoints`)."""

    step: int = Field(
        ge=-MAX_INTEGER, le=MAX_INTEGER, description="Step of the last batch in the saved state.", examples=[5]
    )
    policy_version: PolicyVersionNumber | None = Field(
        default=None,
        examples=[5],
        description="The policy version of the saved state; a rewind restores it. Null means the version in force.",
    )
    rewinds: Rewinds | None = Field(
        default=None,
        examples=[0],
        description="`rewinds` of the run when this trainer began. If the run was rewound since then, the request "
        "fails (`run_rewound`).",
    )


class RetentionState(BaseModel):
    """The steps that a run can be rewound to."""

    checkpoint: int | None = Field(description="Step of the last checkpoint that the trainer reported.")
    policy_version: int | None = Field(default=None, description="The policy version stored with that checkpoint.")
    rewindable_to: int = Field(description="Earliest step that `rewind` accepts.")
    kept_batches: int = Field(description="Acknowledged batches kept.")
    kept_bytes: int = Field(description="Payload of these batches, bytes.")


class Rewind(Body):
    """The trainer goes back to the state that it saved after a step (`POST /v1/runs/{run}/rewind`)."""

    step: int = Field(
        ge=-MAX_INTEGER, le=MAX_INTEGER, description="Step of the last batch in the saved state.", examples=[5]
    )
    request_id: RequestId | None = Field(
        default=None,
        description="An id of this request, new for each rewind. A repetition with the same step does not rewind the "
        "run again. Its answer leaves out batches that have ended since. Another step is refused.",
        examples=["0b6e4a5c-rewind"],
    )


class Rewound(BaseModel):
    """The batches that are handed out again, in this order, and those that are left out."""

    batches: list[str] = Field(description="Batch ids. The next `POST …/batches` gets the first batch.")
    steps: list[int] = Field(description="Steps of these batches.")
    quarantined: list[str] = Field(
        default_factory=list,
        description="Quarantined batches after the step, which are left out. Nack puts their groups back into the "
        "queue. DELETE drops the groups.",
    )
    quarantined_steps: list[int] = Field(default_factory=list, description="Steps of the quarantined batches.")
    policy_version: int = Field(
        description="The policy version from now on. It is the version of the checkpoint of this step. Without such a "
        "checkpoint, it is the version in force when the batch after the step was acknowledged."
    )
    rewinds: int = Field(description="Number of rewinds of the run; trainers send it when they take batches.")
