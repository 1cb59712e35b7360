"""Which groups form the next batch.

The law: **the plan is the lexicographically oldest set of queued groups, in arrival order, that sums to exactly the
batch size and keeps every bound.** Walk the groups oldest first, and take a group if some valid batch contains it and
everything taken so far. With shares or without, the rule is the same; if any valid batch exists, one is found.

Why it costs so little. Groups of one *pool* (one environment and one size; environments without bounds count as one
environment) can stand in for each other in any batch. Therefore:

1. A valid batch that contains a young group of a pool but not an older one stays valid if the two are exchanged. So
   once the walk skips a group, it takes no later one of that pool: had a valid batch contained what was taken and
   the later group, the exchange would give one with the skipped group. Each pool leaves the walk at its first skip.
2. Likewise only the oldest ``limit // size`` groups of a pool matter, ``limit`` being what the environment may have.
3. "Some valid batch contains the next k groups of the pools still open" can only turn from true to false as k grows.
   So the longest stretch without a skip is found by bisection, and there are at most as many stretches as pools.
4. Whether a valid batch exists between "what was taken" and "what is left" is a question about counts and sizes
   only (`app.core.batches.subset_sum`).

So the cost depends on the batch size and the number of pools, never on the depth of the queue. Where plain first in,
first out happens to fit, addition alone settles it.

Where group sizes make the minimums impossible together, `app.core.batches.relaxation` applies the same law to the
batches of smallest shortfall.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence

from app.core.batches.diagnosis import explain
from app.core.batches.size_classes import ClassCounts, SizeClasses, last
from app.core.batches.subset_sum import attainable, plausible
from app.core.model import BatchPlan, Bounds, Lane, NotReady


def select(
    batch_size: int,
    lanes: Sequence[Lane],
    bounds: Mapping[int, Bounds],
    sizes: Mapping[int | None, Collection[int]] | None = None,
) -> BatchPlan | NotReady:
    """Choose the next batch by the law above, or say why there is none.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        lanes: The queue, with the oldest groups of each lane; arrivals are unique.
        bounds: What each environment must and may have; environments not in it, and None, are free.
        sizes: Group sizes that environments declared, in sequences, if any. They only serve to explain what is missing.
    """
    pools = SizeClasses(batch_size, lanes, bounds)
    taken = _oldest(pools)
    return explain(batch_size, lanes, bounds, sizes or {}) if taken is None else BatchPlan(pools.groups(taken))


def _oldest(pools: SizeClasses) -> ClassCounts | None:
    """Return how many groups of each pool the law takes, or None if there is no valid batch."""
    low, high = pools.nothing, pools.everything
    if not plausible(*pools.remaining(low, high)):
        return None
    while low != high:
        further = _stretch(pools, low, high)
        if further is None:
            return None
        low, high = further
    return low


def _stretch(pools: SizeClasses, low: ClassCounts, high: ClassCounts) -> tuple[ClassCounts, ClassCounts] | None:
    """Take groups from ``low`` on up to the first that must be skipped, and close that group's pool.

    Returns:
        The new ``low`` and ``high``, or None if there is no valid batch (found out at the first stretch).
    """
    order = pools.order(low, high)

    def after(count: int) -> ClassCounts:
        if count == 0:
            return low
        key = order[count - 1]
        return [bisect_right(p.keys, key, a, b) for p, a, b in zip(pools.all, low, high, strict=True)]

    def possible_after(count: int) -> bool:
        return attainable(*pools.remaining(after(count), high))

    count = last(0, len(order), lambda count: plausible(*pools.remaining(after(count), high)))
    if not possible_after(count):
        if low is pools.nothing and not possible_after(0):
            return None
        count = _last_from_above(count, possible_after)
    taken, limit = after(count), list(high)
    if count < len(order):
        skipped = order[count] % len(pools.all)
        limit[skipped] = taken[skipped]
    return taken, _narrowed(pools, taken, limit)


def _narrowed(pools: SizeClasses, low: ClassCounts, high: ClassCounts) -> ClassCounts:
    """Leave out groups for which there is no room: they would be skipped one pool at a time."""
    total, parts = pools.remaining(low, high)
    slack = total - sum(part.least for part in parts)
    room = {part.environment: min(part.most, part.least + slack) for part in parts}
    return [
        min(most, have + room[pool.account] // pool.size) for pool, have, most in zip(pools.all, low, high, strict=True)
    ]


def _last_from_above(failing: int, test: Callable[[int], bool]) -> int:
    """Return the last number below ``failing`` that passes, as `last` from 0, but quick if it is near ``failing``."""
    step = 1
    while failing - step > 0 and not test(failing - step):
        failing -= step
        step *= 2
    return last(max(0, failing - step), failing - 1, test)
