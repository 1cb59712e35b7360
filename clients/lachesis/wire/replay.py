"""The replay buffer of a run, as it is set up, changed, shown and emptied under ``/v1/runs/{run}/replay``."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.runs import YEAR_S

MAX_CHUNKS = 10_000_000
MAX_FRAGMENTS_PER_CHUNK = 4096
MAX_PRIORITIES = 10_000
"""Most priorities in one request."""
MAX_SNAPSHOTS = 4

WORKER_NAME = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}"

Worker = Annotated[str, Field(pattern=f"^{WORKER_NAME}$", description="Who sends fragments.", examples=["worker-0"])]
Session = Annotated[int, Field(ge=0, le=MAX_INTEGER, description="The training attempt it was made in.")]
ChunkId = Annotated[int, Field(ge=1, le=MAX_INTEGER, description="A chunk: its number in the order of insertion.")]
Priority = Annotated[float, Field(ge=0, description="The priority of a chunk, for `proportional` and `rank`.")]
StrategyName = Literal["uniform", "fifo", "lifo", "proportional", "rank", "recency", "staleness"]
Eviction = Literal["oldest", "most_used", "lowest_priority"]
Strategy = Annotated[
    StrategyName,
    Field(
        description="How chunks are drawn; no chunk twice in a sample. `uniform`: all alike. `fifo`, `lifo`: the "
        "oldest or newest first. `proportional`: by `priority ** alpha`. `rank`: by `rank ** -alpha`. "
        "`recency`: the newer, the likelier. `staleness`: by `1 / (1 + staleness)`."
    ),
]
Alpha = Annotated[float, Field(ge=0, le=4, description="Exponent of priorities or ranks. 0: all alike.")]
Beta = Annotated[
    float,
    Field(ge=0, le=1, description="Exponent of importance weights. 0: all weights are 1. 1: no bias is left."),
]
HalfLife = Annotated[
    float,
    Field(ge=1e-3, le=1e12, description="`recency`: a chunk with so many more newer ones is half as likely, chunks."),
]


class Sampling(Body):
    """How chunks are drawn."""

    strategy: Strategy = "uniform"
    alpha: Alpha = 0.6
    beta: Beta = 0.4
    half_life_chunks: HalfLife = 1000.0


class RateLimiter(Body):
    """How far samples and inserts may run apart.

    ``inserts * samples_per_insert - samples`` stays between two bounds, in chunks.
    """

    samples_per_insert: float = Field(
        ge=1e-6, le=1_000_000, description="How many chunks trainers sample for each chunk inserted."
    )
    min_diff: float = Field(description="Lower bound: samples wait.")
    max_diff: float = Field(
        description="Upper bound: inserts wait. At least min_diff + 2 * max(1, samples_per_insert)."
    )


class ReplaySettings(Body):
    """How a run's replay buffer keeps and hands out experience (`PUT …/replay`)."""

    # The one definition of these settings, for the service, the SDK and the documents.

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"fragments_per_chunk": 2, "max_chunks": 50_000, "max_staleness": 8}]}
    )

    fragments_per_chunk: int = Field(
        default=1, ge=1, le=MAX_FRAGMENTS_PER_CHUNK, description="Consecutive fragments of one worker in a chunk."
    )
    groups: bool = Field(
        default=False,
        description="Whether the groups of acknowledged batches become chunks, of one fragment each. This needs "
        "`fragments_per_chunk` 1.",
    )
    max_chunks: int = Field(default=10_000, ge=1, le=MAX_CHUNKS, description="Most chunks in the buffer.")
    max_bytes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Most payload in chunks, bytes. Null: a quarter of the memory that Redis may use (`maxmemory`, or "
        "that of its machine), computed when this is set; the buffer then shows the number.",
    )
    eviction: Eviction = Field(
        default="oldest",
        description="Which chunk leaves first when the buffer is full. Among equals, the oldest.",
    )
    max_staleness: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="Most policy versions between a chunk's oldest fragment and the current one. Older chunks leave. "
        "Null: no limit.",
    )
    max_age_s: float | None = Field(
        default=None,
        gt=0,
        le=YEAR_S,
        description="Longest time in the buffer, seconds. Older chunks leave. Null: no limit.",
    )
    max_reuse: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Acknowledged samples after which a chunk leaves. Null: no limit.",
    )
    sampling: Sampling = Field(
        default_factory=Sampling,
        description="How chunks are drawn if a trainer does not say; a change sets it as a whole.",
    )
    limiter: RateLimiter | None = Field(
        default=None, description="Holds back the faster side; a change sets it as a whole. Null: no limiter."
    )
    min_size_to_sample: int = Field(
        default=1, ge=1, le=MAX_CHUNKS, description="Sampleable chunks that must exist before anything is sampled."
    )
    reorder_window_s: float = Field(
        default=5.0,
        ge=0,
        le=YEAR_S,
        description="How long the buffer waits for a missing number of a worker, seconds. Then it gives the gap up.",
    )
    max_waiting: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description="Fragments of a worker behind a gap at which the buffer gives the gap up at once.",
    )
    fragment_ttl_s: float = Field(
        default=300.0,
        gt=0,
        le=YEAR_S,
        description="Silence of a worker after which its fragments in no chunk expire, seconds.",
    )
    seed: int = Field(default=0, ge=0, le=MAX_INTEGER, description="Seed of the generator that draws chunks.")
    keep_snapshots: int = Field(
        default=2, ge=1, le=MAX_SNAPSHOTS, description="Most snapshots. A further one replaces the oldest."
    )


class ReplayChange(ReplaySettings, Change):
    """Changes to a buffer (`PATCH …/replay`). Only the fields that it names change."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_staleness": 4, "max_reuse": None}]})


class Blocked(BaseModel):
    """Why a side waits."""

    blocked_on: Literal["samples", "inserts", "chunks"] = Field(description="What it waits for.")
    missing: int = Field(description="How many of them.")
    detail: str = Field(description="The same as a sentence with the values in it.")


class LimiterPosition(BaseModel):
    """Where the rate limiter stands, in chunks."""

    inserts: int = Field(description="Chunks inserted so far.")
    samples: int = Field(description="Chunks sampled so far, those in trainers' hands included.")
    error: float | None = Field(description="inserts * samples_per_insert - samples; null without a limiter.")
    inserts_blocked: Blocked | None = Field(description="Why no chunk may be inserted now, or null.")
    samples_blocked: Blocked | None = Field(description="Why no chunk may be sampled now, or null.")


class ReplayWorker(BaseModel):
    """What a worker has sent in its session."""

    worker: str = Field(description="Its name.")
    session: int = Field(description="The session it is in.")
    next_number: int = Field(description="The next number that leaves no gap.")
    accepted_fragments: int = Field(description="Accepted fragments.")
    waiting_fragments: int = Field(description="Accepted fragments that are in no chunk yet.")
    gaps: int = Field(description="Gaps in its numbers that were given up.")
    heard_age_s: float = Field(description="Seconds since its last fragment.")
    fragments_per_s: float = Field(description="Fragments per second lately.")


class ReplayState(BaseModel):
    """The current state of a replay buffer (`GET …/replay`)."""

    settings: ReplaySettings = Field(description="Its settings.")
    session: int = Field(description="The training attempt in progress.")
    policy_version: int = Field(description="The policy version in force.")
    sampleable_chunks: int = Field(description="Chunks that may be sampled now.")
    reserved_chunks: int = Field(description="Chunks whose uses are all reserved by samples in trainers' hands.")
    archived_chunks: int = Field(description="Chunks of former sessions, kept for inspection until they are evicted.")
    chunk_bytes: int = Field(description="Payload of sampleable, reserved and archived chunks, bytes.")
    retired_in_use_chunks: int = Field(description="Retired chunks that samples still hold.")
    waiting_fragments: int = Field(description="Fragments in no chunk yet.")
    waiting_bytes: int = Field(description="Their payload.")
    accepted_fragments: int = Field(description="Fragments accepted so far.")
    chunk_fragments: int = Field(description="Accepted fragments in chunks that are not retired.")
    retired_fragments: int = Field(description="Accepted fragments in chunks that were retired.")
    dropped_fragments: dict[str, int] = Field(description="Accepted fragments that were dropped, by reason.")
    refused_fragments: dict[str, int] = Field(description="Refused fragments, by reason.")
    retired_chunks: dict[str, int] = Field(description="Chunks retired so far, by reason.")
    gaps: int = Field(description="Gaps in workers' numbers that were given up.")
    versions: dict[int, int] = Field(description="Sampleable chunks by policy version.")
    uses: dict[int, int] = Field(
        description="Sampleable chunks by uses. The largest number stands for itself and all above."
    )
    limiter: LimiterPosition = Field(description="The position of the rate limiter, and what it blocks.")
    samples_held: int = Field(description="Leased samples.")
    avg_reuse: float | None = Field(description="Mean uses of retired chunks; null before the first.")
    avg_staleness: float | None = Field(description="Mean staleness of sampled chunks; null before the first.")
    fragments_per_s: float = Field(description="Fragments accepted per second lately.")
    workers: list[ReplayWorker] = Field(description="Who sends fragments, by name.")


class SessionStart(Body):
    """The training attempt in progress (`PUT …/replay/session`)."""

    session: int = Field(ge=0, le=MAX_INTEGER, description="Its number; never goes down.", examples=[1])


class SessionSet(BaseModel):
    """The result of a new session."""

    session: int = Field(description="The session in progress.")
    retired_chunks: int = Field(description="Chunks of former sessions that this retired.")


class Priorities(Body):
    """New priorities of chunks (`PATCH …/replay/priorities`)."""

    priorities: dict[ChunkId, Priority] = Field(
        min_length=1, max_length=MAX_PRIORITIES, description="By chunk.", examples=[{"17": 0.5, "18": 2.25}]
    )

    @field_validator("priorities", mode="before")
    @classmethod
    def _each_chunk_once(cls, given: Any) -> Any:
        """Refuse other forms of a number, such as "017" and " 17": two keys could then name the same chunk."""
        if isinstance(given, dict):
            for name in given:
                if isinstance(name, str) and not re.fullmatch("[1-9][0-9]*", name, re.ASCII):
                    raise ValueError(f"{name[:20]!r} is no chunk's number")
        return given


class PrioritiesSet(BaseModel):
    """The chunks that have new priorities. Retired chunks have none."""

    updated: int = Field(description="Number of priorities that were set.")
    missing: list[int] = Field(description="Chunks that do not exist, or are retired.")


class Chunk(BaseModel):
    """A chunk as operators see it."""

    chunk: ChunkId
    place: str = Field(
        description="`sampleable`, `reserved`, `archived`, or why it was retired, while a sample holds it."
    )
    worker: str = Field(description="The worker that sent its fragments.")
    session: int = Field(description="The session they were made in.")
    first: int = Field(description="The number of its first fragment.")
    fragments: list[str] = Field(description="Their ids, in order.")
    version: int = Field(description="Its policy version: the oldest one that sampled a part of it.")
    mean_version: float = Field(description="Mean policy version over its steps.")
    highest_version: int = Field(description="The newest policy version that sampled a part of it.")
    payload_bytes: int = Field(description="Its stored size.")
    priority: float = Field(description="Its priority.")
    uses: int = Field(description="Acknowledged samples that had it.")
    reserved: int = Field(description="Leased samples that have it.")


class Chunks(BaseModel):
    """A page of chunks (`GET …/replay/chunks`)."""

    chunks: list[Chunk] = Field(description="The chunks of the page. Any page may be short or empty.")
    cursor: str | None = Field(description="Pass it as `cursor` for the next page; null on the last one.")


class ChunksDeleted(BaseModel):
    """What `DELETE …/replay/chunks` did."""

    retired_chunks: int = Field(
        description="Chunks that were retired. Their memory is freed when no sample holds them."
    )
