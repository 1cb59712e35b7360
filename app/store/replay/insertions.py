"""Define one planned change of the replay buffer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.core.replay.buffer import ChunkRecord
from app.store.groups.codec import Payload
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
        worker: Who.
        seen: What was known of it.
        text: What is known from now on, unlike any other text; empty to forget it.
        due_ms: Run clock at which to look after it, or None.
        fragments: Those to be stored.
        chunks: Those that are formed.
        victims: Chunks to evict, first come, until there is room.
        freed: Ids of fragments that waited and go.
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


def chunk_values(new: NewChunk) -> list[Any]:
    """Write down a chunk as `lua/replay/insert_chunks.lua` reads it."""
    chunk = new.chunk
    words = [str(new.weight), repr(chunk.priority), str(chunk.versions.lowest), str(chunk.session)]
    return [*words, chunk.payload_bytes, chunk.fragments, chunk_rest(chunk), new.fragment_ids]
