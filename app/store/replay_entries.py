"""What is said of fragments, chunks and samples on their way into the store, and what their entries say there."""

from dataclasses import dataclass

from app.core.replay import Chunk, Versions
from app.store.codec import Payload

WAITING = "-"
"""Stands for the chunk of a fragment that is in none yet."""

SAMPLEABLE, WITHHELD, PAST = "sampleable", "withheld", "past"
"""Where a chunk is; one that is retired and still in a sample says why it was retired instead."""


@dataclass(frozen=True, slots=True)
class EncodedFragment:
    """A checked fragment, ready to be stored.

    Attributes:
        worker: Who sends it.
        session: The training attempt it was made in.
        number: Its place in what the worker sends in this session, from 0.
        versions: The policy versions that sampled it.
        payload: Its tensors, a safetensors blob.
        priority: What the worker gives it, or None.
        facts: What else is said of it (episodes, reward, cost), the text of a JSON object.
    """

    worker: str
    session: int
    number: int
    versions: Versions
    payload: Payload
    priority: float | None = None
    facts: str = "{}"


@dataclass(frozen=True, slots=True)
class StoredFragment:
    """A fragment's index entry.

    Attributes:
        fragment_id: Its id, chosen here.
        chunk_id: The chunk it is in, or None while it is in none.
        payload_bytes: Size of its payload.
        checksum: The payload's fingerprint.
        worker: Who sent it.
        session: The training attempt it was made in.
        number: Its place in what the worker sent in that session.
        version: The oldest policy version that sampled it.
        facts: What else its sender said of it, the text of a JSON object.
    """

    fragment_id: str
    chunk_id: int | None
    payload_bytes: int
    checksum: str
    worker: str
    session: int
    number: int
    version: int
    facts: str


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's index entry.

    Attributes:
        chunk: What the rules know of it.
        place: Where it is: `SAMPLEABLE`, `WITHHELD`, `PAST`, or why it was retired.
        weight: Its place in the order of weights.
        fragment_ids: Its fragments, in order.
    """

    chunk: Chunk
    place: str
    weight: int
    fragment_ids: tuple[str, ...]
