"""Groups as they are submitted under ``/v1/runs/{run}/groups``, and what can be asked about them.

In binary a group is one safetensors blob (`lachesis.wire.columns`) whose metadata says what `GROUP_KEYS` names. Several
groups in one body are a safetensors file of such blobs (`lachesis.wire.frame`). In JSON a group is an object with
the columns of `lachesis.wire.atropos.ScoredData` and the same keys.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.filters import FilterName
from lachesis.wire.status import Warned

SAFETENSORS = "application/x-safetensors"
"""Media type of groups and batches in binary."""

GROUP_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MAX_GROUPS = 10_000
"""Most groups in one request. A group takes at least a thousand bytes in memory, and its JSON can be much shorter."""

GROUP_KEYS = ("id", "environment", "policy_version", "item", "cost", "metadata")
"""Facts of a group beside its columns: strings in a blob's metadata, JSON values in JSON.

    id              `GROUP_ID`, a UUID for instance; the service makes one if there is none
    environment     id of a registered environment
    policy_version  the policy version that sampled it; its oldest, if a column `policy_versions` gives one per token
    item            the dataset entry or task it comes from, up to 512 characters; the curriculum with the name of
                    the environment observes it
    cost            what it costs to train on, in units of the producer's choice, finite and >= 0
    metadata        a JSON object, kept and not read
"""

_GROUP: dict[str, Any] = {
    "id": "0197b6c2-6f0e-7cc1-b1c5-2f3a9d1e8a77",
    "environment": 0,
    "policy_version": 41,
    "item": "gsm8k/17",
    "tokens": [[1, 15043, 29991, 2], [1, 15043, 2]],
    "masks": [[-100, -100, 29991, 2], [-100, -100, 2]],
    "scores": [1.0, -0.5],
    "inference_logprobs": [[1.0, 1.0, -0.25, -0.125], [1.0, 1.0, -2.5]],
}
_Whole = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class TensorInJson(BaseModel):
    """A tensor of a group's own, in JSON."""

    model_config = ConfigDict(extra="forbid")

    dtype: str = Field(
        pattern="^(BOOL|U8|U16|U32|U64|I8|I16|I32|I64|F16|F32|F64)$", description="As in safetensors.", examples=["F32"]
    )
    shape: list[Annotated[int, Field(ge=0)]] = Field(description="Its lengths.", examples=[[1]])
    data: str = Field(description="Its elements, little endian, in base64.", examples=["AACAPw=="])


class GroupContents(BaseModel):
    """Contents of a group: columns with a row per sequence, and facts. A column that it does not have is left out."""

    tokens: list[list[int]] = Field(description="Token ids, at least one a sequence; 64 bits at most.")
    masks: list[list[int]] = Field(description="Labels per token: -100 where the loss is masked (on prompts).")
    scores: list[float] = Field(description="One score per sequence, finite.")
    advantages: list[list[float]] | None = Field(default=None, description="Advantages per token.")
    ref_logprobs: list[list[float]] | None = Field(default=None, description="The reference model's, per token.")
    inference_logprobs: list[list[float]] | None = Field(
        default=None, description="The sampling model's, per token; 1.0 where masked."
    )
    distill_token_ids: list[list[list[int]]] | None = Field(
        default=None, description="A teacher's likeliest token ids: sequence, position, rank."
    )
    distill_logprobs: list[list[list[float]]] | None = Field(
        default=None, description="Their log probabilities, in the same shape."
    )
    policy_versions: list[list[_Whole]] | None = Field(
        default=None, description="The policy version that sampled each token."
    )
    messages: list[list[dict[str, Any]]] | None = Field(
        default=None,
        description="A conversation per sequence; each message has `role` and `content`, and any other keys.",
    )
    generation_params: dict[str, Any] | None = Field(default=None, description="How the group was sampled.")
    overrides: list[dict[str, Any]] | None = Field(
        default=None, description="Settings of the trainer that differ, per sequence."
    )
    group_overrides: dict[str, Any] | None = Field(default=None, description="The same for the whole group.")
    images: Any | None = Field(default=None, description="Images in any form; kept, not read.")
    item: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="The dataset entry or task it comes from. The curriculum with the name of its environment "
        "observes it.",
    )
    cost: float | None = Field(
        default=None, ge=0, description="What it costs to train on, in units of its producer's choice."
    )
    metadata: dict[str, Any] | None = Field(default=None, description="Anything; kept, not read.")
    tensors: dict[str, TensorInJson] | None = Field(default=None, description="Tensors of its own, by name.")


class SubmittedGroup(GroupContents):
    """A group as it is submitted in JSON (`POST …/groups`).

    This describes the body. The service reads it without this class (`app/api/codec/group_json.py`), at C speed.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_GROUP]})

    id: str | None = Field(
        default=None,
        pattern=f"^{GROUP_ID}$",
        description="Its id, for instance a UUID. A group that is sent again with its id is stored once. Null: the "
        "service makes one.",
    )
    environment: _Whole | None = Field(default=None, description="Id of the environment it counts for.")
    policy_version: _Whole | None = Field(
        default=None, description="The policy version that sampled it; the oldest one if it has `policy_versions`."
    )


class SubmittedGroups(BaseModel):
    """Several groups in one body. The service stores all of them or none."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"groups": [_GROUP]}]})

    groups: list[SubmittedGroup] = Field(min_length=1, max_length=MAX_GROUPS, description="The groups.")


GroupOutcome = Literal["accepted", "stale", "refused", "too_long", FilterName]


class GroupReceipt(BaseModel):
    """What happened to a submitted group."""

    id: str = Field(description="The group's id.", examples=["0197b6c2-6f0e-7cc1-b1c5-2f3a9d1e8a77"])
    status: GroupOutcome = Field(
        description="`accepted`. `stale`: it is too old to be trained on. `refused`: its policy version is not in "
        "force yet, and the run refuses such groups. `too_long`: a sequence has more tokens than the run takes, and "
        "the run drops such groups. Or the name of the filter that found it. The run counts and drops all groups that "
        "are not `accepted`."
    )


class Receipts(BaseModel):
    """What happened to the groups of a request, in its order. A repeated group gets its first answer again."""

    groups: list[GroupReceipt]
    warnings: list[Warned] = Field(
        default_factory=list,
        description="Warnings of what cannot work in the run, from the last check of this API process. Left out if "
        "there are none.",
    )


MAX_LOOKED_AT = 1000
"""Most groups that one request to delete groups looks at."""


class GroupsDeleted(BaseModel):
    """The answer to a request to delete groups (`DELETE …/groups`)."""

    deleted_groups: int = Field(description="Groups that this request deleted.")
    left_groups: int = Field(
        description="Groups that it has not looked at yet, of the environment and size that it named, if any."
    )
    cursor: str | None = Field(description="Send it as `cursor` to continue; null when all groups were looked at.")


class Lineage(BaseModel):
    """Where a group is, and what happened to it (`GET …/groups/{id}`)."""

    id: str = Field(description="The group's id.")
    state: Literal["queued", "buffered", "leased", "delivered", "dropped"] = Field(description="Where it is now.")
    environment: int | None = Field(description="The environment it counts for, or null.")
    size: int = Field(description="Its sequences.")
    payload_bytes: int = Field(description="Its stored size.")
    policy_version: int | None = Field(description="The policy version that sampled it, if it said so.")
    received_age_s: float = Field(description="Seconds since it was received.")
    batch: str | None = Field(default=None, description="The batch it is or was in.")
    step: int | None = Field(default=None, description="That batch's step.")
    ended_age_s: float | None = Field(default=None, description="Seconds since it was acknowledged or dropped.")
    reason: str | None = Field(default=None, description="Why it was dropped.")
    filtered_by: str | None = Field(default=None, description="The filter that found it and kept it.")
