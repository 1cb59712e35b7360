"""Which groups form a batch where the minimums cannot all be kept; maximums still are.

Of all exact batches, those that leave the least owed, ``sum(max(0, minimum + debt - got))``, count; of these, those
with the smallest shortfall, ``sum(max(0, minimum - got))``; of these, the law of `app.core.batches.selection` chooses.
(The exchange of its first point leaves every environment with as many sequences as before, so it holds here too.)
Without debts both sums are the same: the smallest total shortfall. With them, what is owed comes first, or an
environment whose minimum is small beside the others' would be left out each time.

To ask whether a batch of lowest cost exists takes milliseconds; to ask once for each pool would take seconds. But what
each environment may end with in some batch of lowest cost (`app.core.batches.subset_sum.endings`) is known for all of
them at the price of a few such questions, and then most skips are plain: with this group its environment could end with
nothing that it may. Therefore:

1. The whole course of the walk is drawn up with plain skips only, and checked once, at its end.
2. If no batch of lowest cost is left there, environments got in each other's way. What is possible after a step was
   possible before it, and a plain skip takes nothing away. So bisection finds the first step that is wrong: a group
   that was taken and must be skipped. Up to there the course is right; what follows is drawn up anew, from what
   environments may end with now.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.batches.diagnosis import explain, supplies_of, unlimited, usable_groups, without_minimums
from app.core.batches.selection import ClassCounts, SizeClasses, last
from app.core.batches.subset_sum import Price, Supply, affordable, cheapest, endings, reachable
from app.core.model import BatchPlan, Bounds, Lane, NotReady, PlannedGroup


def select_relaxed(
    batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds], debts: Mapping[int, int]
) -> BatchPlan | NotReady:
    """Choose the next batch where the minimums cannot all be kept, as described above.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        lanes: The queue, as for `app.core.batches.selection.select`.
        bounds: What each environment must and may have.
        debts: Sequences owed from earlier batches, by environment (`app.core.environments.shares.settle_debts`).

    Returns:
        A plan, marked relaxed if some minimum is not kept; `NotReady` if there is no exact batch at all.
    """
    minimums = {environment: bound.minimum for environment, bound in bounds.items() if bound.minimum > 0}
    dues = {environment: minimum + debts.get(environment, 0) for environment, minimum in minimums.items()}
    one_owed = 1 + sum(minimums.values())  # a sequence owed costs more than all that can be short

    def price(part: Supply, brought: NDArray[np.int64]) -> NDArray[np.int64]:
        due = dues.get(part.environment, 0) - part.taken if part.environment is not None else 0
        return _below(due, brought) * one_owed + _short(part, brought)

    pools = SizeClasses(batch_size, lanes, bounds)
    lowest = cheapest(*pools.remaining(pools.nothing, pools.everything), price)
    if lowest is None:
        return explain(batch_size, lanes, without_minimums(bounds), {})
    groups = pools.groups(_oldest(pools, price, lowest))
    shortfall = shortfall_of(groups, bounds)
    return BatchPlan(groups, relaxed=bool(shortfall), shortfall=shortfall)


def queued_shortfall(batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> int | None:
    """Return the smallest total shortfall of a batch from the queue; None if it holds no exact batch at all."""
    return cheapest(batch_size, supplies_of(batch_size, usable_groups(batch_size, lanes, bounds), bounds), _short)


def smallest_shortfall(
    batch_size: int, sizes: Mapping[int | None, Collection[int]], bounds: Mapping[int, Bounds]
) -> int | None:
    """Return the smallest total shortfall that group sizes allow, were every queue full; None if no batch is exact."""
    return cheapest(batch_size, supplies_of(batch_size, unlimited(batch_size, sizes, bounds), bounds), _short)


class _Step(NamedTuple):
    """What the walk does with the oldest group of the pools still open: take it, or skip it and close its pool."""

    pool: int
    takes: bool


def _oldest(pools: SizeClasses, price: Price, lowest: int) -> ClassCounts:
    """Return how many groups of each pool the law takes, of the batches that cost ``lowest``."""
    low, high = pools.nothing, pools.everything
    while True:
        course = _course(pools, low, high, endings(*pools.remaining(low, high), price, lowest))

        def possible_after(
            count: int, start: tuple[ClassCounts, ClassCounts, list[_Step]] = (low, high, course)
        ) -> bool:
            return affordable(*pools.remaining(*_after(count, *start)), price, lowest)

        if possible_after(len(course)):
            return _after(len(course), low, high, course)[0]
        right = last(0, len(course) - 1, possible_after)
        low, high = _after(right + 1, low, high, [*course[:right], course[right]._replace(takes=False)])


def _after(count: int, low: ClassCounts, high: ClassCounts, course: Sequence[_Step]) -> tuple[ClassCounts, ClassCounts]:
    """Return what is taken, and up to where more may be, after so many steps of a course."""
    low, high = list(low), list(high)
    for pool, takes in course[:count]:
        if takes:
            low[pool] += 1
        else:
            high[pool] = low[pool]
    return low, high


def _course(pools: SizeClasses, low: ClassCounts, high: ClassCounts, ends: Mapping[int | None, int]) -> list[_Step]:
    """Draw up the walk to its end, skipping no group but where its environment could not end as it may any more.

    Args:
        pools: The queue.
        low: Groups of each pool that are taken.
        high: Groups of each pool up to which more may be.
        ends: The totals each environment may end with, as bits.
    """
    _, parts = pools.remaining(low, high)
    taken = {part.environment: part.taken for part in parts}
    left = {part.environment: dict(part.counts) for part in parts}
    course = []
    for key in pools.order(low, high):
        index = key % len(pools.all)
        account, size = pools.all[index].account, pools.all[index].size
        own = left[account]
        if size not in own:
            continue  # its pool was closed
        own[size] -= 1
        takes = _can_end(taken[account] + size, own, ends[account])
        course.append(_Step(index, takes))
        if takes:
            taken[account] += size
        else:
            del own[size]
    return course


def _can_end(taken: int, counts: Mapping[int, int], ends: int) -> bool:
    """Whether one of these totals is what was taken and a sum of groups that are left."""
    room = ends.bit_length() - 1 - taken
    return room >= 0 and bool(reachable(counts, room) & ends >> taken)


def _short(part: Supply, brought: NDArray[np.int64]) -> NDArray[np.int64]:
    return _below(part.least, brought)


def _below(wanted: int, got: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.maximum(wanted - got, 0)


def shortfall_of(groups: Sequence[PlannedGroup], bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """Return the missing sequences of each minimum that the groups do not keep."""
    got: Counter[int | None] = Counter()
    for group in groups:
        got[group.environment] += group.size
    short = {environment: bound.minimum - got[environment] for environment, bound in bounds.items()}
    return {environment: missing for environment, missing in short.items() if missing > 0}
