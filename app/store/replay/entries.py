"""Define fragments and chunks on their way into the store, and their entries there."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from app.core.numeric.ewma import Rate
from app.core.replay.buffer import ChunkRecord, Fragment, Versions
from app.core.replay.chunking import WorkerProgress
from app.core.replay.grid import Spot
from app.store.groups.encoded_group import Payload
from lachesis.wire.replay import ReplaySettings

WAITING = "-"
"""The chunk of a fragment that is in no chunk yet."""

GROUP_WORKER = "@environment/"
"""What the workers of groups begin with; no worker's name begins like this."""


@dataclass(frozen=True, slots=True)
class EncodedFragment:
    """A checked fragment, ready to be stored.

    Attributes:
        worker: The worker that sends it; no spaces.
        session: The training attempt it was made in, ``>= 0``.
        number: Its number among the worker's fragments of this session, from 0.
        versions: The policy versions that sampled it.
        payload: Its tensors, a safetensors blob.
        priority: The priority that the worker gave it, or None.
        facts: Further facts (episodes, reward, cost), as the text of a JSON object.
    """

    worker: str
    session: int
    number: int
    versions: Versions
    payload: Payload
    priority: float | None = None
    facts: str = "{}"


@dataclass(frozen=True, slots=True)
class FragmentRecord:
    """A fragment's index entry.

    Attributes:
        fragment_id: Its id, chosen here.
        chunk_id: The chunk it is in, or None while it is in none.
        payload_bytes: Size of its payload.
        checksum: The payload's fingerprint.
        worker: The worker that sent it.
        session: The training attempt it was made in.
        number: Its number among the worker's fragments of that session.
        version: The oldest policy version that sampled it.
        facts: Further facts from its sender, as the text of a JSON object.
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

    @property
    def is_group(self) -> bool:
        """Whether it is a group of an acknowledged batch, and no worker sent it."""
        return self.worker.startswith(GROUP_WORKER)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's index entry.

    Attributes:
        chunk: The values that the rules need.
        place: One of `CHUNK_PLACES`. A retired chunk that a sample still holds has the reason in place of this.
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
    """The record of a worker.

    Attributes:
        text: The record as it is stored. A change is refused if this has changed. Empty for an unknown worker.
        state: Its progress in the numbers that it sends.
        ids: The ids of its fragments that are in no chunk, by number.
        recent: Checksums of its latest fragments in chunks, by number.
        accepted: Fragments accepted from it in all.
        gaps: Gaps in its numbers that were given up.
        rate: The rate at which it sends fragments.
    """

    text: str
    state: WorkerProgress
    ids: Mapping[int, str] = field(default_factory=dict)
    recent: Mapping[int, str] = field(default_factory=dict)
    accepted: int = 0
    gaps: int = 0
    rate: Rate = field(default_factory=lambda: Rate(0, 0))


def chunk_key(chunk_id: int) -> str:
    """Encode a chunk's id as a member of the indexes. Among equal scores, the older chunk comes first."""
    return f"{chunk_id:012d}"


def fragment_rest(fragment: Fragment, facts: str) -> str:
    """Write a fragment's index entry without its chunk and size, which come first."""
    words = (fragment.checksum, fragment.worker, fragment.session, fragment.number, fragment.versions.lowest, facts)
    return " ".join(map(str, words))


def parse_fragment(fragment_id: str, entry: str) -> FragmentRecord:
    """Read a fragment's index entry."""
    chunk, size, digest, worker, session, number, version, facts = entry.split(" ", 7)
    chunk_id = None if chunk == WAITING else int(chunk)
    numbers = (int(session), int(number), int(version))
    return FragmentRecord(fragment_id, chunk_id, int(size), digest, worker, *numbers, facts)


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
    )
    return StoredChunk(chunk, place, int(weight), tuple(ids.split(",")))


def parse_spot(line: str) -> Spot:
    """Read a line of `find_spread_chunks`."""
    uses, priority, version = line.split()
    return Spot(int(version), int(uses), float(priority))


def chunk_contents(entry: str) -> ChunkContents:
    """Parse the part of a chunk's index entry that a sample needs."""
    *_, version, rest = entry.split(" ", 6)
    return ChunkContents(int(version), tuple(rest.rpartition(" ")[2].split(",")))


def worker_text(worker: StoredWorker, token: str) -> str:
    """Encode the record of a worker. The token makes the text unique."""
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
    """Decode what `worker_text` encoded."""
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


@lru_cache(maxsize=256)
def parse_replay_settings(text: str) -> ReplaySettings:
    """Decode what `settings_text` encoded. Equal texts are validated once: every request reads the settings."""
    return ReplaySettings.model_validate_json(text)
