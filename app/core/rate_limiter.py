"""How far sampling and inserting may run apart: Reverb's limiter of samples per insert."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class LimiterSettings:
    """The band that ``error = inserts * samples_per_insert - samples`` stays within, all in chunks.

    Attributes:
        samples_per_insert: Samples of a chunk aimed at for each chunk inserted, ``> 0``.
        min_diff: Sampling waits rather than take the error below this.
        max_diff: Inserting waits rather than take the error above this.
    """

    samples_per_insert: float
    min_diff: float
    max_diff: float


@dataclass(frozen=True, slots=True)
class Position:
    """Where a limiter stands.

    Attributes:
        inserts: Chunks inserted so far.
        samples: Chunks sampled so far, those in trainers' hands included; less by what was given back.
        size: Chunks sampleable now.
        offset: Added to the error; makes up for what changes of the settings would have made it jump by.
        demand: Chunks in the largest sample that somebody waits for, 0 if nobody does.
    """

    inserts: int = 0
    samples: int = 0
    size: int = 0
    offset: float = 0.0
    demand: int = 0


class Holdup(StrEnum):
    """What a side waits for."""

    SAMPLES = "samples"
    INSERTS = "inserts"
    CHUNKS = "chunks"


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a side must wait.

    Attributes:
        holdup: What it waits for: more samples, more inserts, or more sampleable chunks.
        missing: How many of them, ``>= 1``.
        detail: The same as a sentence with the values in it.
    """

    holdup: Holdup
    missing: int
    detail: str


def error(position: Position, settings: LimiterSettings) -> float:
    """Return how far inserts are ahead of samples, in chunks to be sampled."""
    raise NotImplementedError


def may_insert(
    count: int, position: Position, settings: LimiterSettings | None, min_size_to_sample: int
) -> Blocked | None:
    """Say why ``count`` chunks may not be inserted now; None if they may."""
    raise NotImplementedError


def may_sample(
    count: int, position: Position, settings: LimiterSettings | None, min_size_to_sample: int
) -> Blocked | None:
    """Say why ``count`` chunks may not be sampled now; None if they may."""
    raise NotImplementedError


def inserts_open(position: Position, settings: LimiterSettings | None, min_size_to_sample: int) -> int | None:
    """Return the largest count that `may_insert` now; None for no limit."""
    raise NotImplementedError


def samples_open(position: Position, settings: LimiterSettings | None, min_size_to_sample: int) -> int:
    """Return the largest count that `may_sample` now."""
    raise NotImplementedError


def largest_sample(settings: LimiterSettings | None) -> int | None:
    """Return the most chunks a sample may ask for without a deadlock; None for no limit."""
    raise NotImplementedError


def check(settings: LimiterSettings, max_reuse: int | None, min_size_to_sample: int, max_chunks: int) -> None:
    """Refuse settings under which both sides must come to wait for each other.

    Raises:
        InvalidField: Such settings; `location` names the field.
    """
    raise NotImplementedError


def adjusted(position: Position, old: LimiterSettings | None, new: LimiterSettings | None) -> Position:
    """Return where a limiter stands after its settings changed: the same error, moved into the new band."""
    raise NotImplementedError
