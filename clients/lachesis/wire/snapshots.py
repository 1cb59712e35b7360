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
        default=None, description="Its name. It replaces a snapshot with this name. Null: a name never used before."
    )


class RestoreSnapshot(Body):
    """Go back to a snapshot (`POST …/replay/restore`)."""

    name: _Name


class ReplaySnapshot(BaseModel):
    """A replay buffer as it was."""

    name: str = Field(description="Its name.")
    taken_age_s: float = Field(description="Seconds since it was taken, while the service ran.")
    policy_version: int = Field(description="The policy version that was in force.")
    session: int = Field(description="The training attempt that was in progress.")
    chunks: int = Field(description="Chunks that were not retired.")
    chunk_bytes: int = Field(description="The payload of these chunks, bytes.")
    inserts: int = Field(description="Chunks inserted until then.")
    samples: int = Field(description="Chunks sampled until then, including those of leased samples.")
    limiter_error: float | None = Field(description="The position of the rate limiter; null without one.")


class Snapshots(BaseModel):
    """The snapshots of a replay buffer (`GET …/replay/snapshots`)."""

    snapshots: list[ReplaySnapshot] = Field(description="Oldest first.")
