"""The answer of `GET /status`: the two keys of the Atropos contract, and facts for operators."""

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.access import AccessMode
from lachesis.wire.blockers import REASONS
from lachesis.wire.limits import RateUse
from lachesis.wire.ranks import BalanceInfo
from lachesis.wire.states import DROP_REASONS, FILTERS

_DROP_REASONS = ", ".join(f"`{reason}`" for reason in DROP_REASONS if reason not in FILTERS)


class _StatusModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class Warned(_StatusModel):
    """A setting of the run that prevents batches, or loses groups, for any number of groups."""

    kind: str = Field(
        description=(
            "`groups_too_large`, `sizes_do_not_fit`, `minimums_above_one`, `sequences_too_long`, `never_taken` or "
            "`no_room_beside_minimums`."
        )
    )
    detail: str = Field(description="What is wrong, with the values in it, and what to do.")
    environments: list[int | None] = Field(
        description="Ids of the environments in question. Null stands for groups without an environment."
    )


class LedgerCost(_StatusModel):
    """What the tokens of a ledger cost, in the unit of `cost_per_million_tokens`."""

    generated: float = Field(description="The cost of `generated_tokens`.")
    trained: float = Field(description="The cost of `trained_tokens`.")
    queued: float = Field(description="The cost of `queued_tokens`.")
    leased: float = Field(description="The cost of `leased_tokens`.")
    stale: float = Field(description="The cost of `stale_tokens`.")
    filtered: float = Field(description="The cost of `filtered_tokens`.")
    dropped: float = Field(description="The cost of `dropped_tokens`.")
    surplus: float = Field(description="The cost of `surplus_tokens`.")


class Ledger(_StatusModel):
    """What happened to every generated token. `generated_tokens` is at all times the sum of the other seven."""

    generated_tokens: int = Field(
        description="Tokens of groups that the service acknowledged, including those that it dropped on arrival, since "
        "the run began or was reset."
    )
    trained_tokens: int = Field(
        description="Tokens of groups in acknowledged batches. A group that is trained on again from the replay buffer "
        "counts once. After a rewind, the tokens of the rewound batches are leased again."
    )
    queued_tokens: int = Field(description="Tokens of groups that wait, queued or buffered.")
    leased_tokens: int = Field(description="Tokens of groups in batches that were handed out and not yet acknowledged.")
    stale_tokens: int = Field(description="Tokens of groups that the run dropped as `stale`.")
    filtered_tokens: int = Field(description="Tokens of groups that a filter dropped.")
    dropped_tokens: int = Field(
        description="Tokens of groups dropped because they could not be used: `too_long`, `future_version`, "
        "`quarantined`, `payload_lost` or `corrupt`."
    )
    surplus_tokens: int = Field(
        description="Tokens of sound groups that nobody needed: `deleted` by an operator, or `expired` because no "
        "batch took them within `max_age_s`."
    )
    cost: LedgerCost | None = Field(description="The cost of these tokens. Null without `cost_per_million_tokens`.")


class EnvironmentStatus(_StatusModel):
    """One environment, as operators see it."""

    id: int = Field(description="Its id (`env_id` on the Atropos surface).")
    name: str = Field(
        description="Its name. The name of an Atropos environment is `<desired_name>_<n>`: also its checkpoint folder."
    )
    alive: bool = Field(
        description="Whether the environment is alive, so that its shares count: it has a live member, or the service "
        "heard from it within `LACHESIS_ENVIRONMENT_TTL_S`."
    )
    connected: bool = Field(description="False after the environment, or the last of its members, has left.")
    members: int = Field(description="Live members: worker processes that joined under its name.")
    running_groups: int = Field(description="Groups that its members have started and not submitted yet.")
    last_seen_age_s: float = Field(description="Seconds since its last sign of life, or since it registered.")
    group_size: int = Field(description="Declared number of sequences in a group.")
    weight: float = Field(description="Declared inference weight.")
    queued_groups: int = Field(description="Groups of the environment in the queue.")
    queued_sequences: int = Field(description="Sequences in the queued groups.")
    buffered_groups: int = Field(
        description="Groups of the environment that wait for a complete set of its declared size."
    )
    buffered_sequences: int = Field(description="Sequences in the buffered groups.")
    served_sequences: int = Field(description="Sequences of the environment that were handed out in batches.")
    share_promised: float = Field(description="Minimum share of the environment in each batch. 0 without a minimum.")
    share_limit: float | None = Field(
        description="Maximum share of the environment in each batch. Null means no maximum."
    )
    share_got: float | None = Field(
        description="Share of the environment in all sequences handed out so far. Null before the first batch."
    )
    needs_sequences: int = Field(
        description="Minimum number of sequences of the environment in the next batch. 0 if it is not alive."
    )
    owed_sequences: int = Field(
        description="Sequences that relaxed batches owe the environment for its minimum. A batch with more than its "
        "minimum repays them."
    )
    dropped: dict[str, int] = Field(description="Dropped groups of the environment, by reason.")
    ledger: Ledger = Field(description="What happened to the tokens of the environment.")
    sequences_per_s: float | None = Field(
        default=None,
        description="Sequences per second, measured over at most the last minute, without dropped groups. Null if "
        "unknown.",
    )


class Pace(_StatusModel):
    """How fast batches follow each other, over the latest 16."""

    last_batch_age_s: float | None = Field(
        description="Seconds since the last batch was taken. Null before the first batch of the trainer."
    )
    batch_interval_s: float | None = Field(
        description="Seconds from one batch to the next, the median. Null before the second batch."
    )
    trainer_idle_share: float | None = Field(
        description="Share of the time since the first of these batches in which no trainer held a batch, from 0 to 1. "
        "The time begins with an older batch if a trainer still holds it. Null before the second batch."
    )
    blocked_s: float | None = Field(
        description="Seconds since the last batch ended, or since the run began. Null while a trainer holds a batch "
        "or a batch is ready."
    )
    waiting_age_s: float | None = Field(
        description="Seconds since a trainer last waited for a batch, noted every 10 s. Null if none has waited yet."
    )
    arriving_sequences_per_s: float | None = Field(
        description="Sequences per second of all environments, measured over at most the last minute, without dropped "
        "groups. Null if unknown."
    )


class BatchBlocked(_StatusModel):
    """What blocks the next batch."""

    reason: str = Field(description=f"One of {REASONS}.")
    detail: str = Field(description="The reason as a sentence with its values.")
    missing_sequences: int = Field(
        description="Minimum number of sequences that must still arrive, over all environments, in groups of any size."
    )
    missing_by_environment: dict[int, int] = Field(description="Sequences that each environment lacks for its minimum.")
    unblocked_by: list[tuple[int | None, int]] = Field(
        description="Groups that would each complete a batch: [environment or null, size], at most 8."
    )
    expected_s: float | None = Field(
        description="Seconds until a batch is expected at the present arrival rates. Null if unknown."
    )
    relaxes_s: float | None = Field(
        description="Seconds until a batch may form without some minimum. Null if no minimum will be relaxed."
    )


class Alert(_StatusModel):
    """A problem of the run that an operator should look at.

    There are two reasons for an alert. The first is that `alert_after_batches` batches of sequences have arrived in a
    row, and the run dropped all of them or kept them with loss weight 0. The second is an environment that sends too
    little: batches have waited for it for a minute, or no longer wait for it (`relax_scarce_after_s`).
    """

    started_age_s: float = Field(
        description="Seconds since the problem began. It began with the first group that could not be trained on, or "
        "when batches began to wait for an environment."
    )
    sequences: int = Field(
        description="Sequences in the groups that could not be trained on. 0 if an environment is the reason."
    )
    dropped: dict[str, int] = Field(
        description="Number of these groups, by the reason why they were dropped or got the loss weight 0."
    )
    environments: list[int] = Field(
        description="Environments that send too little for their minimums, or for their part of a batch."
    )
    detail: str = Field(description="The problem as a sentence.")


class GroupCounts(_StatusModel):
    """Where all accepted groups are: `accepted = queued + buffered + leased + delivered + sum(dropped)`."""

    accepted: int = Field(description="Groups that the service acknowledged since the run began or was reset.")
    queued: int = Field(description="Groups that wait for a batch, including oversized groups.")
    buffered: int = Field(description="Groups that wait for a complete set of the declared size.")
    leased: int = Field(description="Groups in batches that were handed out and not yet acknowledged.")
    delivered: int = Field(description="Groups in acknowledged batches.")
    oversized: int = Field(description="Queued groups that are too large for a batch. Other groups pass them.")
    remembered: int = Field(
        description="Groups that have left and that the run still remembers, to recognise their ids and to say what "
        "happened to them. It remembers them for the longer of `dedup_window_s` and `history_retention_s`. Each takes "
        "about 150 bytes in Redis. At a million, it remembers no further groups that it drops on arrival."
    )


class ByteCounts(_StatusModel):
    """Bytes of payloads held."""

    queued: int = Field(description="Payload bytes of queued groups.")
    buffered: int = Field(description="Payload bytes of buffered groups.")
    leased: int = Field(description="Payload bytes of leased groups.")
    kept: int = Field(description="Payload bytes of acknowledged batches that are kept for a rewind.")


class LeaseStatus(_StatusModel):
    """A batch that was handed out and is not acknowledged."""

    batch: str = Field(description="Its id.")
    state: str = Field(description="`sending`, `sent`, `held`, `returned` (handed out again next) or `quarantined`.")
    step: int = Field(description="The run's step after the batch was taken.")
    delivery_count: int = Field(description="Number of times that the batch was handed out.")
    expires_s: float | None = Field(
        default=None,
        description="Seconds until the lease of a `held` batch expires. 0: it has expired, and the next request for a "
        "batch ends it. Null for other batches.",
    )


class RanksStatus(_StatusModel):
    """How evenly batches are divided between ranks. An imbalance is max / mean - 1 of the loads of ranks."""

    batches: int = Field(description="Batches that were divided between ranks so far.")
    world_size: int = Field(description="Number of ranks of the last divided batch.")
    mean_imbalance: float = Field(description="Mean imbalance of the divided batches.")
    mean_contiguous: float = Field(
        description="Mean imbalance if each rank got consecutive sequences in training order."
    )
    mean_bound: float = Field(description="Mean lower bound of the imbalance of divisions of the same kind.")
    last: BalanceInfo = Field(description="The balance of the last divided batch.")


class UpkeepStatus(_StatusModel):
    """Why maintenance of the run keeps failing in the process that answers."""

    detail: str = Field(description="The last failure, as a sentence.")
    attempts: int = Field(description="Failures in a row.")
    failing_age_s: float = Field(description="Seconds since the first of these failures.")


class StalenessForecast(_StatusModel):
    """The expected staleness of a group that starts now, if the environments go on as they do."""

    versions: float = Field(description="Policy versions between sampling and training, about.")
    waiting_sequences: int = Field(description="Sequences that are queued or buffered.")
    running_sequences: int = Field(description="Sequences that environments generate now.")
    batches_ahead: float = Field(description="Batches that are trained on before the batch of the group.")
    detail: str = Field(description="The same as a sentence.")


class RunStatus(_StatusModel):
    """A run, as operators see it. The first two keys are those of the Atropos contract."""

    current_step: int = Field(description="Batches taken, counted from the trainer's starting step.")
    queue_size: int = Field(description="Groups in the queue that fit a batch.")
    run: str = Field(description="The run's name.")
    batch_size: int = Field(description="Sequences per batch. -1 before a trainer has registered.")
    trainer_started: bool = Field(description="Whether the trainer has asked for a batch since it registered.")
    ready: bool = Field(description="Whether a trainer that asked now would get a batch.")
    blocked: BatchBlocked | None = Field(description="What blocks the next batch. Null if a batch is ready.")
    pace: Pace | None = Field(default=None, description="How fast batches follow each other.")
    intake_paused: bool = Field(
        default=False, description="Whether an operator has paused intake: environments start no groups."
    )
    serving_paused: bool = Field(
        default=False, description="Whether an operator has paused serving: the run hands out no batches."
    )
    oldest_waiting_s: float | None = Field(
        description="Age of the oldest queued group that fits a batch, seconds. Null if no queued group fits."
    )
    environments: list[EnvironmentStatus] = Field(description="A page of the registered environments, by id.")
    next_after: int | None = Field(
        description="Send this value as `after` to get the next page. Null on the last page."
    )
    registered_environments: int = Field(description="Registered environments on all pages.")
    alive_environments: int = Field(description="Environments that are alive, on all pages.")
    unowned_groups: int = Field(description="Queued groups without a registered environment. They have no share.")
    groups: GroupCounts = Field(description="Where all accepted groups are.")
    bytes: ByteCounts = Field(description="Payload bytes held, by where they are.")
    ledger: Ledger = Field(description="What happened to the tokens of the run.")
    policy_version: int = Field(description="Weight updates so far, as the trainer reported.")
    kept_batches: int = Field(description="Acknowledged batches that are kept for a rewind.")
    dropped: dict[str, int] = Field(
        description=f"Groups dropped, by reason: {_DROP_REASONS}, or the name of the filter."
    )
    staleness_forecast: StalenessForecast | None = Field(
        default=None,
        description="The expected staleness of a group that starts now. Null before a trainer registered.",
    )
    alert: Alert | None = Field(
        description="Set while nothing trainable arrives, or while an environment sends too little. Null otherwise."
    )
    warnings: list[Warned] = Field(description="What cannot work in the run: at most one warning of each kind.")
    leases: list[LeaseStatus] = Field(description="Batches handed out and not yet acknowledged.")
    relaxed_batches: int = Field(description="Batches that were handed out with less than some minimum share.")
    ranks: RanksStatus | None = Field(
        description="How evenly batches are divided between ranks. Null before the first divided batch."
    )
    upkeep: UpkeepStatus | None = Field(
        description="Why maintenance of the run keeps failing in this process. Null while maintenance works."
    )
    limits: list[RateUse] = Field(default=[], description="The rate limits of the run, and how much of each is used.")
    connections: int | None = Field(
        default=None,
        description="Open connections whose last request in a run was for this run, of the process that answers. "
        "`max_connections` limits them.",
    )
    durability: str = Field(description="What an acknowledged write survives. Each process asks Redis once a minute.")
    access: AccessMode | None = Field(
        default=None,
        description="Who may use the service: `authenticated` means senders with valid credentials, `loopback` anyone "
        "on this machine, `insecure` anyone who reaches it (LACHESIS_INSECURE).",
    )
