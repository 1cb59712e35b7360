"""Groups as they are submitted under ``/v1/runs/{run}/groups``, and what can be asked about them.

In binary a group is one safetensors blob (`lachesis.wire.columns`) whose metadata says what `GROUP_KEYS` names. Several
groups in one body are a safetensors file of such blobs (`lachesis.wire.frame`). In JSON a group is an object with
the columns of `lachesis.wire.atropos.ScoredData` and the same keys.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from lachesis.wire.blob import ITEM_BYTES
from lachesis.wire.body import MAX_INTEGER, Body
from lachesis.wire.limits import MAX_ANNOTATIONS
from lachesis.wire.states import FilterName, GroupState, LeaseState, PlaceOfGroup
from lachesis.wire.status import Warned

SAFETENSORS = "application/x-safetensors"
"""Media type of groups and batches in binary."""

COMPACT_SAFETENSORS = f"{SAFETENSORS};columns=compact"
"""What readers accept that know compact columns (`lachesis.wire.compact`)."""

MAX_COST = 1e30
"""Largest cost of a group or a fragment, so that the costs of a batch have a sum."""

MAX_ITEM = 512
"""Characters of a group's item. It is the key of an item of a curriculum."""

GROUP_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MAX_GROUPS = 10_000
"""Maximum number of groups in one request. A group takes at least 1,000 bytes of memory, whatever its JSON takes."""

GROUP_KEYS = ("id", "environment", "policy_version", "item", "cost", "metadata")
"""Facts of a group other than its columns: strings in the metadata of a blob, values in JSON.

    id              `GROUP_ID`, a UUID for instance; the service makes an id for a group without one
    environment     id of a registered environment
    policy_version  the policy version that sampled it; the oldest version, with a column `policy_versions`
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


ANNOTATION_NAME = "[a-z][a-z0-9_]{0,31}"
MAX_ANNOTATIONS_BODY_BYTES = 32 * 1024 * 1024
"""Maximum size of a request with annotations."""

AnnotationName = Annotated[str, Field(pattern=f"^{ANNOTATION_NAME}$")]
_Values = Annotated[
    dict[AnnotationName, list[list[Annotated[float, Field(allow_inf_nan=False)]]]],
    Field(description="Values per token, by name: a row per sequence, each as long as the tokens."),
]


class TensorInJson(BaseModel):
    """A tensor of a group's own, in JSON."""

    model_config = ConfigDict(extra="forbid")

    dtype: str = Field(pattern=f"^({'|'.join(ITEM_BYTES)})$", description="As in safetensors.", examples=["F32"])
    shape: list[Annotated[int, Field(ge=0)]] = Field(description="Its lengths.", examples=[[1]])
    data: str = Field(description="Its elements, little endian, in base64.", examples=["AACAPw=="])


class GroupContents(BaseModel):
    """Contents of a group: columns with a row per sequence, and facts. Absent columns are left out."""

    tokens: list[list[int]] = Field(description="Token ids, 64-bit integers. A sequence has at least one.")
    masks: list[list[int]] = Field(description="Labels per token. -100 masks the loss, as on prompts.")
    scores: list[float] = Field(description="A finite score per sequence.")
    advantages: list[list[float]] | None = Field(default=None, description="Advantages per token.")
    ref_logprobs: list[list[float]] | None = Field(
        default=None, description="Log probabilities of the reference model, per token."
    )
    inference_logprobs: list[list[float]] | None = Field(
        default=None, description="Log probabilities of the sampling model, per token. 1.0 stands for masked tokens."
    )
    distill_token_ids: list[list[list[int]]] | None = Field(
        default=None, description="The most likely token ids of a teacher, indexed by sequence, position and rank."
    )
    distill_logprobs: list[list[list[float]]] | None = Field(
        default=None, description="Log probabilities of `distill_token_ids`, in the same shape."
    )
    policy_versions: list[list[_Whole]] | None = Field(
        default=None, description="The policy version that sampled each token."
    )
    messages: list[list[dict[str, Any]]] | None = Field(
        default=None,
        description="A conversation per sequence. Each message has `role`, `content` and any other keys.",
    )
    generation_params: dict[str, Any] | None = Field(default=None, description="How the group was sampled.")
    overrides: list[dict[str, Any]] | None = Field(
        default=None, description="Overrides of the trainer's settings, per sequence."
    )
    group_overrides: dict[str, Any] | None = Field(
        default=None, description="Overrides of the trainer's settings, for the whole group."
    )
    images: Any | None = Field(default=None, description="Images in any form. The service keeps them unread.")
    item: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_ITEM,
        description="The dataset entry or task of the group. The curriculum with the name of the group's environment "
        "observes it.",
    )
    cost: float | None = Field(
        default=None, ge=0, le=MAX_COST, description="Cost of training on the group, in any unit."
    )
    metadata: dict[str, Any] | None = Field(default=None, description="Any JSON object. The service keeps it unread.")
    tensors: dict[str, TensorInJson] | None = Field(default=None, description="Further tensors of the group, by name.")


class GroupContent(GroupContents):
    """A group that the run keeps, with its contents (`GET …/groups/{id}/content`): whole, or a part of a sequence.

    In a part, columns, `messages`, `overrides` and `group_advantages` have one row, and `images` and `tensors` are
    left out.
    """

    id: str = Field(description="The group's id.")
    state: PlaceOfGroup = Field(description="Where the group is. `delivered`: kept for a rewind or for replay.")
    environment: int | None = Field(default=None, description="Id of its environment.")
    size: int = Field(description="Number of its sequences.")
    policy_version: int | None = Field(default=None, description="The policy version that sampled the group.")
    lengths: list[int] = Field(description="Tokens of each sequence, also of those that the answer leaves out.")
    sequence: int | None = Field(default=None, description="Number of the sequence, from 0. Null for all sequences.")
    first_token: int = Field(default=0, description="Number of the first token, from 0.")
    annotations: _Values = Field(default_factory=dict)
    group_advantages: list[float] = Field(
        default_factory=list,
        description="For each sequence, its score minus the mean score of the group, divided by their standard "
        "deviation (of the population, as `numpy.std`). 0 if all scores are equal. Only in JSON.",
    )
    texts: list[list[str | None]] | None = Field(
        default=None,
        description="With `text=true`: the text of each token. Null if its id is not in the vocabulary. U+FFFD stands "
        "for bytes that are not text alone.",
    )
    version_ages: list[list[int]] | None = Field(
        default=None,
        description="Policy versions since each token was sampled, up to the version in force. In JSON, if the group "
        "has `policy_versions`.",
    )


class Annotate(Body):
    """Values per token that a trainer adds to a group (`POST …/groups/{id}/annotations`), stored in 32 bits."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"annotations": {"entropy": [[0.5, 0.25], [1.5]]}}]})

    annotations: _Values = Field(min_length=1, max_length=MAX_ANNOTATIONS)


class GroupAnnotated(BaseModel):
    """The annotations of a group by name, after a request has added some."""

    id: str = Field(description="The group's id.")
    annotations: list[str] = Field(description="Names of all its annotations.")


class GroupAnnotations(BaseModel):
    """The annotations of a group (`GET …/groups/{id}/annotations`)."""

    id: str = Field(description="The group's id.")
    lengths: list[int] = Field(description="Tokens of each sequence. Empty without annotations.")
    annotations: _Values


class SubmittedGroup(GroupContents):
    """A group as it is submitted in JSON (`POST …/groups`).

    This describes the body. The service reads it without this class (`app/api/codec/group_json.py`), at C speed.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_GROUP]})

    id: str | None = Field(
        default=None,
        pattern=f"^{GROUP_ID}$",
        description="Its id, for instance a UUID. The service stores a group that is sent again with the same id once. "
        "Null means that the service makes an id.",
    )
    environment: _Whole | None = Field(default=None, description="Id of the group's environment.")
    policy_version: _Whole | None = Field(
        default=None,
        description="The policy version that sampled the group. With `policy_versions`: the oldest version.",
    )


class SubmittedGroups(BaseModel):
    """Several groups in one body. The service stores all of them or none."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"groups": [_GROUP]}]})

    groups: list[SubmittedGroup] = Field(min_length=1, max_length=MAX_GROUPS, description="The groups.")


GroupOutcome = Literal["accepted", "stale", "refused", "too_long", FilterName]


class GroupReceipt(BaseModel):
    """What happened to a submitted group."""

    id: str = Field(description="The group's id.", examples=["0197b6c2-6f0e-7cc1-b1c5-2f3a9d1e8a77"])
    status: SkipValidation[GroupOutcome] = Field(  # a newer service may have further ones
        description="`accepted`: the run has stored the group. With any other status, the run has dropped and counted "
        "it. `stale`: the group is too old. `refused`: its policy version is not in force yet. `too_long`: a sequence "
        "has more tokens than the run takes. The name of a filter: the filter found the group."
    )


class Receipts(BaseModel):
    """What happened to the groups of a request, in their order. A repeated group gets its first answer again."""

    groups: list[GroupReceipt]
    warnings: list[Warned] = Field(
        default_factory=list,
        description="What cannot work in the run, from the last check of this API process. Left out if nothing was "
        "found.",
    )


MAX_LOOKED_AT = 1000
"""Maximum number of groups that one request to delete or to list groups looks at."""

GROUPS_SHOWN = 50
"""Groups on a page, unless the request names another `limit`."""


class DeletedGroups(BaseModel):
    """The answer to a request to delete groups (`DELETE …/groups`)."""

    deleted_groups: int = Field(description="Groups that this request deleted, or would delete with `dry_run`.")
    left_groups: int = Field(
        description="Groups of the environment and size in the query that the request has not looked at yet."
    )
    cursor: str | None = Field(description="Send this value as `cursor` to continue. Null after the last group.")


class GroupColumns(BaseModel):
    """What is known of a group. Null stands for what does not apply or is not known any more."""

    id: str = Field(description="The group's id.")
    state: GroupState = Field(
        description="Where the group is. `kept`: it was delivered, and its batch is kept for a rewind."
    )
    environment: int | None = Field(description="Id of its environment. Null if it has none.")
    environment_name: str | None = Field(default=None, description="Name of its environment, while the run knows it.")
    size: int = Field(description="Number of its sequences.")
    tokens: int | None = Field(description="Tokens of its sequences. Null after the group has left.")
    mean_score: float | None = Field(description="The mean of its scores. Null after the group has left.")
    policy_version: int | None = Field(
        description="The policy version that sampled the group. Null if its producer gave no version."
    )
    staleness: int | None = Field(
        description="Policy versions since the group was sampled, while it waits or is leased."
    )
    item: str | None = Field(
        description="The dataset entry or task of the group. Null if the group names none, if its contents are gone, "
        "or if the header of its contents has more than 32 KiB."
    )
    payload_bytes: int = Field(description="Its stored size.")
    received_age_s: float = Field(description="Seconds since the group was received.")
    batch: str | None = Field(description="The batch that has or had the group.")
    step: int | None = Field(description="The step of this batch.")
    ended_age_s: float | None = Field(description="Seconds since the group was acknowledged or dropped.")
    reason: str | None = Field(description="Why the group was dropped.")


class ListedGroup(GroupColumns):
    """A group in a list of groups (`GET …/groups`). Null stands for what does not apply or is not known any more."""

    id: str = Field(
        description="The id that finds the group. After the group has left: the first 16 hex digits of the SHA-1 of "
        "its sender's id."
    )


class ListedGroups(BaseModel):
    """A page of a list of groups (`GET …/groups`)."""

    groups: list[ListedGroup] = Field(
        description="Groups that match. First the queue and the set buffer, newest group first. Then leased batches "
        "and kept batches, latest batch first. Then groups that have left, in reverse order of their end."
    )
    looked_at: int = Field(
        description=f"Groups that the request looked at: at most {MAX_LOOKED_AT}. A page may be empty although later "
        "pages are not."
    )
    cursor: str | None = Field(description="Send this value as `cursor` to continue. Null after the last group.")


class GroupLease(BaseModel):
    """The lease of a batch that a group is in."""

    state: LeaseState = Field(description="As in the status of the run.")
    delivery_count: int = Field(description="Number of times that the batch was handed out.")
    trainer: str | None = Field(description="Name of the trainer that holds the batch, if it gave one.")
    expires_s: float | None = Field(description="Seconds until a held batch is handed out again.")


class GroupHistory(GroupColumns):
    """Where a group is, and what happened to it (`GET …/groups/{id}`)."""

    state: PlaceOfGroup = Field(description="Where the group is now.")
    lease: GroupLease | None = Field(default=None, description="The lease of its batch, until it ends.")
    checkpoint: int | None = Field(
        default=None,
        description="Step of the last checkpoint that the trainer reported, if it covers the batch of the group.",
    )
    filtered_by: str | None = Field(
        default=None, description="The filter that matched the group and kept it with a weight."
    )
    annotations: list[str] = Field(default_factory=list, description="Names of the annotations of the group.")
