"""The replay buffer of a run, as it is set up, changed, shown and emptied under ``/v1/runs/{run}/replay``."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.runs import YEAR_S
from lachesis.wire.states import BlockedOn

MAX_CHUNKS = 10_000_000
MAX_FRAGMENTS_PER_CHUNK = 4096
MAX_PRIORITIES = 10_000
"""Maximum number of priorities in one request."""
MAX_SAMPLE_CHUNKS = 8192
"""Maximum number of chunks in a sample. One script leases them all, and other commands wait for it."""
MAX_SAMPLE_FRAGMENTS = 65_536
MAX_SNAPSHOTS = 4

WORKER_NAME = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}"

Worker = Annotated[
    str, Field(pattern=f"^{WORKER_NAME}$", description="The worker that sends fragments.", examples=["worker-0"])
]
Session = Annotated[int, Field(ge=0, le=MAX_INTEGER, description="The training attempt in which it was made.")]
ChunkId = Annotated[int, Field(ge=1, le=MAX_INTEGER, description="A chunk: its number in the order of insertion.")]
Priority = Annotated[float, Field(ge=0, description="The priority of a chunk, for `proportional` and `rank`.")]
SamplingStrategy = Literal["uniform", "fifo", "lifo", "proportional", "rank", "recency", "staleness"]
Eviction = Literal["oldest", "most_used", "lowest_priority"]
Strategy = Annotated[
    SamplingStrategy,
    Field(
        description="How the chunks of a sample are drawn, without replacement. `uniform`: all chunks are equally "
        "likely. `fifo`: the oldest chunks. `lifo`: the newest chunks. The others draw chunks with probability in "
        "proportion to a weight. `proportional`: `priority ** alpha`. `rank`: `rank ** -alpha`, where rank 1 has the "
        "highest priority. `recency`: `2 ** -(newer chunks / half_life_chunks)`. `staleness`: `1 / (1 + staleness)`."
    ),
]
Alpha = Annotated[
    float,
    Field(
        ge=0,
        le=4,
        description="Exponent of priorities or ranks. 0 means that all chunks are equally likely. Priorities count as "
        "equal where `priority ** alpha` is above 2^32.",
    ),
]
Beta = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        description="Exponent of importance weights. 0 means that all weights are 1. 1 means that the weights correct "
        "the bias of the draws fully.",
    ),
]
HalfLife = Annotated[
    float,
    Field(
        ge=1e-3,
        le=1e12,
        description="`recency`: the probability of a chunk halves each time this number of newer chunks is added.",
    ),
]


class Sampling(Body):
    """How chunks are drawn."""

    strategy: Strategy = "uniform"
    alpha: Alpha = 0.6
    beta: Beta = 0.4
    half_life_chunks: HalfLife = 1000.0


class RateLimiter(Body):
    """Bounds of how far samples and inserts may run apart.

    The error ``inserts * samples_per_insert - samples`` is kept between two bounds, in chunks. docs/how-to/replay.md
    lists the exceptions.
    """

    samples_per_insert: float = Field(
        ge=1e-6, le=1_000_000, description="Number of chunks that trainers sample for each inserted chunk."
    )
    min_diff: float = Field(
        description="Lower bound of the error. A sample that would take the error below this bound waits."
    )
    max_diff: float = Field(
        description="Upper bound of the error. An insert that would take the error above this bound waits. `max_diff` "
        "is at least `min_diff + 2 * max(1, samples_per_insert)`."
    )


class ReplaySettings(Body):
    """How a run's replay buffer keeps and hands out experience (`PUT …/replay`)."""

    # The one definition of these settings, for the service, the SDK and the documents.

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"fragments_per_chunk": 2, "max_chunks": 50_000, "max_staleness": 8}]}
    )

    fragments_per_chunk: int = Field(
        default=1,
        ge=1,
        le=MAX_FRAGMENTS_PER_CHUNK,
        description="Number of consecutive fragments of one worker in a chunk.",
    )
    groups: bool = Field(
        default=False,
        description="Whether the groups of acknowledged batches become chunks of one fragment each. `true` needs "
        "`fragments_per_chunk` 1.",
    )
    max_chunks: int = Field(default=10_000, ge=1, le=MAX_CHUNKS, description="Maximum number of chunks in the buffer.")
    max_bytes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Maximum payload of chunks, bytes. Null means a quarter of the memory that Redis may use "
        "(`maxmemory`, or the memory of its machine). The service computes the number when this setting is set, and "
        "shows it.",
    )
    eviction: Eviction = Field(
        default="oldest",
        description="Which chunk a full buffer evicts. Among equal chunks it evicts the oldest.",
    )
    max_staleness: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="Maximum number of policy versions between a chunk's oldest fragment and the current version. The "
        "buffer retires older chunks. Null means no limit.",
    )
    max_age_s: float | None = Field(
        default=None,
        gt=0,
        le=YEAR_S,
        description="Maximum time of a chunk in the buffer, seconds. The buffer retires older chunks. Null means no "
        "limit.",
    )
    max_reuse: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Maximum number of uses of a chunk, in acknowledged samples and batches. Then the buffer retires "
        "the chunk. Null means no limit.",
    )
    sampling: Sampling = Field(
        default_factory=Sampling,
        description="How chunks are drawn for trainers that do not choose themselves. A change replaces the whole "
        "object.",
    )
    limiter: RateLimiter | None = Field(
        default=None,
        description="The rate limiter of samples and inserts. A change replaces the whole object. Null means no "
        "limiter.",
    )
    min_size_to_sample: int = Field(
        default=1,
        ge=1,
        le=MAX_CHUNKS,
        description="Minimum number of sampleable chunks. With fewer chunks, samples wait.",
    )
    reorder_window_s: float = Field(
        default=5.0,
        ge=0,
        le=YEAR_S,
        description="Time that the buffer waits for a missing number of a worker, seconds. Then it skips the gap.",
    )
    max_waiting: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description="Maximum number of fragments of a worker that wait behind a gap. If more wait, the buffer skips "
        "the gap at once.",
    )
    fragment_ttl_s: float = Field(
        default=300.0,
        gt=0,
        le=YEAR_S,
        description="Time without a fragment of a worker, seconds. Then the buffer drops the fragments of the worker "
        "that are in no chunk yet.",
    )
    seed: int = Field(default=0, ge=0, le=MAX_INTEGER, description="Seed of the generator that draws chunks.")
    keep_snapshots: int = Field(
        default=2,
        ge=1,
        le=MAX_SNAPSHOTS,
        description="Maximum number of snapshots. A further snapshot replaces the oldest.",
    )


class ReplayChange(ReplaySettings, Change):
    """Changes to a buffer (`PATCH …/replay`). Fields that are left out stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_staleness": 4, "max_reuse": None}]})


class LimiterBlocked(BaseModel):
    """Why inserts or samples wait."""

    blocked_on: BlockedOn = Field(description="What the inserts or samples wait for.")
    missing: int = Field(description="How many of these are missing.")
    detail: str = Field(description="The reason as a sentence with its values.")


class LimiterPosition(BaseModel):
    """Where the rate limiter stands, in chunks."""

    inserts: int = Field(description="Chunks inserted so far.")
    samples: int = Field(description="Chunks sampled so far, including those in leased samples.")
    error: float | None = Field(description="inserts * samples_per_insert - samples; null without a limiter.")
    inserts_blocked: LimiterBlocked | None = Field(description="Why one further chunk must wait, or null.")
    samples_blocked: LimiterBlocked | None = Field(description="Why a sample of one chunk must wait, or null.")


class ReplayWorker(BaseModel):
    """What a worker has sent."""

    worker: str = Field(description="Its name.")
    session: int = Field(description="The worker's session.")
    next_number: int = Field(description="The number that follows without a gap.")
    resume_number: int = Field(
        default=0,
        description="The number with which the worker continues after a restart. Behind a gap it is higher than "
        "`next_number`.",
    )
    accepted_fragments: int = Field(description="Accepted fragments, of all its sessions.")
    waiting_fragments: int = Field(description="Accepted fragments of the worker that are in no chunk yet.")
    gaps: int = Field(description="Skipped gaps in the worker's numbers, in all its sessions.")
    heard_age_s: float = Field(description="Seconds since its last fragment.")
    fragments_per_s: float = Field(description="Fragments per second lately.")


class ReplayState(BaseModel):
    """The current state of a replay buffer (`GET …/replay`)."""

    settings: ReplaySettings = Field(description="Its settings.")
    session: int = Field(description="The training attempt in progress.")
    policy_version: int = Field(description="The policy version in force.")
    sampleable_chunks: int = Field(description="Chunks that may be sampled now.")
    reserved_chunks: int = Field(description="Chunks whose open uses are all reserved by leased samples.")
    archived_chunks: int = Field(description="Chunks of former sessions, kept for inspection until they are evicted.")
    filled_share: float = Field(
        description="These three kinds of chunks as a part of `max_chunks`. Above 1 while there are more chunks than "
        "a lowered `max_chunks` allows."
    )
    chunk_bytes: int = Field(description="Payload of sampleable, reserved and archived chunks, bytes.")
    retired_in_use_chunks: int = Field(description="Retired chunks that samples still hold.")
    waiting_fragments: int = Field(description="Fragments in no chunk yet.")
    waiting_bytes: int = Field(description="Payload of these fragments, bytes.")
    accepted_fragments: int = Field(description="Fragments accepted so far.")
    chunk_fragments: int = Field(description="Accepted fragments in chunks that are not retired.")
    retired_fragments: int = Field(description="Accepted fragments in chunks that were retired.")
    dropped_fragments: dict[str, int] = Field(description="Accepted fragments that were dropped, by reason.")
    refused_fragments: dict[str, int] = Field(description="Refused fragments, by reason.")
    retired_chunks: dict[str, int] = Field(description="Chunks retired so far, by reason.")
    gaps: int = Field(description="Skipped gaps in the numbers of workers.")
    versions: dict[int, int] = Field(description="Sampleable chunks by policy version.")
    uses: dict[int, int] = Field(
        description="Sampleable chunks by uses. The largest number includes all higher numbers of uses."
    )
    limiter: LimiterPosition = Field(description="The position of the rate limiter, and what it blocks.")
    samples_held: int = Field(description="Leased samples, and leased batches with replayed groups.")
    avg_reuse: float | None = Field(description="Mean uses of retired chunks; null before the first.")
    avg_staleness: float | None = Field(description="Mean staleness of sampled chunks; null before the first.")
    fragments_per_s: float = Field(description="Fragments accepted per second lately.")
    workers: list[ReplayWorker] = Field(description="The workers that send fragments, by name.")


class SessionStart(Body):
    """The training attempt in progress (`PUT …/replay/session`)."""

    session: int = Field(
        ge=0,
        le=MAX_INTEGER,
        description="The number of the session. A lower number than the present one is refused.",
        examples=[1],
    )


class SessionSet(BaseModel):
    """The result of a new session."""

    session: int = Field(description="The session in progress.")
    retired_chunks: int = Field(description="Chunks of former sessions that the new session archived.")


class Priorities(Body):
    """New priorities of chunks (`PATCH …/replay/priorities`)."""

    priorities: dict[ChunkId, Priority] = Field(
        min_length=1, max_length=MAX_PRIORITIES, description="Priorities by chunk.", examples=[{"17": 0.5, "18": 2.25}]
    )

    @field_validator("priorities", mode="before")
    @classmethod
    def _each_chunk_once(cls, given: Any) -> Any:
        """Refuse other forms of a number, such as "017" and " 17": two keys could then name the same chunk."""
        if isinstance(given, dict):
            for name in given:
                if isinstance(name, str) and not re.fullmatch("[1-9][0-9]*", name, re.ASCII):
                    raise ValueError(f"{name[:20]!r} is not the number of a chunk")
        return given


class PrioritiesSet(BaseModel):
    """The chunks that have new priorities."""

    updated: int = Field(description="Number of priorities that were set.")
    missing: list[int] = Field(
        description="Chunks that the buffer does not have. It still has archived chunks, and retired chunks that a "
        "sample holds."
    )


class Chunk(BaseModel):
    """A chunk, for operators."""

    chunk: ChunkId
    place: str = Field(
        description="`sampleable`, `reserved` or `archived`; for a retired chunk that a sample holds, the reason."
    )
    worker: str = Field(description="The worker that sent its fragments.")
    session: int = Field(description="The session in which they were made.")
    first: int = Field(description="The number of its first fragment.")
    group: str | None = Field(description="The id of the group it was made from. Null for fragments of a worker.")
    fragments: list[str] = Field(description="Their ids, in order.")
    version: int = Field(description="Its policy version: the oldest version that sampled a part of it.")
    mean_version: float = Field(description="Mean policy version over its steps.")
    highest_version: int = Field(description="The newest policy version that sampled a part of it.")
    payload_bytes: int = Field(description="Its stored size.")
    priority: float = Field(description="Its priority.")
    uses: int = Field(description="Acknowledged samples that had it.")
    reserved: int = Field(description="Leased samples that have it.")


class Chunks(BaseModel):
    """A page of chunks (`GET …/replay/chunks`)."""

    chunks: list[Chunk] = Field(description="The chunks of the page. Any page may be short or empty.")
    cursor: str | None = Field(description="Send this value as `cursor` to get the next page. Null on the last page.")


class ReplayGrid(BaseModel):
    """Chunks that may be sampled now or later, by age and uses (`GET …/replay/grid`)."""

    chunks: int = Field(description="Sampleable and reserved chunks.")
    looked_at: int = Field(
        description="How many chunks the grid counts: all of a small buffer, about 2000 of a large one, spread evenly "
        "over the order of insertion."
    )
    age_edges: list[int] = Field(
        description="Bounds of the columns. An age is the policy version in force minus the version of the chunk. "
        "A column has ages from its bound up to before the next bound. Empty without chunks."
    )
    uses_edges: list[int] = Field(description="Bounds of the rows, in acknowledged uses.")
    counts: list[list[int]] = Field(description="For each row, the chunks in each column.")
    mean_priorities: list[list[float | None]] = Field(
        description="For each row, the mean priority of the chunks in each column. Null where there is none."
    )


class ChunksDeleted(BaseModel):
    """What `DELETE …/replay/chunks` did."""

    retired_chunks: int = Field(
        description="Chunks that were retired. Memory of a chunk is freed when the last sample that holds it ends."
    )
