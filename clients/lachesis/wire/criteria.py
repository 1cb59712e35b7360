"""The criteria of requests that list or delete groups (``/v1/runs/{run}/groups``)."""

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.states import DropReason, GroupState


class GroupCriteria(BaseModel):
    """A group must match every criterion that is given. None stands for any value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: GroupState | None = Field(default=None, description="Groups in this state.")
    environment: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        coerce_numbers_to_str=True,
        description="Groups of the environment with this id or name. `none` means groups without an environment.",
    )
    size: int | None = Field(default=None, ge=1, le=MAX_INTEGER, description="Groups with this many sequences.")
    item: str | None = Field(
        default=None, min_length=1, max_length=512, description="Groups of this dataset entry or task."
    )
    score_min: float | None = Field(
        default=None, allow_inf_nan=False, description="Groups whose mean score is at least this."
    )
    score_max: float | None = Field(
        default=None, allow_inf_nan=False, description="Groups whose mean score is at most this."
    )
    received_from_s: float | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="Groups that were received from this time on, seconds since 1970.",
    )
    received_to_s: float | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="Groups that were received before this time."
    )
    step_min: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="Groups in batches of this step or a later one."
    )
    step_max: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="Groups in batches of this step or an earlier one."
    )
    staleness_min: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="Groups that are at least this many policy versions old."
    )
    older_than_version: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="Groups sampled by an earlier policy version."
    )
    dropped: DropReason | None = Field(default=None, description="Groups that were dropped for this reason.")
