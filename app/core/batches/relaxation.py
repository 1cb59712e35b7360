"""Select a batch where the minimums cannot all be kept. Maximums are still kept.

Of all exact batches, take those that leave the least owed, ``sum((1 + debt) * max(0, minimum + debt - got))``. Of
these, take those with the smallest shortfall, ``sum(max(0, minimum - got))``. Of these, the rule of
`app.core.batches.selection` chooses. (Its first point holds here too: the exchange leaves every environment with as
many sequences as before.) Without debts both sums are the same. With debts, what is owed comes first, and what is owed
to an environment counts more the larger its debt is. Otherwise an environment could be left out each time: because its
minimum is small, or because a batch that repays it owes others more.

This is max-weight scheduling: debts stay bounded wherever some mix of exact batches keeps all minimums on average.

Source: Tassiulas and Ephremides, *Stability properties of constrained queueing systems* (1992).

To ask whether a batch of lowest cost exists takes milliseconds. To ask once for each size class would take seconds. But
`app.core.numeric.subset_sum.endings` gives, at the price of a few such questions, the totals that each environment may
end with in some batch of lowest cost. Then most skips are plain: with this group, its environment could not end with
any such total. Therefore:

1. Plan the whole walk with plain skips only, and check it once, at its end.
2. If no batch of lowest cost is left there, two environments conflict. What is possible after a step was possible
   before it, and a plain skip takes nothing away. So bisection finds the first wrong step: a group that was taken and
   must be skipped. Keep the walk up to there, skip that group, and plan the rest again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.batches.selection import ClassCounts, SizeClasses
from app.core.environments.shares import supplies_of, unlimited, usable_groups
from app.core.model import BatchPlan, Bounds, Lane
from app.core.numeric.bisection import last
from app.core.numeric.subset_sum import MOST_COST, Price, Supply, affordable, cheapest, endings, reachable


def select_relaxed(
    batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds], debts: Mapping[int, int]
) -> BatchPlan | None:
    """Choose the next batch where the minimums cannot all be kept, as described above.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        lanes: The queue, as for `app.core.batches.selection.select`.
        bounds: What each environment must and may have.
        debts: Sequences owed from earlier batches, by environment (`app.core.environments.shares.settle_debts`).

    Returns:
        A plan, marked relaxed if some minimum is not kept; None if there is no exact batch at all.
    """
    minimums = {environment: bound.minimum for environment, bound in bounds.items() if bound.minimum > 0}
    one_owed = 1 + sum(minimums.values())  # a sequence owed costs more than all that can be short
    most_weight = MOST_COST // (one_owed * (batch_size + 1))
    # A batch repays no more than its size. To be owed more than that costs the same whatever it brings.
    dues = {key: min(batch_size, minimum + debts.get(key, 0)) for key, minimum in minimums.items()}
    weights = {key: min(most_weight, 1 + max(0, debts.get(key, 0))) for key in minimums}

    def price(supply: Supply, brought: NDArray[np.int64]) -> NDArray[np.int64]:
        key = supply.environment
        if key is None or key not in minimums:
            return _short(supply, brought)
        return _below(dues[key] - supply.taken, brought) * (weights[key] * one_owed) + _short(supply, brought)

    classes = SizeClasses(batch_size, lanes, bounds)
    lowest = cheapest(*classes.remaining(classes.nothing, classes.everything), price)
    if lowest is None:
        return None
    plan = BatchPlan(classes.groups(_cheapest_oldest_counts(classes, price, lowest)))
    return replace(plan, relaxed=_misses_minimum(plan, bounds))


def queued_shortfall(batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> int | None:
    """Return the smallest total shortfall of a batch from the queue; None if it holds no exact batch at all."""
    return cheapest(batch_size, supplies_of(batch_size, usable_groups(batch_size, lanes, bounds), bounds), _short)


def smallest_shortfall(
    batch_size: int, sizes: Mapping[int | None, Collection[int]], bounds: Mapping[int, Bounds]
) -> int | None:
    """Return the smallest total shortfall that group sizes allow, were every queue full; None if no batch is exact."""
    return cheapest(batch_size, supplies_of(batch_size, unlimited(batch_size, sizes, bounds), bounds), _short)


class _WalkStep(NamedTuple):
    """One step of the walk: take the oldest group of the open size classes, or skip it and close its size class."""

    size_class: int
    takes: bool


def _cheapest_oldest_counts(classes: SizeClasses, price: Price, lowest: int) -> ClassCounts:
    """Return how many groups of each size class the rule takes, of the batches that cost ``lowest``."""
    low, high = classes.nothing, classes.everything
    while True:
        walk = _Walk(classes, low, high, price, lowest)
        end = len(walk.steps)
        if walk.is_possible(end):
            return walk.after(end)[0]
        first_wrong = last(0, end - 1, walk.is_possible)
        low, high = walk.skipping(first_wrong)


class _Walk:
    """A walk over the groups from ``low`` to ``high``, planned to its end with plain skips only."""

    def __init__(self, classes: SizeClasses, low: ClassCounts, high: ClassCounts, price: Price, lowest: int) -> None:
        self._classes, self._low, self._high = classes, low, high
        self._price, self._lowest = price, lowest
        self.steps = _planned_steps(classes, low, high, endings(*classes.remaining(low, high), price, lowest))

    def after(self, count: int) -> tuple[ClassCounts, ClassCounts]:
        """Return the groups taken after ``count`` steps, and the limits up to which more may be taken."""
        low, high = list(self._low), list(self._high)
        for size_class, takes in self.steps[:count]:
            if takes:
                low[size_class] += 1
            else:
                high[size_class] = low[size_class]
        return low, high

    def skipping(self, step: int) -> tuple[ClassCounts, ClassCounts]:
        """Return the same as `after` for the steps before this one and a skip in its place."""
        low, high = self.after(step)
        skipped = self.steps[step].size_class
        high[skipped] = low[skipped]
        return low, high

    def is_possible(self, count: int) -> bool:
        """Return whether a batch of lowest cost is left after ``count`` steps."""
        return affordable(*self._classes.remaining(*self.after(count)), self._price, self._lowest)


def _planned_steps(
    classes: SizeClasses, low: ClassCounts, high: ClassCounts, ends: Mapping[int | None, int]
) -> list[_WalkStep]:
    """Plan the walk to its end. Skip a group only if its environment could then no longer end with an allowed total.

    Args:
        classes: The queue.
        low: Groups of each size class that are taken already.
        high: The most groups of each size class that may be taken.
        ends: The totals each environment may end with, as bits.
    """
    _, supplies = classes.remaining(low, high)
    taken = {supply.environment: supply.taken for supply in supplies}
    left = {supply.environment: dict(supply.counts) for supply in supplies}
    steps = []
    for key in classes.order(low, high):
        index = classes.index_of(key)
        environment, size = classes.all[index].environment, classes.all[index].size
        own = left[environment]
        if size not in own:
            continue  # its size class is closed
        own[size] -= 1
        takes = _can_end(taken[environment] + size, own, ends[environment])
        steps.append(_WalkStep(index, takes))
        if takes:
            taken[environment] += size
        else:
            del own[size]
    return steps


def _can_end(taken: int, counts: Mapping[int, int], ends: int) -> bool:
    """Return whether the sequences taken plus a sum of the groups left can reach one of these totals."""
    room = ends.bit_length() - 1 - taken
    return room >= 0 and bool(reachable(counts, room) & ends >> taken)


def _short(supply: Supply, brought: NDArray[np.int64]) -> NDArray[np.int64]:
    return _below(supply.minimum, brought)


def _below(wanted: int, got: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.maximum(wanted - got, 0)


def _misses_minimum(plan: BatchPlan, bounds: Mapping[int, Bounds]) -> bool:
    got = plan.sequences_by_environment
    return any(got[environment] < bound.minimum for environment, bound in bounds.items())
