"""Draw the chunks of a sample: a strategy is a distribution over places in an index.

A place is a rank in a range of scores, so a draw needs no knowledge of the chunk. A script looks up the chunk at each
place, and takes the chunks in the order of the draws, none twice, until it has enough.

A sample is drawn by weighted sampling without replacement: each next chunk by the strategy's distribution over the
chunks that are left. That equals independent draws without the repetitions. (For `uniform` each set of chunks is
equally likely.) Places are numbered through all spans of a strategy: ranges of scores with a count each.

One draw gives a chunk with a probability in proportion to its weight:

- `proportional`: ``priority ** alpha``;
- `rank`: ``rank ** -alpha``, where rank 1 has the highest priority;
- `recency`: ``2 ** -(age / half_life_chunks)``, where age is the number of newer chunks;
- `staleness`: ``1 / (1 + staleness)``.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

import numpy as np

from app.core.numeric.weighted_without_replacement import Places, sample_spans, sample_without_replacement, skip_taken
from app.core.numeric.zipf import zipf_total, zipf_without_replacement
from lachesis.wire.replay import Sampling, SamplingStrategy
from lachesis.wire.states import ChunkSorting

MAX_SCORE = 2**53
MAX_WEIGHT = 2**52
WEIGHT_UNIT = 2**20


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """The counts of sampleable chunks that strategies use: one snapshot.

    Attributes:
        chunks: How many there are: the length of each order.
        weight: Of `proportional`: the sum of their weights.
        powers: Of `proportional`: how many weigh ``2 ** power`` to ``2 ** (power + 1) - 1``, by power; none is 0.
        versions: Of `staleness`: how many are of a version, by version; none is 0.
        version: Of `staleness`: the version in force, ``>=`` each of them.
    """

    chunks: int
    weight: int = 0
    powers: Mapping[int, int] = field(default_factory=dict)
    versions: Mapping[int, int] = field(default_factory=dict)
    version: int = 0


@dataclass(frozen=True, slots=True)
class ChunkTotals:
    """What the probabilities of a sample depend on, apart from its chunks.

    Attributes:
        chunks: How many sampleable chunks there were.
        weight: Of `proportional` and `staleness`: the sum of their weights.
        version: The version in force.
    """

    chunks: int
    weight: float = 0
    version: int = 0


class ChunkDraw(NamedTuple):
    """The chunk at one place, if it is accepted.

    Attributes:
        ranked_by: The order in which it is ranked.
        low: The smallest score of the range, included.
        high: The largest, included.
        rank: From 0, among the chunks of the range, by score, then by member.
        accept: The chunk is taken if its weight is larger; 0 takes any.
    """

    ranked_by: ChunkSorting
    low: int
    high: int
    rank: int
    accept: int = 0


def weight_of(priority: float, alpha: float) -> int:
    """Return a chunk's weight: ``priority ** alpha`` in units of 2**-20, rounded, 1 to `MAX_WEIGHT`.

    Args:
        priority: Finite and ``>= 0``.
        alpha: As of `Sampling`.
    """
    if priority > 1 and alpha * math.log2(priority) >= math.log2(MAX_WEIGHT / WEIGHT_UNIT):
        return MAX_WEIGHT
    return max(1, round(math.pow(priority, alpha) * WEIGHT_UNIT))


def draw(
    counts: ChunkCounts,
    sampling: Sampling,
    wanted: int,
    seed: int,
    counter: int,
    taken: Sequence[ChunkDraw] = (),
) -> tuple[list[ChunkDraw], int]:
    """Draw chunks for a sample without replacement.

    While the indexes do not change, only `proportional` can be short of chunks, because its draws may be refused. Then
    draw again, with the next counter and the draws that were ``taken``. The new list begins with these and continues
    with the same distribution over the other chunks. Each list takes at least one more chunk than the previous one,
    except with a probability below 2**-60, for any weights. So this ends. If the indexes changed, start again.

    Args:
        counts: The chunks there are.
        sampling: The strategy.
        wanted: How many to sample, ``>= 0``; if there are no more than that, all of them are drawn.
        seed: Of the run's generator, 0 to 2**64 - 1.
        counter: How often it drew before, ``>= 0``. The same seed and counter give the same draws.
        taken: The draws that an earlier list for this sample took, in its order.

    Returns:
        The draws in the order to try them, and the next counter. If there are enough chunks, there are more draws than
        ``wanted``, because some chunks may be gone when they are looked up. Only `proportional` may name a place twice.
        If all chunks are drawn for `proportional`, they are in no random order (`order_by_weight`).
    """
    generator = _generator(seed, counter)
    ranked_by, spans = spans_of(counts, sampling.strategy)
    sizes = np.array([size for _, _, size in spans], np.int64)
    if sampling.strategy == "proportional":
        places, accept = _by_weight(spans, sizes, wanted, taken, generator)
    else:
        places = _by_place(counts, sampling, sizes, min(counts.chunks, wanted + wanted // 8 + 8), generator)
        accept = [0] * len(places)
    ends = np.cumsum(sizes)
    span_of = np.searchsorted(ends, places, side="right")
    ranks = places - (ends - sizes)[span_of]
    drawn = [
        ChunkDraw(ranked_by, spans[span][0], spans[span][1], rank, least)
        for span, rank, least in zip(span_of.tolist(), ranks.tolist(), accept, strict=True)
    ]
    return [each._replace(accept=0) for each in taken] + drawn, counter + 1


def order_by_weight(weights: Sequence[int], seed: int, counter: int) -> list[int]:
    """Return the positions of all chunks in the order of draws without replacement in proportion to ``weights``.

    `draw` cannot order all chunks for `proportional`, because it does not know their weights.

    Source: Efraimidis & Spirakis, *Weighted random sampling with a reservoir* (2006).

    Args:
        weights: The weight of each chunk, ``>= 1``.
        seed: As of `draw`.
        counter: The counter of the draw that named all chunks.
    """
    arrivals = _generator(seed, counter).standard_exponential(len(weights)) / np.array(weights, np.float64)
    order: list[int] = np.argsort(arrivals, kind="stable").tolist()
    return order


def totals_of(counts: ChunkCounts, strategy: SamplingStrategy) -> ChunkTotals:
    """Return the totals of the chunks that a strategy draws from."""
    weight: float = counts.weight
    if strategy == "staleness":
        weight = sum(size * _staleness_weight(version, counts.version) for version, size in counts.versions.items())
    return ChunkTotals(counts.chunks, weight, counts.version)


def draw_probabilities(
    taken: Sequence[ChunkDraw], weights: Sequence[int], totals: ChunkTotals, sampling: Sampling
) -> list[float]:
    """Return how likely each chunk of a sample was to be the first one drawn: the strategy's distribution.

    Args:
        taken: The draws that gave the sample's chunks.
        weights: The chunks' weights.
        totals: Of what was drawn from.
        sampling: The strategy.

    Returns:
        Probabilities above 0 that sum to 1 over the buffer. For `fifo` and `lifo`, each is 1.
    """
    chunks = totals.chunks
    match sampling.strategy:
        case "uniform":
            distribution = [1 / chunks for _ in taken]
        case "proportional":
            distribution = [weight / totals.weight for weight in weights]
        case "rank":
            total = zipf_total(sampling.alpha, chunks)
            distribution = [(chunks - each.rank) ** -sampling.alpha / total for each in taken]
        case "recency":
            decay = math.log(2) / sampling.half_life_chunks
            newest = math.expm1(-decay) / math.expm1(-decay * chunks)
            distribution = [newest * math.exp(-decay * (chunks - 1 - each.rank)) for each in taken]
        case "staleness":
            distribution = [_staleness_weight(each.low, totals.version) / totals.weight for each in taken]
        case "fifo" | "lifo":
            distribution = [1.0 for _ in taken]
        case never:
            assert_never(never)
    # A weight may have grown since the totals were read.
    return [min(1.0, max(probability, sys.float_info.min)) for probability in distribution]


def importance(probabilities: Sequence[float], beta: float) -> list[float]:
    """Return a sample's importance weights: ``(chunks * probability) ** -beta``, divided by the largest of them.

    The number of chunks drawn from cancels out.

    Source: Schaul et al., *Prioritized experience replay* (2016), section 3.4.

    Args:
        probabilities: One for each of the sample's chunks, above 0.
        beta: 0 (all weights are 1) to 1.
    """
    least = min(probabilities, default=1.0)
    return [(least / probability) ** beta for probability in probabilities]


def spans_of(counts: ChunkCounts, strategy: SamplingStrategy) -> tuple[ChunkSorting, list[tuple[int, int, int]]]:
    """Return the index a strategy draws from, and its spans: smallest and largest score, and number of chunks."""
    match strategy:
        case "proportional":
            return "weights", [(2**power, 2 ** (power + 1) - 1, n) for power, n in sorted(counts.powers.items())]
        case "staleness":
            return "versions", [(version, version, n) for version, n in sorted(counts.versions.items())]
        case "rank":
            return "weights", [(0, MAX_SCORE, counts.chunks)]
        case "uniform" | "fifo" | "lifo" | "recency":
            return "order", [(0, MAX_SCORE, counts.chunks)]
        case never:
            assert_never(never)


def _generator(seed: int, counter: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed, counter=counter << 64))


def _by_place(
    counts: ChunkCounts, sampling: Sampling, sizes: Places, wanted: int, generator: np.random.Generator
) -> Places:
    """Draw different places by a distribution that the place alone decides."""
    chunks = counts.chunks
    match sampling.strategy:
        case "uniform":
            return generator.choice(chunks, wanted, replace=False)
        case "fifo":
            return np.arange(wanted)
        case "lifo":
            return chunks - 1 - np.arange(wanted)
        case "recency":
            decay = math.log(2) / sampling.half_life_chunks

            def ages(count: int) -> Places:
                below = generator.random(count) * math.expm1(-decay * chunks)
                return chunks - 1 - np.minimum(np.log1p(below) / -decay, chunks - 1).astype(np.int64)

            return sample_without_replacement(
                ages, lambda places: np.multiply(places, decay, dtype=np.float64), chunks, wanted, generator
            )
        case "rank":
            return chunks - zipf_without_replacement(sampling.alpha, chunks, wanted, generator)
        case "staleness":
            each = np.array([_staleness_weight(v, counts.version) for v in sorted(counts.versions)], np.float64)
            return sample_without_replacement(
                lambda count: sample_spans(each * sizes, sizes, count, generator)[1],
                lambda places: np.log(each)[np.searchsorted(np.cumsum(sizes), places, side="right")],
                chunks,
                wanted,
                generator,
            )
        case "proportional":
            raise AssertionError("it draws by weight")
        case never:
            assert_never(never)


def _by_weight(
    spans: Sequence[tuple[int, int, int]],
    sizes: Places,
    wanted: int,
    taken: Sequence[ChunkDraw],
    generator: np.random.Generator,
) -> tuple[Places, list[int]]:
    """Draw places by the largest weight that a chunk of their span can have, with the weight that accepts a draw.

    Source: Matias, Vitter & Ni, *Dynamic generation of discrete random variates* (2003).
    """
    span_at = {low: number for number, (low, _, _) in enumerate(spans)}
    starts = np.cumsum(sizes) - sizes
    spans_gone = np.array([span_at[each.low] for each in taken], np.int64)
    gone = starts[spans_gone] + np.array([each.rank for each in taken], np.int64)
    left = sizes - np.bincount(spans_gone, minlength=len(sizes))
    missing, remaining = wanted - len(taken), int(left.sum())
    if missing >= remaining:
        return skip_taken(np.arange(remaining), gone), [0] * remaining
    bounds = np.array([high for _, high, _ in spans], np.int64)
    count = 2 * (missing + 4 * math.isqrt(missing) + 32)
    chosen, places = sample_spans(np.multiply(left, bounds, dtype=np.float64), left, count, generator)
    return skip_taken(places, gone), generator.integers(0, bounds[chosen]).tolist()


def _staleness_weight(version: int, current: int) -> float:
    """Return the weight of a chunk of this version: the inverse of its staleness plus 1."""
    return 1 / (1 + current - version)
