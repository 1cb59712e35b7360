"""Which chunks a sample gets: strategies as draws of ranks in the orders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Strategy(StrEnum):
    """How likely each chunk is to be sampled."""

    UNIFORM = "uniform"
    FIFO = "fifo"
    LIFO = "lifo"
    PROPORTIONAL = "proportional"
    RANK = "rank"
    RECENCY = "recency"
    STALENESS = "staleness"


class Order(StrEnum):
    """The sorted sets that chunks stand in, by their scores: whole numbers, 0 to `MAX_SCORE`."""

    INSERTION = "order"
    WEIGHTS = "weights"
    VERSIONS = "versions"
    USES = "uses"


MAX_SCORE = 2**53
MAX_WEIGHT = 2**52
WEIGHT_SCALE = 2**20


@dataclass(frozen=True, slots=True)
class Sampling:
    """A strategy and its parameters.

    Attributes:
        strategy: See `Strategy`.
        alpha: Exponent of priorities (proportional) or ranks, 0 (uniform) to `MAX_ALPHA`.
        beta: Exponent of importance weights, 0 (all 1) to 1 (full correction).
        half_life_chunks: RECENCY: this many chunks further from the newest, half as likely; ``> 0``.
    """

    strategy: Strategy = Strategy.UNIFORM
    alpha: float = 0.6
    beta: float = 0.4
    half_life_chunks: float = 1000.0


@dataclass(frozen=True, slots=True)
class Counts:
    """What strategies know of the sampleable chunks: a snapshot of the orders.

    Attributes:
        chunks: How many there are.
        weight: The sum of their weights.
        powers: PROPORTIONAL: how many have a weight of ``2**power`` to ``2**(power + 1) - 1``, by power.
        versions: STALENESS: how many are of each version.
        version: STALENESS: the version in force.
    """

    chunks: int
    weight: int
    powers: Mapping[int, int]
    versions: Mapping[int, int]
    version: int


class Draw(NamedTuple):
    """The chunk at one place in an order, if it is accepted.

    Attributes:
        order: The sorted set.
        low: Smallest score of the range, included.
        high: Largest score of the range, included.
        rank: From 0, within the range, by score, then by member.
        accept: The chunk is taken if this is less than its weight; 0 takes any.
    """

    order: Order
    low: int
    high: int
    rank: int
    accept: int = 0


def weight_of(priority: float, alpha: float) -> int:
    """Return a chunk's weight: its priority to the power alpha, in units of 2**-20, 1 to `MAX_WEIGHT`."""
    raise NotImplementedError


def draw(
    counts: Counts, sampling: Sampling, wanted: int, seed: int, counter: int, taken: Sequence[Draw] = ()
) -> tuple[list[Draw], int]:
    """Draw chunks for a sample of ``wanted`` without replacement.

    Returns:
        Draws, to be taken first come, none twice, until there are enough; and the next counter.
    """
    raise NotImplementedError


def accepts(drawn: Draw, weight: int) -> bool:
    """Whether a chunk of this weight, found where a draw says, is taken."""
    return drawn.accept < weight


def probability(drawn: Draw, weight: int, counts: Counts, sampling: Sampling) -> float:
    """Return the probability that one draw from the whole buffer gives this chunk; 1 for FIFO and LIFO."""
    raise NotImplementedError


def importance(probabilities: Sequence[float], chunks: int, beta: float) -> list[float]:
    """Return the importance weights ``(chunks * probability) ** -beta`` of a sample, over the largest of them."""
    raise NotImplementedError
