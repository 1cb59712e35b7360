"""Decide which totals whole groups can sum to. Pure arithmetic, without a queue.

Two standard methods:

- *Bitset subset sum.* A set of totals is one Python integer: bit ``t`` is set if the total ``t`` can be reached. Adding
  a group of size ``s`` to every total is a shift by ``s``. Many groups of one size are added by doubling.
- *Min-plus convolution.* Where totals have costs, an array holds the lowest cost of each total. Adding an environment
  takes the minimum over all splits of the total.

The cost depends on the batch size and on the number of different sizes, not on how many groups wait.

Source: Bellman, *Dynamic Programming* (1957), for both recurrences; Pisinger, *Dynamic programming on the word RAM*
(2003), for totals as bits of machine words.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_COST = 1 << 40
"""The largest cost of a supply."""

_UNREACHABLE = 1 << 61  # above every cost, and far enough below 2**63 that a cost can be added to it


class Supply(NamedTuple):
    """The groups that one environment can still bring to a batch, in addition to those taken already.

    Attributes:
        environment: Its id; None for the groups of all environments without bounds, taken together.
        taken: Sequences taken already.
        minimum: Sequences it must still bring, ``>= 0``.
        maximum: Sequences it may still bring; negative if too many were taken.
        counts: Groups it has left, by size in sequences.
    """

    environment: int | None
    taken: int
    minimum: int
    maximum: int
    counts: Mapping[int, int]

    @property
    def available(self) -> int:
        """Sequences it has left."""
        return sum(size * count for size, count in self.counts.items())


Price = Callable[[Supply, NDArray[np.int64]], NDArray[np.int64]]
"""The cost of a supply by the number of sequences it brings: int64 in, int64 from 0 to `MOST_COST` out."""


def plausible(total: int, supplies: Iterable[Supply]) -> bool:
    """Return whether groups may sum to ``total`` within all bounds, as far as addition alone tells."""
    minimum = maximum = 0
    for supply in supplies:
        own_maximum = min(supply.maximum, supply.available)
        if own_maximum < supply.minimum:
            return False
        minimum += supply.minimum
        maximum += own_maximum
    return minimum <= total <= maximum


def attainable(total: int, supplies: Sequence[Supply]) -> bool:
    """Return whether groups of the supplies can sum to ``total`` sequences with every supply within its bounds."""
    if not plausible(total, supplies):
        return False
    # Count every supply from its minimum. Only sequences above the minimums are open, so the integers stay short.
    slack = total - sum(supply.minimum for supply in supplies)
    mask = (2 << slack) - 1
    free, bound = _parted(supplies, slack)
    sums = reachable(free, slack)
    for supply in bound:
        above = reachable(supply.counts, min(supply.maximum, supply.minimum + slack)) >> supply.minimum
        sums = _sumset(sums, above, gcd(*supply.counts), mask)
        if not sums:
            return False
    return bool(sums >> slack & 1)


def _parted(supplies: Iterable[Supply], slack: int) -> tuple[Counter[int], list[Supply]]:
    """Merge the groups of all supplies whose bounds do not bind within ``slack``; return the others unchanged."""
    free: Counter[int] = Counter()
    bound: list[Supply] = []
    for supply in supplies:
        if supply.minimum > 0 or supply.maximum < min(slack, supply.available):
            bound.append(supply)
        else:
            free.update(supply.counts)
    return free, bound


def fewest_missing(total: int, supplies: Sequence[Supply]) -> int:
    """Return the fewest sequences to add so that groups can sum to exactly ``total`` within all bounds.

    They may be added in groups of any size, to any supply or to none. A supply that cannot contribute exactly its
    minimum has two options. It contributes more, which leaves less room for others. Or it contributes as much as it can
    below its minimum, and the rest is missing. The result is the cheapest combination plus what is left to ``total``.

    Args:
        total: Sequences in all, at least the sum of the minimums of the supplies.
        supplies: The groups there are, with bounds.
    """
    slack = max(0, total - sum(supply.minimum for supply in supplies))
    free, bound = _parted(supplies, slack)
    missing, sums, torn = 0, reachable(free, slack), []
    for supply in bound:
        own = reachable(supply.counts, min(supply.maximum, supply.minimum + slack))
        short = supply.minimum - ((own & ((2 << supply.minimum) - 1)).bit_length() - 1)
        above = own >> supply.minimum
        if not short:
            sums = _sumset(sums, above, gcd(*supply.counts), (2 << slack) - 1)
        elif not above:
            missing += short
        else:
            brought = _positions(above | 1)
            torn.append(_Options(brought, np.where(brought == 0, short, 0), gcd(*supply.counts)))
    best = np.full(sums.bit_length(), _UNREACHABLE, np.int64)
    best[_positions(sums)] = 0
    for options in torn:  # only up to the largest total, often far below the slack
        further = min(int(options.brought[-1]), slack + 1 - len(best))
        best = _combined(np.append(best, np.full(further, _UNREACHABLE)), options)
    return missing + int((best - np.arange(len(best))).min()) + slack


def ever_reachable(limit: int, senders: Mapping[tuple[int, frozenset[int]], int]) -> int:
    """Return the totals from 0 to ``limit`` that groups can sum to if enough of them arrive, as bits.

    Args:
        limit: The largest total, sequences.
        senders: Number of senders of each kind. A kind is the most sequences that one may contribute, and its sizes.
    """
    sums = 1
    for (most, sizes), times in senders.items():
        own = reachable({size: most // size for size in sizes}, min(most, limit))
        for _ in range(times):
            before, sums = sums, _sumset(sums, own, gcd(*sizes), (2 << limit) - 1)
            if sums == before:
                break  # more senders of this kind add nothing
    return sums


def reachable(counts: Mapping[int, int], limit: int) -> int:
    """Return the totals from 0 to ``limit`` that groups of these sizes sum to, as bits."""
    mask = (2 << limit) - 1
    sums = 1
    for size, count in counts.items():
        sums = _repeated(sums, size, min(count, limit // size), mask)
    return sums


def cheapest(total: int, supplies: Sequence[Supply], price: Price) -> int | None:
    """Return the smallest sum of prices at which groups of the supplies sum to exactly ``total``; None if none do.

    Minimums do not bind here. The price says what it costs to bring less.
    """
    if not attainable(total, without_minimums(supplies)):
        return None
    budget = 1
    # Most ways to bring far too little cost more than the best batch. A small budget leaves them out.
    while (cost := _cost(total, supplies, price, budget)) > budget:
        budget *= 4
    return cost


def affordable(total: int, supplies: Sequence[Supply], price: Price, budget: int) -> bool:
    """Return whether `cheapest` is at most ``budget``."""
    return attainable(total, without_minimums(supplies)) and _cost(total, supplies, price, budget) <= budget


def endings(total: int, supplies: Sequence[Supply], price: Price, budget: int) -> dict[int | None, int]:
    """Return the totals, with the groups taken, that each supply may have if all sum to ``total`` within ``budget``.

    Every supply needs the cheapest ways of all others together. So halve the supplies recursively, and add to each half
    what the other one brings. Each level of the recursion costs as much as `cheapest`.

    Returns:
        Totals by environment, as bits; 0 if no total is possible.
    """
    options = [_options(supply, total, price, budget) for supply in supplies]
    found: dict[int | None, int] = {}

    def narrow(first: int, end: int, others: NDArray[np.int64]) -> None:
        if end - first == 1:
            brought, cost, _ = options[first]
            own = brought[cost + others[total - brought] <= budget]
            found[supplies[first].environment] = sum(1 << more for more in own.tolist()) << supplies[first].taken
            return
        middle = (first + end) // 2
        narrow(first, middle, reduce(_combined, options[middle:end], others))
        narrow(middle, end, reduce(_combined, options[first:middle], others))

    narrow(0, len(supplies), _without_supplies(total))
    return found


def without_minimums(supplies: Sequence[Supply]) -> list[Supply]:
    """Return the supplies with all minimums 0."""
    return [supply._replace(minimum=0) for supply in supplies]


def _cost(total: int, supplies: Sequence[Supply], price: Price, budget: int) -> int:
    """Return the smallest sum of prices if it is at most ``budget``, else some number above it."""
    options = (_options(supply, total, price, budget) for supply in supplies)
    return int(reduce(_combined, options, _without_supplies(total))[total])


def _without_supplies(total: int) -> NDArray[np.int64]:
    """Return the cheapest way to each total without any supply."""
    best = np.full(total + 1, _UNREACHABLE, np.int64)
    best[0] = 0
    return best


class _Options(NamedTuple):
    """The totals that a supply can bring within a budget, their costs, and the common divisor of its group sizes."""

    brought: NDArray[np.int64]
    cost: NDArray[np.int64]
    step: int


def _options(supply: Supply, total: int, price: Price, budget: int) -> _Options:
    brought = _positions(reachable(supply.counts, min(supply.maximum, total)))
    cost = price(supply, brought)
    return _Options(brought[cost <= budget], cost[cost <= budget], gcd(*supply.counts))


def _combined(best: NDArray[np.int64], supply: _Options) -> NDArray[np.int64]:
    """Return, for each total, the cheapest way to reach it with one more supply (a min-plus convolution)."""
    brought, cost, step = supply
    combined = np.full_like(best, _UNREACHABLE)
    for more, extra in zip(brought[cost > 0].tolist(), cost[cost > 0].tolist(), strict=True):
        _lower(combined, more, best[: len(best) - more] + extra)
    gratis = brought[cost == 0]
    breaks = np.flatnonzero(np.diff(gratis) != step) + 1
    for run in np.split(gratis, breaks) if len(gratis) else ():
        start = int(run[0])
        _lower(combined, start, _repeated_lowest(best[: len(best) - start], step, len(run) - 1))
    return combined


def _lower(costs: NDArray[np.int64], start: int, others: NDArray[np.int64]) -> None:
    np.minimum(costs[start : start + len(others)], others, out=costs[start : start + len(others)])


def _repeated_lowest(best: NDArray[np.int64], step: int, times: int) -> NDArray[np.int64]:
    """Return the cheapest way to each total with 0, 1, ... ``times`` steps added for nothing; see `_repeated`."""
    span = 1
    while times > 0 and step * span < len(best):
        hop = min(span, times)
        shifted = best[: len(best) - step * hop]
        best = best.copy()
        _lower(best, step * hop, shifted)
        times -= hop
        span *= 2
    return best


def _positions(bits: int) -> NDArray[np.int64]:
    """Return the positions of the set bits, ascending."""
    raw = np.frombuffer(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(raw, bitorder="little")).astype(np.int64)


def _repeated(sums: int, step: int, times: int, mask: int) -> int:
    """Add 0, 1, ... ``times`` steps to each total, doubling the number of steps each time."""
    span = 1
    while times > 0:
        hop = min(span, times)
        sums |= (sums << step * hop) & mask
        times -= hop
        span *= 2
    return sums


def _sumset(left: int, right: int, step: int, mask: int) -> int:
    """Return the totals that are one of ``left`` plus one of ``right``.

    Args:
        left: Totals.
        right: Totals that differ by multiples of ``step``. Most lie in a few unbroken runs of that step. A whole run
            is added in as many shifts as its length has binary digits.
        step: The greatest common divisor of the sizes behind ``right``.
        mask: Which totals are wanted.
    """
    sums = 0
    starts = right & ~(right << step)
    ends = right & ~(right >> step)
    while starts:
        start = (starts & -starts).bit_length() - 1
        end = (ends & -ends).bit_length() - 1
        sums |= _repeated((left << start) & mask, step, (end - start) // step, mask)
        starts &= starts - 1
        ends &= ends - 1
    return sums
