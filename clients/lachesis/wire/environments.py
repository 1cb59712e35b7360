"""Environments under ``/v1/runs/{run}/environments``; they are shown as `lachesis.wire.status.EnvironmentStatus`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.atropos import MAX_BATCH_SIZE
from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.status import EnvironmentStatus

_Share = Annotated[float | None, Field(ge=0, le=1)]
Weight = Annotated[
    float,
    Field(ge=0, le=1e12, description="Its part of what is wanted beyond the minimums, beside other environments."),
]
MinShare = Annotated[
    _Share, Field(description="Smallest fraction of each batch it must have, or null.", examples=[0.25])
]
MaxShare = Annotated[_Share, Field(description="Largest fraction of each batch it may have, or null.")]


class EnvironmentCreate(Body):
    """An environment that joins (`POST …/environments`). Its name is its identity: registered again, it is the same."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "gsm8k", "group_size": 8, "min_share": 0.25}]})

    name: str = Field(min_length=1, max_length=4096, description="Its name, unique in the run.", examples=["gsm8k"])
    group_size: int = Field(
        default=1, ge=1, le=MAX_BATCH_SIZE, description="Sequences in each of its groups, usually.", examples=[8]
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


class Heartbeat(Body):
    """A sign of life (`POST …/environments/{environment}/heartbeat`); so are join, submit and credits."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"running_groups": 3}]})

    running_groups: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="Groups it has started and not submitted yet; null: as said before.",
    )


class Credits(BaseModel):
    """How many groups an environment may start now (`GET …/environments/{environment}/credits`)."""

    credits_groups: int = Field(description="Groups of its size that would still be fresh and wanted when trained on.")
    credits_sequences: int = Field(description="The same in sequences.")
    horizon_batches: int = Field(description="Batches looked ahead: those in which a group started now may be used.")
    wanted_sequences: int = Field(description="Sequences wanted of it over that horizon.")
    in_hand_sequences: int = Field(description="Sequences of it queued, buffered, with the trainer, or running.")
    policy_version: int = Field(description="The version to sample with now.")
    reason: str = Field(description="What holds the credits down, as a sentence.")
