"""Define one planned change of the replay buffer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.core.replay.buffer import ChunkRecord
from app.store.groups.encoded_group import Payload
from app.store.replay.entries import chunk_rest


@dataclass(frozen=True, slots=True)
class NewFragment:
    """A fragment to be stored: an id never used before, its payload, and the rest of its entry."""

    fragment_id: str
    payload: Payload
    rest: str


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to be inserted: its weight, and the ids of its fragments."""

    chunk: ChunkRecord
    weight: int
    fragment_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Insertion:
    """A change of what one worker has in the buffer, all or none.

    Attributes:
        worker: The worker.
        seen: Its record as it was read.
        text: Its new record, which must be a unique text; empty to delete it.
        due_ms: Run clock at which to check it again, or None.
        fragments: The fragments to store.
        chunks: The chunks that are formed.
        victims: Chunks to evict, first come, until there is room.
        freed: Ids of waiting fragments that are dropped.
        most_inserts: Chunks inserted in all that the rate limiter allows, or None.
        counts: Increases of totals, by name.
    """

    worker: str
    seen: str
    text: str
    due_ms: int | None
    fragments: tuple[NewFragment, ...] = ()
    chunks: tuple[NewChunk, ...] = ()
    victims: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()
    most_inserts: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def fragment_values(fragment_id: str, payload_bytes: int, rest: str) -> dict[str, str]:
    """Encode a fragment as `lua/replay/insert_chunks.lua` reads it."""
    return {"id": fragment_id, "bytes": str(payload_bytes), "rest": rest}


def chunk_values(new: NewChunk) -> dict[str, Any]:
    """Encode a chunk as `lua/replay/insert_chunks.lua` reads it."""
    chunk = new.chunk
    return {
        "weight": str(new.weight),
        "priority": repr(chunk.priority),
        "version": str(chunk.versions.lowest),
        "session": str(chunk.session),
        "bytes": chunk.payload_bytes,
        "fragments": chunk.fragments,
        "rest": chunk_rest(chunk),
        "fragment_ids": new.fragment_ids,
    }
