"""The replay buffer's values, and its rules of retention: what may come in, what must go, how often a chunk is used.

fragment ──fragments_per_chunk consecutive ones of a worker──▶ chunk ──sampled──▶ reserved ──ack──▶ used
                                                                ▲                   │
                                                                └──nack, expiry─────┘

A chunk is sampleable until it is retired: stale, too old, of an old session, used up, or evicted for a newcomer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from app.core.drawing import Sampling
from app.core.freshness import Freshness, freshness, oldest_fresh
from app.core.rate_limiter import LimiterSettings


class Eviction(StrEnum):
    """Which chunk goes first when a newcomer needs its place; of equals, the oldest."""

    OLDEST = "oldest"
    MOST_USED = "most_used"
    LOWEST_PRIORITY = "lowest_priority"


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """How a run's replay buffer keeps and hands out experience.

    Attributes:
        fragments_per_chunk: Consecutive fragments of one worker in a chunk, ``>= 1``.
        max_chunks: Most chunks held.
        max_bytes: Most bytes of payload held by chunks, or None for no limit.
        eviction: Who goes first when there is no room.
        max_staleness: Most versions between a chunk's and the one in force, or None for no limit.
        max_age_s: Longest time in the buffer, seconds, or None for no limit.
        max_reuse: Most acknowledged samples a chunk is in, or None for no limit.
        sampling: How chunks are drawn unless a trainer asks for something else.
        limiter: How far samples and inserts may run apart, or None for no limit.
        min_size_to_sample: Sampleable chunks without which nothing is sampled, ``>= 1``.
        reorder_window_s: How long a gap in a worker's numbers is waited for, seconds.
        max_waiting: Fragments of one worker that wait behind a gap before it is given up at once, ``>= 1``.
        fragment_ttl_s: Silence of a worker after which its fragments that are in no chunk yet expire, seconds.
        seed: Of the generator that draws, 0 to 2**64 - 1.
    """

    fragments_per_chunk: int = 1
    max_chunks: int = 10_000
    max_bytes: int | None = None
    eviction: Eviction = Eviction.OLDEST
    max_staleness: int | None = None
    max_age_s: float | None = None
    max_reuse: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    limiter: LimiterSettings | None = None
    min_size_to_sample: int = 1
    reorder_window_s: float = 5.0
    max_waiting: int = 256
    fragment_ttl_s: float = 300.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Versions:
    """The policy versions that sampled a fragment's or a chunk's tokens (or steps).

    Attributes:
        lowest: The oldest: what counts for staleness.
        mean: The mean over tokens.
        highest: The newest.
        tokens: How many tokens that is over, ``>= 1``.
    """

    lowest: int
    mean: float
    highest: int
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a worker's episode, as far as the rules need to know it.

    Attributes:
        worker: Who sent it.
        session: The training attempt it was made in.
        number: Its place in what the worker sends in this session, from 0.
        versions: What sampled it.
        payload_bytes: Size of its payload.
        checksum: Of its payload: with the number, tells a repetition from another fragment.
        accepted_ms: Run clock when it arrived, milliseconds.
        priority: What the worker gave it, or None.
    """

    worker: str
    session: int
    number: int
    versions: Versions
    payload_bytes: int
    checksum: str
    accepted_ms: int
    priority: float | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """What is sampled, counted and evicted.

    Attributes:
        chunk_id: Its number in the order of insertion, from 1; 0 before it is inserted.
        worker: Whose fragments these are.
        session: The training attempt they were made in.
        first: The number of its first fragment; the others follow without a gap.
        fragments: How many there are.
        versions: What sampled them; the chunk's version is the lowest.
        payload_bytes: Of all of them.
        inserted_ms: Run clock when it was formed, milliseconds.
        priority: See `Fragment`; the largest of theirs, `DEFAULT_PRIORITY` if none has one.
        uses: Acknowledged samples it was in.
        reserved: Samples in trainers' hands that it is in.
        retired: Whether it is held for inspection only.
    """

    chunk_id: int
    worker: str
    session: int
    first: int
    fragments: int
    versions: Versions
    payload_bytes: int
    inserted_ms: int
    priority: float
    uses: int = 0
    reserved: int = 0
    retired: bool = False


DEFAULT_PRIORITY = 1.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What chunks are judged by: the run's session, the policy version in force, the run clock in milliseconds."""

    session: int
    version: int
    clock_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """What the buffer holds, retired chunks that are kept for inspection included."""

    chunks: int
    payload_bytes: int


class Unfit(StrEnum):
    """Why a chunk may not be sampled, or not any more."""

    OLD_SESSION = "old_session"
    FUTURE_SESSION = "future_session"
    STALE = "stale"
    FUTURE_VERSION = "future_version"
    EXPIRED = "expired"
    USED_UP = "used_up"
    EVICTED = "evicted"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class Room:
    """Room for a newcomer.

    Attributes:
        evicted: Chunks that must go for it, in order.
        enough: Whether that is enough; if not, more candidates must be looked at.
    """

    evicted: tuple[Chunk, ...]
    enough: bool


def versions_of(tokens: Iterable[int]) -> Versions:
    """Return the lowest, mean and highest of per-token versions, of which there must be one."""
    raise NotImplementedError


def chunk_of(fragments: Sequence[Fragment], clock_ms: int) -> Chunk:
    """Put consecutive fragments of one worker and session together as a chunk that is not inserted yet."""
    raise NotImplementedError


def unfit(chunk: Chunk, standing: Standing, policy: ReplayPolicy) -> Unfit | None:
    """Say why a chunk may not be sampled, or not any more; None if it may be."""
    raise NotImplementedError


def make_room(newcomer: Chunk, held: Held, candidates: Iterable[Chunk], policy: ReplayPolicy) -> Room:
    """Say which chunks must go so that a newcomer, which must be fit, is within the capacity."""
    raise NotImplementedError


def reserve(chunk: Chunk, policy: ReplayPolicy) -> Chunk:
    """Return a chunk that one more sample holds."""
    raise NotImplementedError


def acknowledge(chunk: Chunk) -> Chunk:
    """Return a chunk whose reservation became a use."""
    raise NotImplementedError


def give_back(chunk: Chunk) -> Chunk:
    """Return a chunk one of whose reservations ended without a use: nack or expiry."""
    raise NotImplementedError


def uses_open(chunk: Chunk, policy: ReplayPolicy) -> int | None:
    """Return how many more samples may hold a chunk now, or None for no limit. At 0 it leaves the orders."""
    raise NotImplementedError
