"""Batches under ``/v1/runs/{run}/batches``: how they are asked for, answered, and ended."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import Body
from lachesis.wire.groups import GroupContents
from lachesis.wire.ranks import RankNumber, ShardInfo
from lachesis.wire.runs import LeaseSeconds, Rewinds
from lachesis.wire.status import Alert, Warned

LeaseId = Annotated[str, Field(min_length=1, max_length=64, description="The lease the batch is held under.")]


class TakeBatch(Body):
    """What a trainer may say when it asks for a batch (`POST …/batches`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"request_id": "trainer-0.17", "lease_s": 120}]})

    request_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="An id of this request. The same request sent again gets the same batch while that is held.",
    )
    lease_s: LeaseSeconds | None = Field(default=None, description="How long to hold the batch; null: the run's.")
    trainer: str | None = Field(
        default=None, max_length=256, description="Who asks; shown to operators beside the batch."
    )
    rewinds: Rewinds | None = Field(
        default=None,
        description="`rewinds` of the run when this trainer began. If the run was rewound since, it gets no batch, but "
        "409 `run_rewound`.",
    )


class ReplayedGroup(BaseModel):
    """How a group came into a batch from the replay buffer (`fresh_fraction`)."""

    chunk: int = Field(description="Its chunk in the buffer. Set its priority with this number.")
    uses: int = Field(description="Acknowledged samples and batches it was in since it was trained on first.")
    probability: float = Field(
        description="Probability that one draw from the whole buffer gives it; 1 for fifo and lifo."
    )
    importance_weight: float = Field(
        description="(chunks * probability) ** -beta, divided by the largest of the replayed groups of the batch."
    )


class BatchGroup(BaseModel):
    """A group of a batch, without its columns."""

    id: str = Field(description="The group's id.")
    environment: int | None = Field(description="The environment it counts for, or null.")
    size: int = Field(description="Its sequences. If the group is divided between ranks: those in this shard.")
    sequences: list[int] | None = Field(
        default=None, description="If the group is divided between ranks: which of its sequences are in this shard."
    )
    policy_version: int | None = Field(description="The policy version that sampled it, if it said so.")
    staleness: int | None = Field(description="Policy versions since then.")
    received_age_s: float = Field(
        description="Seconds since it was received, or since it was trained on if it is replayed."
    )
    filtered_by: str | None = Field(default=None, description="The filter of the run that found it and kept it.")
    loss_weight: float = Field(default=1.0, description="Factor for its loss, as that filter sets it.")
    replayed: ReplayedGroup | None = Field(
        default=None, description="How it was drawn from the replay buffer; null if it comes from the queue."
    )


class BatchInfo(BaseModel):
    """A batch in a trainer's hands, without its groups' columns. It is the metadata `batch` of a binary reply."""

    batch: str = Field(description="Its id.")
    run: str = Field(description="Its run.")
    step: int = Field(description="Its step.")
    lease: LeaseId
    lease_s: float = Field(description="Seconds the lease lasts from now.")
    delivery_count: int = Field(
        description="1 the first time it is handed out, 2 when it is handed out again, and so on."
    )
    relaxed: bool = Field(description="Whether minimums were relaxed for it.")
    batch_size: int = Field(description="Its sequences.")
    policy_version: int = Field(description="The policy version in force.")
    rewinds: int = Field(default=0, description="Number of rewinds of the run when the batch was handed out.")
    rewound: bool = Field(
        default=False,
        description="Whether a rewind brought it back. Then its age does not count.",
    )
    groups: list[BatchGroup] = Field(description="Its groups, in training order. In a shard: the groups of the shard.")
    shard: ShardInfo | None = Field(default=None, description="Which part of the batch this is, if it is divided.")


class TakenGroup(GroupContents, BatchGroup):
    """A group of a batch in JSON, with its columns."""


class TakenBatch(BatchInfo):
    """A batch in a trainer's hands, in JSON."""

    groups: list[TakenGroup] = Field(  # type: ignore[assignment]  # nobody writes to it
        description="Its groups, in training order."
    )


class LeasedBatch(BaseModel):
    """A batch that was taken and has not ended, as operators see it (`GET …/batches`)."""

    batch: str = Field(description="Its id.")
    step: int = Field(description="Its step.")
    state: Literal["sending", "sent", "held", "returned", "quarantined"] = Field(
        description="With a trainer of `/v1` (held) or of Atropos (sending, sent), waiting to be handed out again, "
        "or set aside because its leases ran out too often."
    )
    delivery_count: int = Field(description="How often it was handed out.")
    rewound: bool = Field(default=False, description="Whether a rewind brought it back.")
    expires_s: float | None = Field(description="Seconds until its lease runs out, if it is held.")
    trainer: str | None = Field(description="Who holds it, if they said.")
    groups: int = Field(description="Its groups.")
    size: int = Field(description="Its sequences.")
    replayed_groups: int = Field(default=0, description="Those of its groups that come from the replay buffer.")
    world_size: int | None = Field(default=None, description="Number of ranks it is divided between, if it is divided.")
    taken_by: list[int] = Field(default_factory=list, description="Ranks that were handed their shard.")
    acknowledged_by: list[int] = Field(default_factory=list, description="Ranks that have trained on theirs.")


class LeasedBatches(BaseModel):
    """Batches that were taken and have not ended, by step."""

    batches: list[LeasedBatch]


class Ack(Body):
    """End a batch: it was trained on (`POST …/batches/{batch}/ack`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lease": "4cdc4dcfa4d24682"}]})

    lease: LeaseId
    rank: RankNumber | None = Field(
        default=None, description="If the batch is divided: the rank that has trained on its shard."
    )


class Nack(Body):
    """Give a batch back: its groups go to the front of their lanes (`POST …/batches/{batch}/nack`)."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"lease": "4cdc4dcfa4d24682", "reason": "out of memory"}]}
    )

    lease: str | None = Field(
        default=None,
        max_length=64,
        description="The lease it is held under; null for a batch that is quarantined or waits to be handed out again.",
    )
    reason: str | None = Field(default=None, max_length=1000, description="The reason, for the log.")


class Extend(Body):
    """Hold a batch longer (`POST …/batches/{batch}/extend`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lease": "4cdc4dcfa4d24682", "lease_s": 120}]})

    lease: LeaseId
    lease_s: LeaseSeconds | None = Field(
        default=None,
        description="Seconds from now; a lease that lasts longer is not shortened. Null: the run's setting.",
    )


class LeaseEnd(BaseModel):
    """The state of a batch after ack, nack or extend."""

    batch: str = Field(description="Its id.")
    state: Literal["acknowledged", "given_back", "held"] = Field(description="What happened to it.")
    lease_s: float | None = Field(default=None, description="Seconds the lease lasts from now, if it was extended.")
    awaited_ranks: list[int] = Field(
        default_factory=list, description="Ranks whose acknowledgement is still missing: the batch is held until then."
    )


class LastSubmission(BaseModel):
    """What an environment sent last."""

    environment: int = Field(description="Its id.")
    name: str = Field(description="Its name.")
    alive: bool = Field(description="Whether its minimum binds.")
    last_seen_age_s: float = Field(description="Seconds since its last sign of life.")
    last_group_age_s: float | None = Field(description="Seconds since its last group, or null before any.")
    last_group_size: int | None = Field(description="Sequences in that group.")
    sequences_per_s: float | None = Field(
        description="Sequences a second that were not dropped, over the last minute, or null if unknown."
    )


class Explanation(BaseModel):
    """Whether a batch would form now, and why not (`GET …/batches/explain`)."""

    ready: bool = Field(description="Whether a trainer that asked now would get a batch.")
    reason: str | None = Field(description="What blocks the next batch, as in `/status`; null if ready.")
    detail: str | None = Field(description="The same as a sentence with the values in it.")
    last_batch_age_s: float | None = Field(description="Seconds since the last batch was taken, or null before any.")
    missing_sequences: int = Field(
        description="The fewest sequences that must still arrive, over all environments, in groups of any size."
    )
    missing_by_environment: dict[int, int] = Field(description="Sequences each environment is short of its minimum.")
    unblocked_by: list[tuple[int | None, int]] = Field(
        description="Single groups that would let a batch form: [environment or null, size], at most 8."
    )
    expected_s: float | None = Field(description="When a batch should form at the present arrival rates, or null.")
    relaxes_s: float | None = Field(description="Seconds until minimums that conflict are relaxed, if they do.")
    leased_groups: int = Field(description="Groups in trainers' hands.")
    stale_groups: int = Field(description="Groups dropped so far because they were too old.")
    arrived_groups: int = Field(
        description="Groups that arrived in the last minute, as far as this process knows; if none did, all groups "
        "that ever arrived."
    )
    filtered_groups: dict[str, int] = Field(description="Those of `arrived_groups` that filters dropped, by filter.")
    alert: Alert | None = Field(
        description="Set while nothing trainable arrives, or while an environment sends too little, as in `/status`."
    )
    warnings: list[Warned] = Field(
        default_factory=list, description="What cannot work in the run, however many groups arrive, as in `/status`."
    )
    environments: list[LastSubmission] = Field(description="Who last sent what.")
    dry_run: dict[str, int | float] = Field(
        default_factory=dict, description="The settings that the request tried instead of the run's."
    )
