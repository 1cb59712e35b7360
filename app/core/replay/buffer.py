"""Define the values of the replay buffer and its rules: what may come in, what is evicted, how often a chunk is used.

fragment ──fragments_per_chunk consecutive ones of a worker──▶ chunk ──sampled──▶ reserved ──ack──▶ used
                                                                ▲                   │
                                                                └──nack, expiry─────┘

A chunk is sampleable until it is retired: stale, too old, of an old session, used up, or evicted for a newcomer.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from app.core.groups.staleness import Freshness, freshness
from app.core.numeric.short_sums import mean
from app.core.replay.rate_limiter import LimiterSettings
from app.core.replay.sampling import SamplingSettings, weight_of


class Eviction(StrEnum):
    """The chunk that is evicted first for a newcomer; of equals, the oldest."""

    OLDEST = "oldest"
    MOST_USED = "most_used"
    LOWEST_PRIORITY = "lowest_priority"


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """The settings of a run's replay buffer.

    The fields are those of `lachesis.wire.replay.ReplaySettings`, which defines their bounds and meaning. ``max_bytes``
    None is replaced by `app.core.replay.memory.default_max_bytes` when a buffer is set up.
    """

    fragments_per_chunk: int = 1
    groups: bool = False
    max_chunks: int = 10_000
    max_bytes: int | None = None
    eviction: Eviction = Eviction.OLDEST
    max_staleness: int | None = None
    max_age_s: float | None = None
    max_reuse: int | None = None
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    limiter: LimiterSettings | None = None
    min_size_to_sample: int = 1
    reorder_window_s: float = 5.0
    max_waiting: int = 256
    fragment_ttl_s: float = 300.0
    seed: int = 0
    keep_snapshots: int = 2


@dataclass(frozen=True, slots=True)
class Versions:
    """The policy versions that sampled a fragment's or a chunk's tokens (or steps).

    Attributes:
        lowest: The oldest: what counts for staleness.
        mean: The mean over tokens.
        highest: The newest.
        tokens: The number of these tokens, ``>= 1``.
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
        number: Its number among the worker's fragments of this session, from 0.
        versions: The policy versions that sampled it.
        payload_bytes: Size of its payload.
        checksum: The checksum of its payload. With the number, it tells a repetition from another fragment.
        accepted_ms: Run clock when it arrived, milliseconds.
        priority: The priority that the worker gave it, or None.
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
class ChunkRecord:
    """The unit that is sampled, counted and evicted.

    Attributes:
        chunk_id: Its number in the order of insertion, from 1; 0 before it is inserted.
        worker: The worker that sent its fragments.
        session: The training attempt they were made in.
        first: The number of its first fragment; the others follow without a gap.
        fragments: How many there are.
        versions: What sampled them; the chunk's version is the lowest.
        payload_bytes: Of all of them.
        inserted_ms: Run clock when it was formed, milliseconds.
        priority: See `Fragment`; the largest of theirs, `DEFAULT_PRIORITY` if none has one.
        uses: Acknowledged samples it was in.
        reserved: Leased samples that it is in.
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
class ReplayContext:
    """The state of the run that decides about chunks: session, policy version in force, run clock in milliseconds."""

    session: int
    version: int
    clock_ms: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The contents of the buffer, with retired chunks that are kept for inspection."""

    chunks: int
    payload_bytes: int


class ChunkDropReason(StrEnum):
    """The reason why a chunk may not be inserted or sampled."""

    OLD_SESSION = "old_session"
    FUTURE_SESSION = "future_session"
    STALE = "stale"
    FUTURE_VERSION = "future_version"
    EXPIRED = "expired"
    USED_UP = "used_up"
    EVICTED = "evicted"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """Room for a newcomer.

    Attributes:
        evicted: Chunks that must go for it, in order.
        enough: Whether that is enough; if not, more candidates must be looked at.
    """

    evicted: tuple[ChunkRecord, ...]
    enough: bool


def versions_of(tokens: ArrayLike) -> Versions:
    """Return the lowest, mean and highest of per-token versions. There must be at least one."""
    versions = np.asarray(tokens)
    return Versions(int(versions.min()), float(versions.mean(dtype=np.float64)), int(versions.max()), versions.size)


def chunk_of(fragments: Sequence[Fragment], clock_ms: int) -> ChunkRecord:
    """Join consecutive fragments of one worker and session to a chunk that is not inserted yet."""
    first, parts = fragments[0], [each.versions for each in fragments]
    tokens = sum(part.tokens for part in parts)
    lowest, highest = min(part.lowest for part in parts), max(part.highest for part in parts)
    mean = math.fsum(part.mean * part.tokens for part in parts) / tokens
    return ChunkRecord(
        chunk_id=0,
        worker=first.worker,
        session=first.session,
        first=first.number,
        fragments=len(fragments),
        versions=Versions(lowest, min(max(mean, lowest), highest), highest, tokens),
        payload_bytes=sum(each.payload_bytes for each in fragments),
        inserted_ms=clock_ms,
        priority=max((each.priority for each in fragments if each.priority is not None), default=DEFAULT_PRIORITY),
    )


def chunk_drop_reason(chunk: ChunkRecord, standing: ReplayContext, policy: ReplayPolicy) -> ChunkDropReason | None:
    """Return why a chunk may not be inserted or sampled; None if it may.

    This is checked when it is formed, whenever the session or the version in force changes, and when it is sampled.
    """
    if chunk.session != standing.session:
        return ChunkDropReason.OLD_SESSION if chunk.session < standing.session else ChunkDropReason.FUTURE_SESSION
    reason = versions_drop_reason(chunk.versions, standing.version, policy)
    if reason is not None:
        return reason
    if policy.max_age_s is not None and standing.clock_ms - chunk.inserted_ms > policy.max_age_s * 1000:
        return ChunkDropReason.EXPIRED
    if policy.max_reuse is not None and chunk.uses >= policy.max_reuse:
        return ChunkDropReason.USED_UP
    return (
        ChunkDropReason.TOO_LARGE if policy.max_bytes is not None and chunk.payload_bytes > policy.max_bytes else None
    )


def versions_drop_reason(versions: Versions, current: int, policy: ReplayPolicy) -> ChunkDropReason | None:
    """Return why data sampled by these versions may not be in the buffer at version ``current``; None if it may."""
    if versions.highest > current:
        return ChunkDropReason.FUTURE_VERSION
    return (
        ChunkDropReason.STALE if freshness(versions.lowest, current, policy.max_staleness) is Freshness.STALE else None
    )


def admit(
    newcomer: ChunkRecord,
    held: Occupancy,
    candidates: Iterable[ChunkRecord],
    standing: ReplayContext,
    policy: ReplayPolicy,
) -> EvictionPlan | ChunkDropReason:
    """Return the chunks to evict for a newcomer, or why it is refused. A refused chunk evicts nothing."""
    return chunk_drop_reason(newcomer, standing, policy) or make_room(newcomer, held, candidates, policy)


def make_room(
    newcomer: ChunkRecord, held: Occupancy, candidates: Iterable[ChunkRecord], policy: ReplayPolicy
) -> EvictionPlan:
    """Return the chunks to evict so that a newcomer is within the capacity.

    Those go first that are retired and kept for inspection, then those that `Eviction` says; of equals, the oldest.

    Args:
        newcomer: A chunk that is fit.
        held: What is in the buffer, without the newcomer.
        candidates: Chunks in the buffer: all, or those that would go first.
        policy: The buffer's.
    """
    chunks, payload_bytes = held.chunks + 1, held.payload_bytes + newcomer.payload_bytes
    evicted = []
    for chunk in sorted(candidates, key=lambda each: eviction_key(each, policy)):
        if within(chunks, payload_bytes, policy):
            break
        evicted.append(chunk)
        chunks, payload_bytes = chunks - 1, payload_bytes - chunk.payload_bytes
    return EvictionPlan(tuple(evicted), within(chunks, payload_bytes, policy))


def eviction_key(chunk: ChunkRecord, policy: ReplayPolicy) -> tuple[bool, float, int]:
    """Return a key that sorts chunks in order of eviction. Samples that hold a chunk do not change it."""
    match policy.eviction:
        case Eviction.MOST_USED:
            return not chunk.retired, -chunk.uses, chunk.chunk_id
        case Eviction.LOWEST_PRIORITY:
            return not chunk.retired, weight_of(chunk.priority, policy.sampling.alpha), chunk.chunk_id
    return not chunk.retired, 0, chunk.chunk_id


def reserve(chunk: ChunkRecord, policy: ReplayPolicy) -> ChunkRecord:
    """Return a chunk that one more sample holds. It must have a use open."""
    if uses_open(chunk, policy) == 0:
        raise ValueError(f"chunk {chunk.chunk_id} has no use left: {chunk.uses} made, {chunk.reserved} reserved")
    return replace(chunk, reserved=chunk.reserved + 1)


def acknowledge(chunk: ChunkRecord) -> ChunkRecord:
    """Return a chunk whose reservation became a use."""
    return replace(give_back(chunk), uses=chunk.uses + 1)


def give_back(chunk: ChunkRecord) -> ChunkRecord:
    """Return a chunk after one of its reservations ended without a use, by nack or expiry."""
    if chunk.reserved == 0:
        raise ValueError(f"no sample holds chunk {chunk.chunk_id}")
    return replace(chunk, reserved=chunk.reserved - 1)


def uses_open(chunk: ChunkRecord, policy: ReplayPolicy) -> int | None:
    """Return how many more samples may hold a chunk now, ``>= 0``; None for no limit. At 0 it leaves the indexes."""
    return None if policy.max_reuse is None else max(0, policy.max_reuse - chunk.uses - chunk.reserved)


def within(chunks: int, payload_bytes: int, policy: ReplayPolicy) -> bool:
    """Whether so many chunks, of so many bytes together, are within the capacity."""
    return chunks <= policy.max_chunks and (policy.max_bytes is None or payload_bytes <= policy.max_bytes)


def mean_reward(scores: ArrayLike) -> float:
    """Return the mean of a group's scores. There must be at least one. The result is finite if they are."""
    values = np.asarray(scores, np.float64)
    lowest, highest = float(values[values.argmin()]), float(values[values.argmax()])
    return min(max(mean(values), lowest), highest)


def versions_counted(oldest: int, sampled: Versions | None, current: int) -> Versions:
    """Return the versions that a trained group counts as sampled by. None of them is later than the one in force.

    Args:
        oldest: The version that the group as a whole counts as sampled by.
        sampled: The versions that it gave for its tokens, if any.
        current: The version in force.
    """
    lowest = min(oldest, current)
    if sampled is None:
        return Versions(lowest, float(lowest), lowest)
    highest = max(lowest, min(sampled.highest, current))
    return Versions(lowest, min(max(sampled.mean, float(lowest)), float(highest)), highest, sampled.tokens)


def place_snapshot(name: str, there: Mapping[int, str], keep: int, slots: int) -> tuple[int, list[int]]:
    """Return the slot for a snapshot, and the slots to clear: the one of the same name, then the oldest.

    Args:
        name: The name of the new snapshot.
        there: The names of the existing snapshots by slot, oldest first.
        keep: How many snapshots to keep with the new one, 1 to ``slots``.
        slots: The number of slots; they are numbered from 0.
    """
    gone = [slot for slot, other in there.items() if other == name]
    others = [slot for slot in there if slot not in gone]
    gone += others[: max(0, len(others) + 1 - keep)]
    return next(slot for slot in range(slots) if slot not in there or slot in gone), gone
