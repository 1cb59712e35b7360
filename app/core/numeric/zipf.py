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


def zipf_ranks(
    exponent: float, ranks: int, count: int, generator: np.random.Generator, first: int = 1
) -> NDArray[np.int64]:
    """Draw ranks with replacement.

    Args:
        exponent: ``>= 0``; 0 is uniform.
        ranks: The largest rank, ``>= first``.
        count: How many to draw.
        generator: The source of randomness.
        first: The smallest rank, ``>= 1``. Other ranks keep their shares of what is left.

    Returns:
        ``count`` ranks, ``first`` to ``ranks``.
    """

    # In units of `first`, weights do not underflow, however steep the distribution is.
    lowest = first * _integral_at((first + 0.5) / first, exponent) - 1.0
    highest = first * _integral_at((ranks + 0.5) / first, exponent)
    # A point within this distance above its rank is always accepted. That of the second rank holds for all.
    second = (first + 1) / first
    area = _integral_at(second + 0.5 / first, exponent) - second**-exponent / first
    sure = first * (second - _inverse_at(area, exponent))
    drawn = np.empty(count, np.int64)
    filled = 0
    while filled < count:
        areas = highest + generator.random(count - filled) * (lowest - highest)
        points = first * _inverse(areas / first, exponent)
        nearest = np.clip(np.floor(points + 0.5), first, ranks)
        accepted = nearest - points <= sure
        accepted |= areas >= first * _integral((nearest + 0.5) / first, exponent) - (nearest / first) ** -exponent
        kept = nearest[accepted]
        drawn[filled : filled + len(kept)] = kept
        filled += len(kept)
    return drawn


def zipf_without_replacement(
    exponent: float, ranks: int, wanted: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw different ranks one after the other, each by the distribution over the ranks that are left.

    Draws with replacement without their repetitions have this distribution. A steep distribution repeats its first
    ranks nearly always. So each turn draws only from the ranks after the ones that are all drawn.

    Args:
        exponent: ``>= 0``.
        ranks: The largest rank, ``>= 1``.
        wanted: 0 to ``ranks``.
        generator: The source of randomness.
    """
    found: dict[int, None] = {}
    first, count = 1, 2 * wanted + 16
    while len(found) < wanted:
        found.update(dict.fromkeys(zipf_ranks(exponent, ranks, count, generator, first).tolist()))
        while first in found:
            first += 1
        count = min(2 * count, ranks) if len(found) < wanted // 2 else count
    return np.fromiter(found, np.int64, len(found))[:wanted]


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
    tail: float = _integral_at(high, exponent) - _integral_at(low, exponent)
    tail += (high**-exponent - low**-exponent) / 2
    tail += exponent * (low ** (-exponent - 1) - high ** (-exponent - 1)) / 12
    rising = exponent * (exponent + 1) * (exponent + 2)
    tail -= rising * (low ** (-exponent - 3) - high ** (-exponent - 3)) / 720
    rising *= (exponent + 3) * (exponent + 4)
    tail += rising * (low ** (-exponent - 5) - high ** (-exponent - 5)) / 30240
    return total + tail


def _integral_at(x: float, exponent: float) -> float:
    """Return `_integral` of one number, at a tenth of the cost."""
    log = math.log(x)
    scaled = (1.0 - exponent) * log
    return log * (1.0 + scaled / 2 if abs(scaled) < _SMALL else math.expm1(scaled) / scaled)


def _inverse_at(area: float, exponent: float) -> float:
    """Return `_inverse` of one number."""
    scaled = max((1.0 - exponent) * area, -1.0 + 1e-16)
    return math.exp(area * (1.0 - scaled / 2 if abs(scaled) < _SMALL else math.log1p(scaled) / scaled))


def _integral(x: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
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
