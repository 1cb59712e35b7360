"""Batches under ``/v1/runs/{run}/batches``: how they are asked for, answered, and ended."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import Body
from lachesis.wire.groups import GroupContents
from lachesis.wire.ranks import RankNumber, ShardInfo
from lachesis.wire.runs import LeaseSeconds, RequestId, Rewinds
from lachesis.wire.states import LeaseAnswer, LeaseState
from lachesis.wire.status import Alert, Warned

LeaseId = Annotated[str, Field(min_length=1, max_length=64, description="The lease of the batch.")]


class TakeBatch(Body):
    """A request for a batch (`POST …/batches`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"request_id": "trainer-0.17", "lease_s": 120}]})

    request_id: RequestId | None = Field(
        default=None,
        description="An id of this request. A repetition gets the same batch while the lease lasts.",
    )
    lease_s: LeaseSeconds | None = Field(
        default=None, description="Duration of the lease, seconds. Null means the run's setting."
    )
    trainer: str | None = Field(default=None, max_length=256, description="Name of the trainer, for operators.")
    rewinds: Rewinds | None = Field(
        default=None,
        description="`rewinds` of the run when this trainer began. If the run was rewound since then, the request "
        "fails (`run_rewound`).",
    )


class ReplayedGroup(BaseModel):
    """How a group came into a batch from the replay buffer (`fresh_fraction`)."""

    chunk: int = Field(description="Its chunk in the buffer. Requests for a new priority name this number.")
    uses: int = Field(
        description="Number of acknowledged samples and batches with this group since it was first trained on."
    )
    probability: float = Field(
        description="Probability that one draw from the whole buffer gives this chunk. 1 for `fifo` and `lifo`."
    )
    importance_weight: float = Field(
        description="`(chunks * probability) ** -beta`, divided by the maximum over the replayed groups of the batch."
    )


class BatchGroup(BaseModel):
    """A group of a batch, without its columns."""

    id: str = Field(description="The group's id.")
    environment: int | None = Field(description="The environment of the group, or null.")
    environment_name: str | None = Field(default=None, description="Name of its environment, while the run knows it.")
    size: int = Field(description="Number of its sequences. In a divided group: of its sequences in this shard.")
    sequences: list[int] | None = Field(
        default=None, description="For a divided group: which of its sequences are in this shard, as positions from 0."
    )
    policy_version: int | None = Field(
        description="The policy version that sampled the group. Null if its producer gave no version."
    )
    staleness: int | None = Field(description="Policy versions between sampling and now.")
    received_age_s: float = Field(
        description="Seconds since the group was received. For a replayed group: since it was trained on."
    )
    filtered_by: str | None = Field(default=None, description="The filter that matched it and kept it with a weight.")
    loss_weight: float = Field(
        default=1.0, description="Factor for the loss of the group, from the filter that matched."
    )
    replayed: ReplayedGroup | None = Field(
        default=None, description="How the group was drawn from the replay buffer. Null for a group from the queue."
    )


class BatchInfo(BaseModel):
    """A leased batch without the columns of its groups. It is the metadata `batch` of a binary reply."""

    batch: str = Field(description="Its id.")
    run: str = Field(description="Its run.")
    step: int = Field(description="Its step.")
    lease: LeaseId
    lease_s: float = Field(description="Seconds until the lease ends.")
    delivery_count: int = Field(description="Number of times that the batch was handed out, including this time.")
    relaxed: bool = Field(description="Whether the batch has less than some minimum share.")
    batch_size: int = Field(description="Number of its sequences.")
    policy_version: int = Field(description="The policy version in force.")
    rewinds: int = Field(default=0, description="Number of rewinds of the run when the batch was handed out.")
    rewound: bool = Field(
        default=False,
        description="Whether a rewind brought the batch back. Age and staleness limits do not apply to such a batch.",
    )
    groups: list[BatchGroup] = Field(description="Groups of the batch, or of the shard, in training order.")
    shard: ShardInfo | None = Field(default=None, description="The shard of a divided batch. Null for a whole batch.")


class TakenGroup(GroupContents, BatchGroup):
    """A group of a batch in JSON, with its columns."""


class TakenBatch(BatchInfo):
    """A leased batch in JSON."""

    groups: list[TakenGroup] = Field(  # type: ignore[assignment]  # nobody writes to it
        description="Groups of the batch, in training order."
    )


class LeasedBatch(BaseModel):
    """A leased, returned or quarantined batch, for operators (`GET …/batches`)."""

    batch: str = Field(description="Its id.")
    step: int = Field(description="Its step.")
    state: LeaseState = Field(
        description="`held`: by a trainer of `/v1`. `sending`, `sent`: by a trainer of Atropos. `returned`: waits to "
        "be handed out again. `quarantined`: `max_deliveries` leases expired."
    )
    delivery_count: int = Field(description="Number of times that the batch was handed out.")
    rewound: bool = Field(default=False, description="Whether a rewind brought the batch back.")
    expires_s: float | None = Field(
        description="Seconds until the lease of a `held` batch expires. Null for other batches."
    )
    trainer: str | None = Field(description="The trainer that holds it, if the trainer gave its name.")
    groups: int = Field(description="Number of its groups.")
    size: int = Field(description="Number of its sequences.")
    replayed_groups: int = Field(default=0, description="Number of its groups from the replay buffer.")
    world_size: int | None = Field(
        default=None, description="Number of ranks of a divided batch. Null for a whole batch."
    )
    taken_by: list[int] = Field(default_factory=list, description="Ranks that have got their shard.")
    acknowledged_by: list[int] = Field(default_factory=list, description="Ranks that have acknowledged their shard.")


class LeasedBatches(BaseModel):
    """Batches that were taken and have not ended, by step."""

    batches: list[LeasedBatch]


BatchState = LeaseState | Literal["kept", "delivered", "given_back", "discarded", "ended"]


class BatchContents(BaseModel):
    """What a batch has of an environment."""

    environment: int | None = Field(description="The environment. Null for groups without one.")
    name: str | None = Field(description="Its name, while the run knows it.")
    groups: int = Field(description="Number of its groups.")
    sequences: int = Field(description="Number of their sequences.")
    replayed_groups: int = Field(description="Number of these groups that came from the replay buffer.")


class RankLoads(BaseModel):
    """The loads of the ranks between which a batch was divided. An imbalance is max / mean - 1 of these loads."""

    loads: list[float] = Field(
        description="The cost of the shard of each rank. Empty if the batch was formed by an older version."
    )
    cost: str = Field(description="The cost of a sequence, as the ranks asked for it.")
    imbalance: float = Field(description="The imbalance of these loads.")
    bound: float = Field(
        description="A lower bound of the imbalance of any division of the same kind: with whole or split groups, and "
        "with equal or free numbers."
    )
    taken_by: list[int] = Field(
        description="Ranks that have got their shard. Empty once the batch is neither leased nor kept."
    )
    acknowledged_by: list[int] = Field(
        description="Ranks that have acknowledged their shard. Empty once the batch is neither leased nor kept."
    )


class ListedBatch(BaseModel):
    """One of the latest batches (`GET …/batches/recent`)."""

    batch: str = Field(description="Its id.")
    step: int = Field(description="Its step.")
    state: BatchState = Field(
        description="As in `GET …/batches` while it is leased. `kept`: delivered, and kept for a rewind. `delivered`, "
        "`given_back`, `discarded`: how it ended. `ended`: the run does not remember how."
    )
    formed_age_s: float | None = Field(description="Seconds since it was formed. Null if that is not known.")
    relaxed: bool = Field(description="Whether it has less than some minimum share.")
    rewound: bool = Field(description="Whether a rewind brought it back.")
    delivery_count: int | None = Field(
        description="Number of times that it was handed out. Null once it is neither leased nor kept."
    )
    trainer: str | None = Field(description="The trainer that has or had it, while it is leased or kept.")
    groups: int = Field(description="Number of its groups.")
    size: int = Field(description="Number of its sequences.")
    replayed_groups: int = Field(description="Number of its groups from the replay buffer.")
    environments: list[BatchContents] = Field(description="Its contents by environment.")
    ranks: RankLoads | None = Field(description="The loads of its ranks. Null for a batch that was not divided.")


BATCHES_SHOWN = 50
"""Batches on a page, unless the request names another `limit`."""


class ListedBatches(BaseModel):
    """A page of the latest batches, the newest first."""

    batches: list[ListedBatch] = Field(description="The batches.")
    cursor: str | None = Field(description="Send this value as `cursor` to get the next page. Null on the last page.")


class GroupInBatch(BaseModel):
    """A group in a batch, for operators."""

    id: str = Field(description="The group's id.")
    environment: int | None = Field(description="Its environment, or null.")
    name: str | None = Field(description="The name of that environment, while the run knows it.")
    size: int = Field(description="Number of its sequences.")
    policy_version: int | None = Field(description="The policy version that sampled it, if its producer gave one.")
    replayed: bool = Field(description="Whether it came from the replay buffer.")


class BatchDetails(ListedBatch):
    """A batch and its groups (`GET …/batches/{batch}`)."""

    contents: list[GroupInBatch] | None = Field(
        description="Its groups, in training order. Null once it is neither leased nor kept."
    )


class Ack(Body):
    """End a batch that the trainer has trained on (`POST …/batches/{batch}/ack`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lease": "4cdc4dcfa4d24682"}]})

    lease: LeaseId
    rank: RankNumber | None = Field(
        default=None, description="For a divided batch: the rank that has trained on its shard."
    )


class Nack(Body):
    """Give a batch back (`POST …/batches/{batch}/nack`). Its groups go to the front of their lanes."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"lease": "4cdc4dcfa4d24682", "reason": "out of memory"}]}
    )

    lease: str | None = Field(
        default=None,
        max_length=64,
        description="The lease of the batch. Null for a quarantined batch, or one that waits to be handed out again.",
    )
    reason: str | None = Field(default=None, max_length=1000, description="The reason, for the log.")


class Extend(Body):
    """Hold a batch longer (`POST …/batches/{batch}/extend`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lease": "4cdc4dcfa4d24682", "lease_s": 120}]})

    lease: LeaseId
    lease_s: LeaseSeconds | None = Field(
        default=None,
        description="Duration of the lease from now, seconds. A longer lease stays as it is. Null means the run's "
        "setting.",
    )


class LeaseEnd(BaseModel):
    """The state of a batch after ack, nack or extend."""

    batch: str = Field(description="Its id.")
    state: LeaseAnswer = Field(description="What happened to it.")
    lease_s: float | None = Field(default=None, description="Seconds until the lease ends, if the lease was extended.")
    awaited_ranks: list[int] = Field(
        default_factory=list,
        description="Ranks whose acknowledgement is missing. The batch is held until all of them have acknowledged.",
    )


class LastSubmission(BaseModel):
    """The last submission of an environment."""

    environment: int = Field(description="Its id.")
    name: str = Field(description="Its name.")
    alive: bool = Field(description="Whether the environment is alive, so that its minimum share counts.")
    last_seen_age_s: float = Field(description="Seconds since its last sign of life.")
    last_group_age_s: float | None = Field(description="Seconds since its last group. Null before the first group.")
    last_group_size: int | None = Field(description="Sequences in its last group.")
    sequences_per_s: float | None = Field(
        description="Sequences per second, measured over at most the last minute, without dropped groups. Null if "
        "unknown."
    )


class Explanation(BaseModel):
    """Whether a batch would form now, and why not (`GET …/batches/explain`)."""

    ready: bool = Field(description="Whether a trainer that asked now would get a batch.")
    reason: str | None = Field(description="What blocks the next batch, as in `/status`. Null if a batch is ready.")
    detail: str | None = Field(description="The reason as a sentence with its values.")
    last_batch_age_s: float | None = Field(
        description="Seconds since the last batch was taken. Null before the first batch."
    )
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
    leased_groups: int = Field(description="Groups in leased batches.")
    stale_groups: int = Field(description="Groups dropped so far because they were too old.")
    arrived_groups: int = Field(
        description="Groups that arrived in the last minute, as far as this process knows. If none arrived, "
        "this counts all groups since the run began."
    )
    filtered_groups: dict[str, int] = Field(
        description="Groups among `arrived_groups` that filters dropped, by filter."
    )
    alert: Alert | None = Field(
        description="Set while nothing trainable arrives, or while an environment sends too little, as in `/status`."
    )
    warnings: list[Warned] = Field(default_factory=list, description="What cannot work in the run, as in `/status`.")
    environments: list[LastSubmission] = Field(description="What each environment sent last.")
    dry_run: dict[str, int | float] = Field(
        default_factory=dict, description="The settings that the request tried instead of the run's."
    )
