"""Draw from the bounded Zipf distribution: P(rank r of 1 to n) in proportion to ``r ** -exponent``.

The method is rejection inversion: invert the integral of the density, which hardly differs from the sum, and reject the
difference. It needs no table, so the cost does not depend on n.

Source: Hörmann & Derflinger, *Rejection-inversion to generate variates from monotone discrete distributions* (1996).
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_EXACT_TERMS = 32
_SMALL = 1e-8


def zipf_ranks(exponent: float, ranks: int, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw ranks with replacement.

    Args:
        exponent: ``>= 0``; 0 is uniform.
        ranks: The largest rank, ``>= 1``.
        count: How many to draw.
        generator: The source of randomness.

    Returns:
        ``count`` ranks, 1 to ``ranks``.
    """
    lowest = _integral(np.float64(1.5), exponent) - 1.0
    highest = _integral(np.float64(ranks + 0.5), exponent)
    # A point within this distance above its rank is always accepted. The distance for rank 2 holds for all ranks.
    sure = 2.0 - _inverse(_integral(np.float64(2.5), exponent) - 2.0**-exponent, exponent)
    drawn = np.empty(count, np.int64)
    filled = 0
    while filled < count:
        areas = highest + generator.random(count - filled) * (lowest - highest)
        points = _inverse(areas, exponent)
        nearest = np.clip(np.floor(points + 0.5), 1, ranks)
        accepted = nearest - points <= sure
        accepted |= areas >= _integral(nearest + 0.5, exponent) - nearest**-exponent
        kept = nearest[accepted]
        drawn[filled : filled + len(kept)] = kept
        filled += len(kept)
    return drawn


@lru_cache(maxsize=64)  # asked for each item of a sample
def zipf_total(exponent: float, ranks: int) -> float:
    """Return the sum of ``r ** -exponent`` for r from 1 to ``ranks``, to machine precision.

    The first terms are added one by one, the others by the Euler-Maclaurin formula.
    """
    first = min(ranks, _EXACT_TERMS)
    total = math.fsum(math.pow(r, -exponent) for r in range(1, first + 1))
    if ranks == first:
        return total
    low, high = float(first), float(ranks)
    tail: float = float(_integral(np.float64(high), exponent) - _integral(np.float64(low), exponent))
    tail += (high**-exponent - low**-exponent) / 2
    tail += exponent * (low ** (-exponent - 1) - high ** (-exponent - 1)) / 12
    rising = exponent * (exponent + 1) * (exponent + 2)
    tail -= rising * (low ** (-exponent - 3) - high ** (-exponent - 3)) / 720
    rising *= (exponent + 3) * (exponent + 4)
    tail += rising * (low ** (-exponent - 5) - high ** (-exponent - 5)) / 30240
    return total + tail


def _integral(x: NDArray[np.float64] | np.float64, exponent: float) -> NDArray[np.float64]:
    """Return the integral of ``t ** -exponent`` from 1 to x."""
    logs = np.log(x)
    scaled = (1.0 - exponent) * logs
    small = np.abs(scaled) < _SMALL
    return np.asarray(logs * np.where(small, 1.0 + scaled / 2, np.expm1(scaled) / np.where(small, 1.0, scaled)))


def _inverse(area: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    """Return the x whose `_integral` is ``area``."""
    # Rounding may put the argument slightly below the smallest value of the integral.
    scaled = np.maximum((1.0 - exponent) * area, -1.0 + 1e-16)
    small = np.abs(scaled) < _SMALL
    return np.asarray(np.exp(area * np.where(small, 1.0 - scaled / 2, np.log1p(scaled) / np.where(small, 1.0, scaled))))
