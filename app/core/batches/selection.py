"""Select the groups of the next batch.

The selection rule: **the plan is the lexicographically oldest set of queued groups, in arrival order, that sums to
exactly the batch size and keeps every bound.** Walk the groups, the oldest first. Take a group if some valid batch
contains this group and all groups taken so far. The rule is the same with and without shares. If a valid batch exists,
the rule finds a batch.

A *size class* has the groups of one environment and one size. Environments without bounds count as one environment.
Groups of one size class can replace each other in any batch. This property keeps the cost low:

1. A valid batch stays valid if an older group of the same size class replaces a younger group. So after the walk skips
   a group, it skips all later groups of the size class. Each size class leaves the walk at its first skip.
2. For the same reason only the oldest ``limit // size`` groups of a size class matter. ``limit`` is the maximum number
   of sequences of the environment.
3. As k grows, "some valid batch contains the next k groups of the open size classes" changes from true to false once at
   most. So bisection finds the longest stretch without a skip. There are at most as many stretches as size classes.
4. Whether taken and remaining groups can make a valid batch depends only on counts and sizes
   (`app.core.numeric.subset_sum`).

So the cost depends on the batch size and the number of size classes, and not on the length of the queue. If the oldest
groups fit without a skip, addition alone decides.

If group sizes make the minimums impossible together, `app.core.batches.relaxation` applies the same rule to the batches
with the smallest shortfall.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from app.core.environments.shares import bounded_environment, is_oversized, limit_of, supplies_of
from app.core.model import BatchPlan, Bounds, Lane, PlannedGroup
from app.core.numeric.bisection import last
from app.core.numeric.subset_sum import Supply, attainable, plausible

ClassCounts = list[int]
"""Groups of each size class."""


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Groups that can replace each other in any batch.

    Attributes:
        environment: The environment whose bounds apply to the groups; None for those without bounds.
        size: Number of sequences of each group.
        keys: The keys of the groups, the oldest first.
        lanes: The lanes of the groups.
    """

    environment: int | None
    size: int
    keys: tuple[int, ...]
    lanes: tuple[Lane, ...]


class SizeClasses:
    """All size classes of one snapshot of the queue.

    The *key* of a group is one number: ``arrival * number of size classes + index of its size class``. Keys sort like
    arrivals, and sorting numbers takes half as long as sorting pairs.

    A walk keeps two numbers of groups for each size class: ``low``, the taken groups, and ``high``, the maximum number
    of groups that the batch may take.
    """

    def __init__(self, batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> None:
        self._batch_size = batch_size
        self._untouched = supplies_of(batch_size, {}, bounds)
        self.all = self._read(lanes, bounds)
        self.nothing: ClassCounts = [0] * len(self.all)
        self.everything: ClassCounts = [len(size_class.keys) for size_class in self.all]

    def _read(self, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> list[SizeClass]:
        members: dict[tuple[int | None, int], list[Lane]] = {}
        for lane in lanes:
            if not is_oversized(lane.id, self._batch_size, bounds):
                environment = bounded_environment(lane.environment, self._batch_size, bounds)
                members.setdefault((environment, lane.size), []).append(lane)
        classes = []
        for index, ((environment, size), own) in enumerate(members.items()):
            most = limit_of(environment, self._batch_size, bounds) // size
            keys = sorted(head.arrival * len(members) + index for lane in own for head in lane.heads[:most])[:most]
            classes.append(SizeClass(environment, size, tuple(keys), tuple(own)))
        return classes

    def index_of(self, key: int) -> int:
        """Return the index of the size class of the group with this key."""
        return key % len(self.all)

    def _arrival_of(self, key: int) -> int:
        return key // len(self.all)

    def remaining(self, low: ClassCounts, high: ClassCounts) -> tuple[int, list[Supply]]:
        """Return the sequences missing after ``low`` groups, and what the groups from ``low`` to ``high`` supply."""
        taken = {supply.environment: 0 for supply in self._untouched}
        counts: dict[int | None, dict[int, int]] = {environment: {} for environment in taken}
        for size_class, have, most in zip(self.all, low, high, strict=True):
            taken[size_class.environment] += have * size_class.size
            if most > have:
                counts[size_class.environment][size_class.size] = most - have
        supplies = []
        for environment, _, minimum, maximum, _ in self._untouched:
            have = taken[environment]
            supplies.append(Supply(environment, have, max(0, minimum - have), maximum - have, counts[environment]))
        return self._batch_size - sum(taken.values()), supplies

    def order(self, low: ClassCounts, high: ClassCounts) -> list[int]:
        """Return the keys of the groups from ``low`` to ``high``, oldest first."""
        return sorted(chain.from_iterable(p.keys[a:b] for p, a, b in zip(self.all, low, high, strict=True)))

    def groups(self, taken: ClassCounts) -> tuple[PlannedGroup, ...]:
        """Return the oldest ``taken`` groups of each size class, in arrival order."""
        planned = []
        for size_class, count in zip(self.all, taken, strict=True):
            last_arrival = self._arrival_of(size_class.keys[count - 1]) if count else -1
            for lane in size_class.lanes:
                old = bisect_right(lane.heads, last_arrival, key=attrgetter("arrival"))
                planned += [PlannedGroup(h.arrival, h.group_id, lane.environment, lane.size) for h in lane.heads[:old]]
        if sum(group.size for group in planned) != self._batch_size:
            raise ValueError("two queued groups have the same arrival number")
        return tuple(sorted(planned, key=attrgetter("arrival")))


def select(batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> BatchPlan | None:
    """Choose the next batch by the selection rule. None means that there is no valid batch.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        lanes: The queue, with the oldest groups of each lane. Arrivals are unique.
        bounds: Minimum and maximum of each environment. Environments without an entry, and None, have no bounds.
    """
    classes = SizeClasses(batch_size, lanes, bounds)
    taken = _oldest_counts(classes)
    return None if taken is None else BatchPlan(classes.groups(taken))


def _oldest_counts(classes: SizeClasses) -> ClassCounts | None:
    """Return how many groups of each size class the rule takes. None means that there is no valid batch."""
    low, high = classes.nothing, classes.everything
    if not plausible(*classes.remaining(low, high)):
        return None
    while low != high:
        stretch = _Stretch(classes, low, high)
        taken = stretch.longest()
        if taken is None:
            return None
        low, high = stretch.after(taken), stretch.closed(taken)
    return low


class _Stretch:
    """The groups from ``low`` to ``high``, the oldest first. The walk takes the groups before the first skip."""

    def __init__(self, classes: SizeClasses, low: ClassCounts, high: ClassCounts) -> None:
        self._classes, self._low, self._high = classes, low, high
        self._keys = classes.order(low, high)

    def longest(self) -> int | None:
        """Return how many groups the walk takes before the first skip. None means that there is no valid batch.

        Addition alone gives an upper bound of this number. Usually the bound is equal to the number.
        """
        count = last(0, len(self._keys), self._plausible)
        if self._possible(count):
            return count
        # Only the first stretch can find that there is no batch. Each later stretch starts from a valid batch.
        if self._low is self._classes.nothing and not self._possible(0):
            return None
        return _last_from_above(count, self._possible)

    def after(self, count: int) -> ClassCounts:
        """Return the taken groups of each size class after ``count`` more groups."""
        if count == 0:
            return self._low
        key = self._keys[count - 1]
        bounds = zip(self._classes.all, self._low, self._high, strict=True)
        return [bisect_right(size_class.keys, key, low, high) for size_class, low, high in bounds]

    def closed(self, count: int) -> ClassCounts:
        """Return the maximum number of groups of each size class after ``count`` groups and a skip."""
        taken, limit = self.after(count), list(self._high)
        if count < len(self._keys):
            skipped = self._classes.index_of(self._keys[count])
            limit[skipped] = taken[skipped]
        return _narrowed(self._classes, taken, limit)

    def _plausible(self, count: int) -> bool:
        return plausible(*self._classes.remaining(self.after(count), self._high))

    def _possible(self, count: int) -> bool:
        return attainable(*self._classes.remaining(self.after(count), self._high))


def _narrowed(classes: SizeClasses, low: ClassCounts, high: ClassCounts) -> ClassCounts:
    """Leave out groups that no batch has room for. This saves the walk a stretch for each size class."""
    total, supplies = classes.remaining(low, high)
    slack = total - sum(supply.minimum for supply in supplies)
    room = {supply.environment: min(supply.maximum, supply.minimum + slack) for supply in supplies}
    counts = zip(classes.all, low, high, strict=True)
    return [min(most, have + room[one.environment] // one.size) for one, have, most in counts]


def _last_from_above(failing: int, test: Callable[[int], bool]) -> int:
    """Return the last number below ``failing`` that passes, as `last` from 0. Fast for a number near ``failing``."""
    step = 1
    while failing - step > 0 and not test(failing - step):
        failing -= step
        step *= 2
    return last(max(0, failing - step), failing - 1, test)
