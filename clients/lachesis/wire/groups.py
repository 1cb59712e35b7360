"""Groups as they are submitted under ``/v1/runs/{run}/groups``, and what can be asked about them.

In binary a group is one safetensors blob (`lachesis.wire.columns`) whose metadata says what `GROUP_KEYS` names. Several
groups in one body are a safetensors file of such blobs (`lachesis.wire.frame`). In JSON a group is an object with
the columns of `lachesis.wire.atropos.ScoredData` and the same keys.
"""

from typing import Literal

from pydantic import BaseModel, Field

SAFETENSORS = "application/x-safetensors"
"""Media type of groups and batches in binary."""

GROUP_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MAX_GROUPS = 10_000
"""Most groups in one request: each takes a thousand bytes and more, and little JSON suffices to say it."""

GROUP_KEYS = ("id", "environment", "policy_version", "item", "cost", "metadata")
"""What a group says of itself beside its columns: strings in a blob's metadata, JSON values in JSON.

    id              `GROUP_ID`, a UUID for instance; the service makes one if there is none
    environment     id of a registered environment
    policy_version  the policy version that sampled it; its oldest, if a column `policy_versions` gives one per token
    item            the dataset entry or task it comes from, up to 512 characters
    cost            what it costs to train on, in units of the producer's choice, finite and >= 0
    metadata        a JSON object, kept and not read
"""

GroupOutcome = Literal["accepted", "stale", "refused"]


class GroupReceipt(BaseModel):
    """What became of a submitted group."""

    id: str = Field(description="The group's id.", examples=["0197b6c2-6f0e-7cc1-b1c5-2f3a9d1e8a77"])
    status: GroupOutcome = Field(
        description="`accepted`; `stale`: too old to be trained on, counted and dropped; `refused`: from a policy "
        "version that is not in force yet, where the run refuses those."
    )


class Receipts(BaseModel):
    """What became of the groups of one request, in its order. A repeated group gets the answer it got first."""

    groups: list[GroupReceipt]


class Lineage(BaseModel):
    """Where a group is, and what became of it (`GET …/groups/{id}`)."""

    id: str = Field(description="The group's id.")
    state: Literal["queued", "buffered", "leased", "delivered", "dropped"] = Field(description="Where it is now.")
    environment: int | None = Field(description="The environment it counts for, or null.")
    size: int = Field(description="Its sequences.")
    payload_bytes: int = Field(description="Its stored size.")
    policy_version: int | None = Field(description="The policy version that sampled it, if it said so.")
    received_s: float = Field(description="Seconds since it was received.")
    batch: str | None = Field(default=None, description="The batch it is or was in.")
    step: int | None = Field(default=None, description="That batch's step.")
    ended_s: float | None = Field(default=None, description="Seconds since it was acknowledged or dropped.")
    reason: str | None = Field(default=None, description="Why it was dropped.")
