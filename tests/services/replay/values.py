"""What the plain model of a replay buffer is made of: fragments, chunks, workers, samples, settings."""

import math
from collections import Counter
from dataclasses import dataclass, field

REORDER_WINDOW_S, FRAGMENT_TTL_S = 45, 105


class Refused(Exception):
    """The call is refused: the error's code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Sent:
    """A fragment as its worker sends it; `contents` stands for its tensors."""

    worker: str
    session: int
    number: int
    version: int
    priority: float | None
    contents: int

    @property
    def size(self) -> int:
        return 20 + 5 * self.contents

    def is_again(self, other: "Sent") -> bool:
        return self.contents == other.contents


@dataclass(frozen=True, slots=True)
class Limiter:
    """The rate limiter's band."""

    samples_per_insert: float
    min_diff: float
    max_diff: float


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of a buffer that change while it runs."""

    fragments_per_chunk: int = 1
    max_chunks: int = 6
    max_bytes: int | None = None
    eviction: str = "oldest"
    max_staleness: int | None = None
    max_age_s: float | None = None
    max_reuse: int | None = 2
    min_size_to_sample: int = 1
    limiter: Limiter | None = None


@dataclass(eq=False, slots=True)
class Chunk:
    """Some fragments in a row; `place` is where it is, or why it was retired while samples held it."""

    id: int
    parts: list[Sent]
    inserted: float
    priority: float
    uses: int = 0
    held: int = 0
    place: str = "sampleable"

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def version(self) -> int:
        return min(part.version for part in self.parts)


@dataclass(slots=True)
class Worker:
    """What a worker sent: a line, shorter than a chunk; what waits behind a gap, and since when; what is in chunks."""

    session: int
    heard: float
    next: int = 0
    line: list[Sent] = field(default_factory=list)
    waiting: dict[int, tuple[Sent, float]] = field(default_factory=dict)
    chunked: dict[int, Sent] = field(default_factory=dict)
    missed: set[int] = field(default_factory=set)

    @property
    def unchunked(self) -> dict[int, Sent]:
        return {sent.number: sent for sent in (*self.line, *(sent for sent, _ in self.waiting.values()))}

    @property
    def due(self) -> float:
        if not self.unchunked:
            return math.inf
        gaps = [since + REORDER_WINDOW_S for _, since in self.waiting.values()]
        return min(self.heard + FRAGMENT_TTL_S, *gaps, math.inf)


@dataclass(slots=True)
class Held:
    """A sample in a trainer's hands."""

    chunks: list[int]
    lease: str
    request: str | None
    until: float


@dataclass(slots=True)
class Draft:
    """What would become of a worker, before it is known whether the limiter lets it."""

    worker: Worker
    chunks: list[list[Sent]] = field(default_factory=list)
    dropped: dict[Sent, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Contents:
    """All that a snapshot keeps."""

    rules: Rules
    session: int = 0
    offset: float = 0.0
    demand: tuple[int, float] = (0, 0.0)
    chunks: dict[int, Chunk] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    samples: dict[str, Held] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
