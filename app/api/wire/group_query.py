"""The criteria of requests that list or delete groups."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from app.core.groups.listing import GroupQuery
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.groups import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCriteria:
    """A group must match every criterion that is given."""

    state: Annotated[GroupState | None, Query(description="Groups in this state.")] = None
    environment: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=512,
            description="Groups of the environment with this id or name. `none` means groups without an environment.",
        ),
    ] = None
    size: Annotated[int | None, Query(ge=1, le=MAX_INTEGER, description="Groups with this many sequences.")] = None
    item: Annotated[
        str | None, Query(min_length=1, max_length=512, description="Groups of this dataset entry or task.")
    ] = None
    score_min: Annotated[
        float | None, Query(allow_inf_nan=False, description="Groups whose mean score is at least this.")
    ] = None
    score_max: Annotated[
        float | None, Query(allow_inf_nan=False, description="Groups whose mean score is at most this.")
    ] = None
    received_from_s: Annotated[
        float | None,
        Query(ge=0, le=MAX_INTEGER, description="Groups that were received from this time on, seconds since 1970."),
    ] = None
    received_to_s: Annotated[
        float | None, Query(ge=0, le=MAX_INTEGER, description="Groups that were received before this time.")
    ] = None
    step_min: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="Groups in batches of this step or a later one.")
    ] = None
    step_max: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="Groups in batches of this step or an earlier one.")
    ] = None
    staleness_min: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="Groups that are at least this many policy versions old.")
    ] = None
    older_than_version: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="Groups sampled by an earlier policy version.")
    ] = None
    dropped: Annotated[str | None, Query(max_length=64, description="Groups that were dropped for this reason.")] = None

    @property
    def query(self) -> GroupQuery:
        """Return the criteria, apart from the environment and the time."""
        return GroupQuery(
            state=self.state,
            size=self.size,
            item=self.item,
            score_min=self.score_min,
            score_max=self.score_max,
            step_min=self.step_min,
            step_max=self.step_max,
            staleness_min=self.staleness_min,
            older_than_version=self.older_than_version,
            dropped=self.dropped,
        )

    @property
    def environment_id(self) -> int | str | None:
        """Return the id of the environment; its name, if the text is no id."""
        text = self.environment
        if text is not None and text.isascii() and text.isdecimal() and len(text) <= 16:
            return int(text)
        return text

    @property
    def received_s(self) -> tuple[float | None, float | None]:
        """Return from when on, and before when a group was received, seconds since 1970."""
        return self.received_from_s, self.received_to_s
