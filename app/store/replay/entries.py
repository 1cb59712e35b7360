"""Define fragments and chunks on their way into the store, and their entries there."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from app.core.numeric.ewma import Rate
from app.core.replay.buffer import ChunkRecord, Eviction, Fragment, ReplayPolicy, Versions
from app.core.replay.chunking import WorkerProgress
from app.core.replay.rate_limiter import LimiterSettings
from app.core.replay.sampling import SamplingSettings, SamplingStrategy
from app.store.groups.codec import Payload

WAITING = "-"
"""Stands for the chunk of a fragment that is in none yet."""

SAMPLEABLE, RESERVED, ARCHIVED = "sampleable", "reserved", "archived"
"""Where a chunk is; one that is retired and still in a sample says why it was retired instead."""


@dataclass(frozen=True, slots=True)
class EncodedFragment:
    """A checked fragment, ready to be stored.

    Attributes:
        worker: Who sends it; no spaces.
        session: The training attempt it was made in, ``>= 0``.
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
        place: Where it is: `SAMPLEABLE`, `RESERVED`, `ARCHIVED`, or why it was retired.
        weight: Its score in the order of weights.
        fragment_ids: Its fragments, in order.
    """

    chunk: ChunkRecord
    place: str
    weight: int
    fragment_ids: tuple[str, ...]


class ChunkContents(NamedTuple):
    """A chunk's version, and its fragments' ids, in order."""

    version: int
    fragment_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredWorker:
    """What is known of a worker.

    Attributes:
        text: How this is written down; what a change of it is based on. Empty for a worker that is not known.
        state: Where it is in the numbers it sends.
        ids: The ids of its fragments that are in no chunk, by number.
        recent: Checksums of its latest fragments in chunks, by number.
        accepted: Fragments taken in from it in all.
        gaps: Gaps in its numbers that were given up.
        rate: How many it sends.
    """

    text: str
    state: WorkerProgress
    ids: Mapping[int, str] = field(default_factory=dict)
    recent: Mapping[int, str] = field(default_factory=dict)
    accepted: int = 0
    gaps: int = 0
    rate: Rate = field(default_factory=lambda: Rate(0, 0))


def chunk_key(chunk_id: int) -> str:
    """Write a chunk's id as the orders hold it: of equal scores, the older chunk comes first."""
    return f"{chunk_id:012d}"


def fragment_rest(fragment: Fragment, facts: str) -> str:
    """Write a fragment's index entry without its chunk and size, which come first."""
    words = (fragment.checksum, fragment.worker, fragment.session, fragment.number, fragment.versions.lowest, facts)
    return " ".join(map(str, words))


def parse_fragment(fragment_id: str, entry: str) -> StoredFragment:
    """Read a fragment's index entry."""
    chunk, size, digest, worker, session, number, version, facts = entry.split(" ", 7)
    chunk_id = None if chunk == WAITING else int(chunk)
    numbers = (int(session), int(number), int(version))
    return StoredFragment(fragment_id, chunk_id, int(size), digest, worker, *numbers, facts)


def chunk_rest(chunk: ChunkRecord) -> str:
    """Write the part of a chunk's entry that scripts do not read, without its fragments' ids, which come last."""
    return f"{chunk.first} {chunk.versions.mean!r} {chunk.versions.highest} {chunk.versions.tokens} {chunk.worker}"


def parse_chunk(key: str, entry: str) -> StoredChunk:
    """Read a chunk's index entry (`lua/replay/replay_chunks.lua`)."""
    place, uses, held, weight, priority, version, session, inserted, size, count, *rest = entry.split()
    first, mean, highest, tokens, worker, ids = rest
    chunk = ChunkRecord(
        chunk_id=int(key),
        worker=worker,
        session=int(session),
        first=int(first),
        fragments=int(count),
        versions=Versions(int(version), float(mean), int(highest), int(tokens)),
        payload_bytes=int(size),
        inserted_ms=int(inserted),
        priority=float(priority),
        uses=int(uses),
        reserved=int(held),
        retired=place not in (SAMPLEABLE, RESERVED),
    )
    return StoredChunk(chunk, place, int(weight), tuple(ids.split(",")))


def chunk_contents(entry: str) -> ChunkContents:
    """Read no more of a chunk's index entry than a sample says of it."""
    *_, version, rest = entry.split(" ", 6)
    return ChunkContents(int(version), tuple(rest.rpartition(" ")[2].split(",")))


def worker_text(worker: StoredWorker, token: str) -> str:
    """Write down what is known of a worker; the token makes the text unlike any other."""
    state = worker.state
    values = {
        "token": token,
        "session": state.session,
        "next_number": state.next_number,
        "open_part": [_fragment_values(fragment) for fragment in state.open_part],
        "waiting": [_fragment_values(fragment) for fragment in state.waiting],
        "heard_ms": state.heard_ms,
        "given_up": state.given_up,
        "ids": worker.ids,
        "recent": worker.recent,
        "accepted": worker.accepted,
        "gaps": worker.gaps,
        "rate": asdict(worker.rate),
    }
    return json.dumps(values, separators=(",", ":"))


def parse_worker(name: str, text: str) -> StoredWorker:
    """Invert `worker_text`."""
    values: dict[str, Any] = json.loads(text)
    session = values["session"]
    state = WorkerProgress(
        session=session,
        next_number=values["next_number"],
        open_part=tuple(_fragment(name, session, fragment) for fragment in values["open_part"]),
        waiting=tuple(_fragment(name, session, fragment) for fragment in values["waiting"]),
        heard_ms=values["heard_ms"],
        given_up=tuple((first, last) for first, last in values["given_up"]),
    )
    ids = {int(number): fragment_id for number, fragment_id in values["ids"].items()}
    recent = {int(number): digest for number, digest in values["recent"].items()}
    return StoredWorker(text, state, ids, recent, values["accepted"], values["gaps"], Rate(**values["rate"]))


def _fragment_values(fragment: Fragment) -> list[Any]:
    versions = fragment.versions
    numbers = [fragment.number, versions.lowest, versions.mean, versions.highest, versions.tokens]
    return [*numbers, fragment.payload_bytes, fragment.checksum, fragment.accepted_ms, fragment.priority]


def _fragment(worker: str, session: int, values: list[Any]) -> Fragment:
    number, lowest, mean, highest, tokens, size, digest, accepted_ms, priority = values
    versions = Versions(lowest, mean, highest, tokens)
    return Fragment(worker, session, number, versions, size, digest, accepted_ms, priority)


def policy_text(policy: ReplayPolicy) -> str:
    """Write down how a buffer is configured; equal configurations give equal text."""
    return json.dumps(asdict(policy), sort_keys=True)


def parse_policy(text: str) -> ReplayPolicy:
    """Invert `policy_text`."""
    fields: dict[str, Any] = json.loads(text)
    limiter = fields.pop("limiter")
    return ReplayPolicy(
        **fields
        | {
            "eviction": Eviction(fields["eviction"]),
            "sampling": parse_sampling(fields["sampling"]),
            "limiter": None if limiter is None else LimiterSettings(**limiter),
        }
    )


def parse_sampling(fields: Mapping[str, Any]) -> SamplingSettings:
    """Read how chunks are drawn."""
    return SamplingSettings(**{**fields, "strategy": SamplingStrategy(fields["strategy"])})
