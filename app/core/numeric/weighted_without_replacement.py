"""Draw different places by weighted sampling without replacement: each next one by the distribution over the rest.

Independent draws without their repetitions have the same distribution, so the algorithm starts with them. If there are
many repetitions (an uneven distribution hardly ever leaves its first places), the rest is drawn by a race. Place i
arrives after an exponential time of rate w_i. The order of arrival has exactly the distribution of sampling without
replacement with weights w.

Source: Efraimidis & Spirakis, *Weighted random sampling with a reservoir* (2006); in logarithms, for tiny weights.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

_PATIENCE = 16  # a race costs as much as one draw for every 16 places
_AT_ONCE = 2**18  # places that race at once, which bounds the memory


def skip_taken(places: Places, gone: Places) -> Places:
    """Convert places among those left into places among all: for each k, the k-th place that is not ``gone``."""
    if not len(gone):
        return places
    ordered = np.sort(gone)
    return places + np.searchsorted(ordered - np.arange(len(ordered)), places, side="right")


def sample_spans(
    masses: NDArray[np.float64], sizes: Places, count: int, generator: np.random.Generator
) -> tuple[Places, Places]:
    """Draw spans with replacement in proportion to ``masses``, and a place in each uniformly.

    Args:
        masses: ``>= 0``, 0 for a span without a place, and not all 0.
        sizes: Places of each span.
        count: How many to draw.
        generator: The source of randomness.

    Returns:
        The numbers of the spans, and the places, numbered through all spans.
    """
    upto = np.cumsum(masses)
    spans = np.searchsorted(upto, generator.random(count) * upto[-1], side="right")
    spans = np.minimum(spans, np.flatnonzero(masses)[-1])  # the product may be rounded up to the sum
    return spans, (np.cumsum(sizes) - sizes)[spans] + generator.integers(0, sizes[spans])


def sample_without_replacement(
    draw: Callable[[int], Places],
    log_weights: Callable[[Places], NDArray[np.float64]],
    places: int,
    wanted: int,
    generator: np.random.Generator,
) -> Places:
    """Draw ``wanted`` different places one after the other.

    Args:
        draw: Draws a number of places with replacement by the distribution.
        log_weights: Returns the logarithms of the weights of places.
        places: The number of places.
        wanted: 0 to ``places``.
        generator: The source of randomness for the race.
    """
    found: dict[int, None] = {}
    size, spent = 2 * wanted + 16, 0
    while len(found) < wanted and spent * _PATIENCE <= places:
        found.update(dict.fromkeys(draw(size).tolist()))
        spent += size
        size *= 2
    first = np.fromiter(found, np.int64, len(found))[:wanted]
    if len(first) == wanted:
        return first
    missing, left = wanted - len(first), places - len(first)
    soonest, arrivals = np.empty(0, np.int64), np.empty(0)
    for begin in range(0, left, _AT_ONCE):
        racers = skip_taken(np.arange(begin, min(begin + _AT_ONCE, left)), first)
        arrivals = np.append(arrivals, np.log(generator.standard_exponential(len(racers))) - log_weights(racers))
        soonest = np.append(soonest, racers)
        kept = np.argpartition(arrivals, min(missing, len(arrivals)) - 1)[:missing]
        soonest, arrivals = soonest[kept], arrivals[kept]
    return np.concatenate([first, soonest[np.argsort(arrivals)]])
