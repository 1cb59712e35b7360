"""The answer of `GET /status`: the two keys of the Atropos contract, and facts for operators."""

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.ranks import BalanceInfo


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Warned(_Answer):
    """Something that cannot work in a run, however many groups arrive."""

    kind: str = Field(
        description="`groups_too_large`, `sizes_do_not_fit`, `minimums_above_one` or `sequences_too_long`."
    )
    detail: str = Field(description="What is wrong, with the values in it, and what to do.")
    environments: list[int | None] = Field(
        description="The environments it is about, by id; null stands for groups without one."
    )


class EnvironmentStatus(_Answer):
    """One environment, as operators see it."""

    id: int = Field(description="Its id (`env_id` on the Atropos surface).")
    name: str = Field(description="Its name, `<desired_name>_<n>`; also its checkpoint folder.")
    alive: bool = Field(
        description="Whether its shares count: a member is alive, or it gave a sign of life within "
        "`LACHESIS_ENVIRONMENT_TTL_S`."
    )
    connected: bool = Field(description="False once it, or the last of its members, has left.")
    members: int = Field(description="Its live members: worker processes that joined under its name.")
    running_groups: int = Field(description="Groups that its members have started and not submitted yet.")
    last_seen_age_s: float = Field(description="Seconds since its last sign of life, or since it registered.")
    group_size: int = Field(description="Sequences it declared per group.")
    weight: float = Field(description="Inference weight it declared.")
    queued_groups: int = Field(description="Groups of it in the queue.")
    queued_sequences: int = Field(description="Sequences in those groups.")
    buffered_groups: int = Field(description="Groups of it waiting for a set of its declared size to complete.")
    buffered_sequences: int = Field(description="Sequences in those groups.")
    served_sequences: int = Field(description="Sequences of it handed out in batches.")
    share_promised: float = Field(description="Fraction of each batch it was promised (0 without a minimum).")
    share_limit: float | None = Field(description="Largest fraction of each batch it may have, or null.")
    share_got: float | None = Field(description="Fraction of all sequences handed out so far, or null before any.")
    needs_sequences: int = Field(description="Sequences the next batch must have of it (0 when it is not alive).")
    owed_sequences: int = Field(description="Sequences that relaxed batches fell short of its minimum.")
    dropped: dict[str, int] = Field(description="Groups of it that were dropped, by reason.")


class Blocked(_Answer):
    """What blocks the next batch."""

    reason: str = Field(
        description="`not_registered`, `archived`, `too_few_sequences`, `minimum_short`, `minimums_conflict`, "
        "`no_exact_fit` or `cannot_be_divided`."
    )
    detail: str = Field(description="The same as a sentence with the values in it.")
    missing_sequences: int = Field(
        description="The fewest sequences that must still arrive, over all environments, in groups of any size."
    )
    missing_by_environment: dict[int, int] = Field(description="Sequences each environment is short of its minimum.")
    unblocked_by: list[tuple[int | None, int]] = Field(
        description="Single groups that would let a batch form: [environment or null, size], at most 8."
    )
    expected_s: float | None = Field(description="When a batch should form at the present arrival rates, or null.")
    relaxes_s: float | None = Field(description="Seconds until minimums that conflict are relaxed, if they do.")


class Alert(_Answer):
    """A problem of the run that an operator should look at.

    Either nothing trainable has arrived for `alert_after_batches` batches' worth of sequences. Or batches have waited
    for a minute for environments that send too little, or no longer wait for them (`relax_scarce_after_s`).
    """

    started_age_s: float = Field(
        description="Seconds since the first group that could not be trained on, or since batches wait for an "
        "environment."
    )
    sequences: int = Field(
        description="Sequences in the groups that could not be trained on; 0 if an environment is the reason."
    )
    dropped: dict[str, int] = Field(description="Number of these groups, by the reason why they were dropped.")
    environments: list[int] = Field(
        description="Environments that send too little for their minimums, or for their part of a batch."
    )
    detail: str = Field(description="The same as a sentence.")


class GroupCounts(_Answer):
    """Where all accepted groups are: `accepted = queued + buffered + leased + delivered + sum(dropped)`."""

    accepted: int = Field(description="Groups answered with success since the run began or was reset.")
    queued: int = Field(description="Waiting for a batch, including groups that are set aside.")
    buffered: int = Field(description="Waiting for a set of the declared size to complete.")
    leased: int = Field(description="In batches that were handed out and not yet acknowledged.")
    delivered: int = Field(description="In batches that were acknowledged.")
    oversized: int = Field(description="Queued groups that can never fit a batch; they do not block other groups.")


class ByteCounts(_Answer):
    """Bytes of payloads held."""

    queued: int = Field(description="Payload bytes of queued groups.")
    buffered: int = Field(description="Payload bytes of buffered groups.")
    leased: int = Field(description="Payload bytes of leased groups.")
    kept: int = Field(description="Payload bytes of acknowledged batches that are kept for a rewind.")


class LeaseStatus(_Answer):
    """A batch that was handed out and is not acknowledged."""

    batch: str = Field(description="Its id.")
    state: str = Field(
        description="`sending`, `sent`, `held`, `returned` (it is handed out again next) or `quarantined`."
    )
    step: int = Field(description="The run's step after it was taken.")
    delivery_count: int = Field(description="How often it was handed out.")


class RanksStatus(_Answer):
    """How evenly batches are divided between ranks. An imbalance is the largest load over the mean, minus 1."""

    batches: int = Field(description="Batches that were divided so far.")
    world_size: int = Field(description="Ranks of the last one.")
    mean_imbalance: float = Field(description="Mean imbalance of those batches.")
    mean_contiguous: float = Field(description="The same if each rank got the next sequences in training order.")
    mean_bound: float = Field(description="The same for a bound that no division can beat.")
    last: BalanceInfo = Field(description="The balance of the last one.")


class UpkeepStatus(_Answer):
    """Why maintenance of the run keeps failing in the process that answers."""

    detail: str = Field(description="The last failure, as a sentence.")
    attempts: int = Field(description="Failures in a row.")
    failing_age_s: float = Field(description="Seconds since the first of them.")


class RunStatus(_Answer):
    """A run, as operators see it. The first two keys are those of the Atropos contract."""

    current_step: int = Field(description="Batches served, counted from the trainer's starting step.")
    queue_size: int = Field(description="Groups in the queue that fit a batch.")
    run: str = Field(description="The run's name.")
    batch_size: int = Field(description="Sequences per batch; -1 before a trainer registered.")
    trainer_started: bool = Field(description="Whether the trainer has asked for a batch since it registered.")
    ready: bool = Field(description="Whether a trainer that asked now would get a batch.")
    blocked: Blocked | None = Field(description="What blocks the next batch; null when ready.")
    oldest_waiting_s: float | None = Field(description="Age of the oldest queued group that fits, seconds; or null.")
    environments: list[EnvironmentStatus] = Field(description="Every registered environment, by id.")
    unowned_groups: int = Field(description="Queued groups that no registered environment owns; they have no share.")
    groups: GroupCounts = Field(description="Where all accepted groups are.")
    bytes: ByteCounts = Field(description="Payload bytes held, by where they are.")
    policy_version: int = Field(description="Weight updates so far, as the trainer reported.")
    kept_batches: int = Field(description="Acknowledged batches that are kept for a rewind.")
    dropped: dict[str, int] = Field(
        description="Groups dropped, by reason: `stale`, `expired`, `future_version`, `quarantined`, `deleted`, "
        "`too_long`, `payload_lost`, `corrupt`, or the name of the filter."
    )
    alert: Alert | None = Field(
        description="Set while nothing trainable arrives, or while an environment sends too little; null otherwise."
    )
    warnings: list[Warned] = Field(description="What cannot work in the run, at most one warning of each kind.")
    leases: list[LeaseStatus] = Field(description="Batches handed out and not yet acknowledged.")
    relaxed_batches: int = Field(description="Batches served without keeping every minimum.")
    ranks: RanksStatus | None = Field(description="How evenly batches are divided between ranks; null before any is.")
    upkeep: UpkeepStatus | None = Field(
        description="Why maintenance of the run keeps failing in this process; null while it works."
    )
    durability: str = Field(description="What an acknowledged write survives, as found when this process started.")
