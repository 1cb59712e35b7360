"""Environments under ``/v1/runs/{run}/environments``; they are shown as `lachesis.wire.status.EnvironmentStatus`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import Body, Change
from lachesis.wire.limits import MAX_BATCH_SIZE
from lachesis.wire.status import EnvironmentStatus, Warned

MOST_RUNNING = 1_000_000
"""Most running groups of a member, so that the sum over all members of a run stays a number that Redis can count."""

MOST_RETRIES = 1_000_000_000
"""Most repeated requests that a member reports. The SDK counts no further."""

_Share = Annotated[float | None, Field(ge=0, le=1)]
Weight = Annotated[
    float,
    Field(ge=0, le=1e12, description="Its part of the sequences beyond the minimums, relative to other environments."),
]
MinShare = Annotated[
    _Share,
    Field(
        description="Minimum share in each batch, rounded down to sequences. Null means no minimum.", examples=[0.25]
    ),
]
MaxShare = Annotated[
    _Share,
    Field(description="Maximum share in each batch. Null means no maximum. A larger minimum counts as this maximum."),
]


MemberId = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$",
        description="Id of a worker process, unique in its environment: 1 to 128 letters, digits, `.`, `_`, `@`, `-`.",
        examples=["node7-4711-3f9a"],
    ),
]


class EnvironmentCreate(Body):
    """A worker process that joins an environment (`POST …/environments`); the first one creates it.

    The name identifies the environment. Settings that are left out stay as they are.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "gsm8k", "group_size": 8, "min_share": 0.25}]})

    member: MemberId | None = Field(
        default=None,
        description="The id that the process asks for. A process that joins again under its id is the same member. "
        "Null means a new id.",
    )
    change_settings: bool = Field(
        default=False,
        description="Whether group size, weight and shares may change for all members. Otherwise a join with other "
        "settings is refused while members are alive.",
    )
    name: str = Field(min_length=1, max_length=4096, description="Its name, unique in the run.", examples=["gsm8k"])
    group_size: int = Field(
        default=1, ge=1, le=MAX_BATCH_SIZE, description="Usual number of sequences in its groups.", examples=[8]
    )
    weight: Weight = 1.0
    min_share: MinShare = None
    max_share: MaxShare = None


class EnvironmentChange(Change):
    """Changes to an environment (`PATCH …/environments/{environment}`): only what is named changes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"min_share": 0.5}]})

    group_size: int = Field(default=1, ge=1, le=MAX_BATCH_SIZE)
    weight: Weight = 1.0
    min_share: MinShare = None
    max_share: MaxShare = None


class Environments(BaseModel):
    """All environments of a run, by id."""

    environments: list[EnvironmentStatus]


class Joined(EnvironmentStatus):
    """The environment that a process joined, and its id as a member."""

    member: str = Field(description="The member's id. Send it when you send heartbeats, and when you leave.")
    warnings: list[Warned] = Field(default_factory=list, description="What cannot work in the run, as in `/status`.")


class Member(BaseModel):
    """A worker process of an environment."""

    member: str = Field(description="Its id.")
    running_groups: int = Field(description="Groups of the member that the service has not answered for yet.")
    permits: int = Field(
        description="The running groups that the service granted to it. Of running groups, those that it started "
        "without a permit end first."
    )
    retries: int | None = Field(
        description="Requests that it sent again since it joined, because no answer came or the service was too busy. "
        "Null means that it does not report them."
    )
    joined_age_s: float = Field(description="Seconds since it joined.")
    last_seen_age_s: float = Field(description="Seconds since its last sign of life, noted once a second.")


class Members(BaseModel):
    """Members of an environment, by id (`GET …/environments/{environment}/members`)."""

    members: list[Member]
    next_after: str | None = Field(
        description="Send this value as `after` to get the next page. Null on the last page."
    )


class Heartbeat(Body):
    """A sign of life of a member (`POST …/environments/{environment}/heartbeat`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"member": "node7-4711-3f9a", "running_groups": 3}]})

    member: MemberId
    start_groups: int = Field(
        default=0,
        ge=0,
        le=MOST_RUNNING,
        description="Number of further groups that the member wants to start now. The answer says how many it may "
        "start.",
    )
    running_groups: int | None = Field(
        default=None,
        ge=0,
        le=MOST_RUNNING,
        description="Groups that the member has started and not submitted yet. Null means the number it reported last.",
    )
    retries: int | None = Field(
        default=None,
        ge=0,
        le=MOST_RETRIES,
        description="Requests that the member sent again since it joined, because no answer came or the service was "
        "too busy. Null means the number it reported last.",
    )


class Credits(BaseModel):
    """How many groups an environment may start now; also the answer to a heartbeat."""

    granted_groups: int = Field(
        default=0,
        description="Number of `start_groups` that the member may start. They count as running groups from now on.",
    )
    credits_groups: int = Field(
        description="Further groups that all members together may start, so that they are fresh and needed when they "
        "are trained on."
    )
    credits_sequences: int = Field(description="These groups in sequences.")
    horizon_batches: int = Field(description="The horizon: next batches in which a group that starts now may be used.")
    wanted_sequences: int = Field(description="Sequences wanted from the environment over the horizon.")
    outstanding_sequences: int = Field(description="Its sequences that are queued, buffered, leased or running.")
    policy_version: int = Field(description="The policy version to sample with now.")
    reason: str = Field(description="What limits the credits, as a sentence.")
