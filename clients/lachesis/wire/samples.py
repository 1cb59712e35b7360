"""Samples of a replay buffer: how they are asked for, answered, and ended (``…/replay/samples``)."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lachesis.wire.body import Body
from lachesis.wire.fragments import HeldFacts
from lachesis.wire.replay import (
    MAX_SAMPLE_CHUNKS,
    MAX_SAMPLE_FRAGMENTS,
    Alpha,
    Beta,
    ChunkId,
    HalfLife,
    Sampling,
    Strategy,
)
from lachesis.wire.runs import LeaseSeconds, RequestId
from lachesis.wire.states import LeaseAnswer

LeaseId = Annotated[str, Field(min_length=1, max_length=64, description="The lease of the sample.")]


class TakeSample(Body):
    """A request for a sample (`POST …/replay/samples`): a number of chunks, or a number of fragments."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"num_chunks": 1, "request_id": "trainer-0.17", "lease_s": 120}]}
    )

    num_chunks: int | None = Field(default=None, ge=1, le=MAX_SAMPLE_CHUNKS, description="Number of chunks.")
    num_fragments: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SAMPLE_FRAGMENTS,
        description="Number of fragments, instead of `num_chunks`: a multiple of `fragments_per_chunk`.",
    )
    strategy: Strategy | None = Field(
        default=None, description="How to draw chunks. Null means the setting of the buffer."
    )
    alpha: Alpha | None = Field(
        default=None,
        description="`alpha` of this sample, not for strategy `proportional`. Null means the buffer's setting.",
    )
    beta: Beta | None = Field(default=None, description="`beta` of this sample. Null means the buffer's setting.")
    half_life_chunks: HalfLife | None = Field(
        default=None, description="`half_life_chunks` of this sample. Null means the buffer's setting."
    )
    request_id: RequestId | None = Field(
        default=None,
        description="An id of this request. A repetition gets the same sample while the lease lasts.",
    )
    lease_s: LeaseSeconds | None = Field(
        default=None, description="Duration of the lease, seconds. Null means the run's setting."
    )
    trainer: str | None = Field(
        default=None, max_length=256, description="The name of the trainer, shown to operators."
    )

    @model_validator(mode="after")
    def _one_number(self) -> "TakeSample":
        if (self.num_chunks is None) == (self.num_fragments is None):
            raise ValueError("needs one of num_chunks and num_fragments, and not both")
        return self


class Record(HeldFacts):
    """A fragment of a sample: where it is from, and how it came into the sample."""

    fragment: str = Field(description="Its id.")
    chunk: ChunkId
    worker: str = Field(description="The worker that sent the fragment.")
    session: int = Field(description="The session in which the fragment was made.")
    number: int = Field(description="Its number among the worker's fragments of the session, from 0.")
    version: int = Field(description="The chunk's policy version: the oldest version that sampled a part of it.")
    staleness: int = Field(description="Policy versions between this version and the time when the sample was taken.")
    uses: int = Field(description="Acknowledged samples with this chunk at that time.")
    probability: float = Field(
        description="Probability that one draw from the whole buffer gives this chunk. 1 for `fifo` and `lifo`."
    )
    importance_weight: float = Field(
        description="`(chunks * probability) ** -beta`, divided by the maximum of the sample."
    )
    payload_bytes: int = Field(description="Its stored size.")


class SampleInfo(BaseModel):
    """A leased sample without tensors. It is the metadata `sample` of a binary reply."""

    sample: str = Field(description="Its id.")
    run: str = Field(description="Its run.")
    lease: LeaseId
    lease_s: float = Field(description="Seconds until the lease ends.")
    policy_version: int = Field(description="The policy version in force when it was taken.")
    sampling: Sampling = Field(description="How it was drawn.")
    records: list[Record] = Field(description="Its fragments, in order. Fragments of one chunk are adjacent.")


class AckSample(Body):
    """End a sample: it was trained on, its uses count (`POST …/replay/samples/{sample}/ack`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lease": "4cdc4dcfa4d24682"}]})

    lease: LeaseId


class NackSample(Body):
    """Give a sample back: its uses do not count (`POST …/replay/samples/{sample}/nack`)."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"lease": "4cdc4dcfa4d24682", "reason": "out of memory"}]}
    )

    lease: LeaseId
    reason: str | None = Field(default=None, max_length=1000, description="The reason, for the log.")


class ExtendSample(Body):
    """Hold a sample longer (`POST …/replay/samples/{sample}/extend`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lease": "4cdc4dcfa4d24682", "lease_s": 120}]})

    lease: LeaseId
    lease_s: LeaseSeconds | None = Field(
        default=None,
        description="Duration of the lease from now, seconds. A longer lease stays as it is. Null means the run's "
        "setting.",
    )


class SampleEnd(BaseModel):
    """The state of a sample after ack, nack or extend."""

    sample: str = Field(description="Its id.")
    state: LeaseAnswer = Field(description="What happened to it.")
    lease_s: float | None = Field(default=None, description="Seconds until the lease ends, if it was extended.")
