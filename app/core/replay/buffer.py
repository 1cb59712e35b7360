"""Define the values of the replay buffer and its rules: what may come in, what is evicted, how often a chunk is used.

fragment ──fragments_per_chunk consecutive ones of a worker──▶ sampleable ──samples hold all uses left──▶ reserved
                                                                   ▲                                       │
                                                                   └──────────────nack, expiry─────────────┘

A sampled chunk stays sampleable while it has uses left. An ack counts as a use. A sampleable or reserved chunk is
retired when it is stale, too old, of an old session, used up, or evicted for a newcomer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from app.core.groups.staleness import Freshness, freshness
from lachesis.wire.replay import ReplaySettings
from lachesis.wire.states import ChunkDropReason


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
        versions: The policy versions that sampled them. The lowest is the chunk's version.
        payload_bytes: Size of their payloads together.
        inserted_ms: Run clock when it was formed, milliseconds.
        priority: The largest priority of its fragments; `DEFAULT_PRIORITY` if none has one.
        uses: Acknowledged samples it was in.
        reserved: Leased samples that it is in.
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


DEFAULT_PRIORITY = 1.0


@dataclass(frozen=True, slots=True)
class ReplayContext:
    """The state of the run that decides about chunks: session, policy version in force, run clock in milliseconds."""

    session: int
    version: int
    clock_ms: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The contents of the buffer, with archived chunks."""

    chunks: int
    payload_bytes: int


def versions_of(versions: ArrayLike, tokens: ArrayLike | None = None) -> Versions:
    """Return the lowest, mean and highest of the versions that sampled tokens. There must be at least one.

    Args:
        versions: The versions.
        tokens: How many tokens each of them sampled, ``>= 1``. None: one token each.
    """
    sampled = np.asarray(versions)
    if tokens is None:
        mean, count = sampled.mean(dtype=np.float64), sampled.size
    else:
        mean, count = np.average(sampled, weights=np.asarray(tokens)), np.sum(tokens)
    return Versions(int(sampled.min()), float(mean), int(sampled.max()), int(count))


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


def chunk_drop_reason(chunk: ChunkRecord, context: ReplayContext, settings: ReplaySettings) -> ChunkDropReason | None:
    """Return why a chunk may not be inserted or sampled; None if it may.

    The buffer checks a chunk when it is formed, when the session or the version in force changes, and when it is
    sampled.
    """
    if chunk.session != context.session:
        return "old_session" if chunk.session < context.session else "future_session"
    reason = versions_drop_reason(chunk.versions, context.version, settings)
    if reason is not None:
        return reason
    if settings.max_age_s is not None and context.clock_ms - chunk.inserted_ms > settings.max_age_s * 1000:
        return "expired"
    if settings.max_reuse is not None and chunk.uses >= settings.max_reuse:
        return "used_up"
    return "too_large" if settings.max_bytes is not None and chunk.payload_bytes > settings.max_bytes else None


def versions_drop_reason(versions: Versions, current: int, settings: ReplaySettings) -> ChunkDropReason | None:
    """Return why data sampled by these versions may not be in the buffer at version ``current``; None if it may."""
    if versions.highest > current:
        return "future_version"
    return "stale" if freshness(versions.lowest, current, settings.max_staleness) is Freshness.STALE else None


def uses_open(chunk: ChunkRecord, settings: ReplaySettings) -> int | None:
    """Return how many more samples may hold a chunk now, ``>= 0``; None for no limit. At 0 it leaves the indexes."""
    return None if settings.max_reuse is None else max(0, settings.max_reuse - chunk.uses - chunk.reserved)


def fits_capacity(chunks: int, payload_bytes: int, settings: ReplaySettings) -> bool:
    """Return whether so many chunks, of so many bytes together, are within the capacity."""
    return chunks <= settings.max_chunks and (settings.max_bytes is None or payload_bytes <= settings.max_bytes)


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
