"""Snapshots of a replay buffer, as they are taken, shown and restored."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import Body
from lachesis.wire.runs import RUN_NAME

SNAPSHOT_NAME = RUN_NAME

_Name = Annotated[str, Field(pattern=f"^{SNAPSHOT_NAME}$", description="The snapshot's name.", examples=["step-1000"])]


class TakeSnapshot(Body):
    """Take a snapshot (`POST …/replay/snapshots`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "step-1000"}]})

    name: _Name | None = Field(
        default=None,
        description="Name of the snapshot. It replaces a snapshot of the same name. Null means a new, unused name.",
    )


class RestoreSnapshot(Body):
    """Go back to a snapshot (`POST …/replay/restore`)."""

    name: _Name


class ReplaySnapshot(BaseModel):
    """The state of a replay buffer when a snapshot was taken."""

    name: str = Field(description="Its name.")
    taken_age_s: float = Field(
        description="Seconds since the snapshot was taken, without the time when the service was down."
    )
    policy_version: int = Field(description="The policy version in force at that time.")
    session: int = Field(description="The training attempt in progress at that time.")
    chunks: int = Field(description="Chunks in the buffer, without retired chunks.")
    chunk_bytes: int = Field(description="The payload of these chunks, bytes.")
    inserts: int = Field(description="Chunks inserted before the snapshot.")
    samples: int = Field(description="Chunks sampled before the snapshot, including those of leased samples.")
    limiter_error: float | None = Field(description="The error of the rate limiter. Null without a limiter.")


class Snapshots(BaseModel):
    """The snapshots of a replay buffer (`GET …/replay/snapshots`)."""

    snapshots: list[ReplaySnapshot] = Field(description="The snapshots, the oldest first.")
