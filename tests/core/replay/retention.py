"""The rules of retention that only scripts carry out (`lua/replay`): which chunks go for a newcomer, and uses."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from app.core.replay.buffer import ChunkRecord, Occupancy, fits_capacity, uses_open
from app.core.replay.sampling import weight_of
from lachesis.wire.replay import ReplaySettings


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """The chunks to evict for a newcomer.

    Attributes:
        evicted: These chunks, in the order of eviction.
        enough: Whether they make enough room. If not, look at more candidates.
    """

    evicted: tuple[ChunkRecord, ...]
    enough: bool


def make_room(
    newcomer: ChunkRecord,
    held: Occupancy,
    candidates: Iterable[ChunkRecord],
    settings: ReplaySettings,
    archived: Collection[int],
) -> EvictionPlan:
    """Return the chunks to evict so that a newcomer is within the capacity.

    Archived chunks go first. The others follow in the order of `Eviction`; of equals, the oldest first.

    Args:
        newcomer: A chunk that may be inserted (`chunk_drop_reason`).
        held: The contents of the buffer, without the newcomer.
        candidates: Chunks in the buffer: all, or the first ones in the order of eviction.
        settings: The buffer's.
        archived: The ids of archived chunks.
    """
    chunks, payload_bytes = held.chunks + 1, held.payload_bytes + newcomer.payload_bytes
    evicted = []
    for chunk in sorted(candidates, key=lambda each: eviction_key(each, settings, archived)):
        if fits_capacity(chunks, payload_bytes, settings):
            break
        evicted.append(chunk)
        chunks, payload_bytes = chunks - 1, payload_bytes - chunk.payload_bytes
    return EvictionPlan(tuple(evicted), fits_capacity(chunks, payload_bytes, settings))


def eviction_key(chunk: ChunkRecord, settings: ReplaySettings, archived: Collection[int]) -> tuple[bool, float, int]:
    """Return a key that sorts chunks in order of eviction. Samples that hold a chunk do not change it."""
    is_live = chunk.chunk_id not in archived
    match settings.eviction:
        case "most_used":
            return is_live, -chunk.uses, chunk.chunk_id
        case "lowest_priority":
            return is_live, weight_of(chunk.priority, settings.sampling.alpha), chunk.chunk_id
    return is_live, 0, chunk.chunk_id


def reserve(chunk: ChunkRecord, settings: ReplaySettings) -> ChunkRecord:
    """Return the chunk with one more use reserved. It must have an open use."""
    if uses_open(chunk, settings) == 0:
        raise ValueError(f"chunk {chunk.chunk_id} has no use left: {chunk.uses} made, {chunk.reserved} reserved")
    return replace(chunk, reserved=chunk.reserved + 1)


def acknowledge(chunk: ChunkRecord) -> ChunkRecord:
    """Return the chunk with one reservation turned into a use."""
    return replace(give_back(chunk), uses=chunk.uses + 1)


def give_back(chunk: ChunkRecord) -> ChunkRecord:
    """Return the chunk with one reservation less: a nack or expiry ended it without a use."""
    if chunk.reserved == 0:
        raise ValueError(f"no sample holds chunk {chunk.chunk_id}")
    return replace(chunk, reserved=chunk.reserved - 1)
