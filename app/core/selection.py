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
   only (`app.core.sums`).

So the cost depends on the batch size and the number of pools, never on the depth of the queue. Where plain first in,
first out happens to fit, addition alone settles it.

Where group sizes make the minimums impossible together, `select_relaxed` applies the same law to the batches of
smallest shortfall.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from app.core.blockers import account_of, explain, limit_of, minimums_conflict, parts_of, unlimited
from app.core.model import BatchPlan, Bounds, Lane, NotReady, PlannedGroup
from app.core.sums import Part, affordable, attainable, cheapest, plausible

__all__ = ["minimums_conflict", "select", "select_relaxed", "smallest_shortfall"]

_Counts = list[int]  # groups by pool
_Question = Callable[[int, Sequence[Part]], bool]  # can the parts sum to exactly that many sequences?


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
    walk = _Walk(batch_size, lanes, bounds)
    taken = walk.oldest(attainable)
    return explain(batch_size, lanes, bounds, sizes or {}) if taken is None else BatchPlan(walk.groups(taken))


def select_relaxed(
    batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds], debts: Mapping[int, int]
) -> BatchPlan | NotReady:
    """Choose the next batch where the minimums cannot all be kept; maximums still are.

    Of all exact batches, those that leave the least owed, ``sum(max(0, minimum + debt - got))``, count; of these, those
    with the smallest shortfall, ``sum(max(0, minimum - got))``; of these, the law chooses. (The exchange of point 1
    leaves every environment with as many sequences as before, so it holds here too.) Without debts both sums are the
    same: the smallest total shortfall. With them, what is owed comes first, or an environment whose minimum is
    small beside the others' would be left out each time.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        lanes: The queue, as for `select`.
        bounds: What each environment must and may have.
        debts: Sequences owed from earlier batches, by environment (`app.core.allocation.settle_debts`).

    Returns:
        A plan, marked relaxed if some minimum is not kept; `NotReady` if there is no exact batch at all.
    """
    minimums = {environment: bound.minimum for environment, bound in bounds.items() if bound.minimum > 0}
    dues = {environment: minimum + debts.get(environment, 0) for environment, minimum in minimums.items()}
    one_owed = 1 + sum(minimums.values())  # a sequence owed costs more than all that can be short

    def price(part: Part, brought: NDArray[np.int64]) -> NDArray[np.int64]:
        due = dues.get(part.environment, 0) - part.taken if part.environment is not None else 0
        return _below(due, brought) * one_owed + _below(part.least, brought)

    walk = _Walk(batch_size, lanes, bounds)
    lowest = cheapest(*walk.remaining(walk.nothing, walk.everything), price)
    if lowest is None:
        return explain(batch_size, lanes, _without_minimums(bounds), {})
    taken = walk.oldest(lambda total, parts: affordable(total, parts, price, lowest), lowest % one_owed)
    assert taken is not None, "the batch of lowest cost exists"  # noqa: S101
    groups = walk.groups(taken)
    shortfall = _shortfall(groups, bounds)
    return BatchPlan(groups, relaxed=bool(shortfall), shortfall=shortfall)


def smallest_shortfall(
    batch_size: int, sizes: Mapping[int | None, Collection[int]], bounds: Mapping[int, Bounds]
) -> int | None:
    """Return the smallest total shortfall that group sizes allow, were every queue full; None if no batch is exact."""
    parts = parts_of(batch_size, unlimited(batch_size, sizes, bounds), bounds)
    return cheapest(batch_size, parts, lambda part, brought: _below(part.least, brought))


@dataclass(frozen=True, slots=True)
class _Pool:
    """Groups that can stand in for each other.

    Attributes:
        account: The environment whose bounds they count against, or None.
        size: Sequences in each.
        keys: One per group, oldest first: ``arrival * number of pools + index of this pool``.
        lanes: Where they come from.
    """

    account: int | None
    size: int
    keys: tuple[int, ...]
    lanes: tuple[Lane, ...]


class _Walk:
    """The walk of the law over one snapshot of the queue."""

    def __init__(self, batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> None:
        self._batch_size = batch_size
        self._pools = _pools(batch_size, lanes, bounds)
        self._untouched = parts_of(batch_size, {}, bounds)
        self.nothing: _Counts = [0] * len(self._pools)
        self.everything: _Counts = [len(pool.keys) for pool in self._pools]

    def oldest(self, possible: _Question, lack: int = 0) -> _Counts | None:
        """Return how many groups of each pool the law takes, or None if there is no valid batch.

        Args:
            possible: Whether some valid batch lies between what was taken and what is left.
            lack: Sequences which every valid batch, over all environments, is short of the minimums.
        """
        low, high = self.nothing, self.everything
        if not plausible(*self.remaining(low, high), lack):
            return None
        while low != high:
            further = self._stretch(low, high, possible, lack)
            if further is None:
                return None
            low, high = further
        return low

    def remaining(self, low: _Counts, high: _Counts) -> tuple[int, list[Part]]:
        """Return what is missing to a batch of ``low`` groups of each pool, and what groups up to ``high`` can add."""
        taken = {part.environment: 0 for part in self._untouched}
        counts: dict[int | None, dict[int, int]] = {account: {} for account in taken}
        for pool, have, most in zip(self._pools, low, high, strict=True):
            taken[pool.account] += have * pool.size
            if most > have:
                counts[pool.account][pool.size] = most - have
        parts = []
        for account, _, least, most, _ in self._untouched:
            have = taken[account]
            parts.append(Part(account, have, max(0, least - have), most - have, counts[account]))
        return self._batch_size - sum(taken.values()), parts

    def groups(self, taken: _Counts) -> tuple[PlannedGroup, ...]:
        """Return the oldest ``taken`` groups of each pool, in arrival order."""
        planned = []
        for pool, count in zip(self._pools, taken, strict=True):
            last_arrival = pool.keys[count - 1] // len(self._pools) if count else -1
            for lane in pool.lanes:
                old = bisect_right(lane.heads, last_arrival, key=attrgetter("arrival"))
                planned += [PlannedGroup(h.arrival, h.group_id, lane.environment, lane.size) for h in lane.heads[:old]]
        if sum(group.size for group in planned) != self._batch_size:
            raise ValueError("two queued groups have the same arrival number")
        return tuple(sorted(planned, key=lambda group: group.arrival))

    def _stretch(self, low: _Counts, high: _Counts, possible: _Question, lack: int) -> tuple[_Counts, _Counts] | None:
        """Take groups from ``low`` on up to the first that must be skipped, and close that group's pool.

        Returns:
            The new ``low`` and ``high``, or None if there is no valid batch (found out at the first stretch).
        """
        order = sorted(chain.from_iterable(p.keys[a:b] for p, a, b in zip(self._pools, low, high, strict=True)))

        def after(count: int) -> _Counts:
            if count == 0:
                return low
            key = order[count - 1]
            return [bisect_right(p.keys, key, a, b) for p, a, b in zip(self._pools, low, high, strict=True)]

        def possible_after(count: int) -> bool:
            return possible(*self.remaining(after(count), high))

        count = _last(0, len(order), lambda count: plausible(*self.remaining(after(count), high), lack))
        if not possible_after(count):
            if low is self.nothing and not possible_after(0):
                return None
            count = _last_from_above(count, possible_after)
        taken, limit = after(count), list(high)
        if count < len(order):
            skipped = order[count] % len(self._pools)
            limit[skipped] = taken[skipped]
        return taken, self._narrowed(taken, limit, lack)

    def _narrowed(self, low: _Counts, high: _Counts, lack: int) -> _Counts:
        """Leave out groups for which there is no room: they would be skipped one pool at a time."""
        total, parts = self.remaining(low, high)
        slack = total - sum(part.least for part in parts) + lack
        room = {part.environment: min(part.most, part.least + slack) for part in parts}
        return [
            min(most, have + room[pool.account] // pool.size)
            for pool, have, most in zip(self._pools, low, high, strict=True)
        ]


def _pools(batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> list[_Pool]:
    members: dict[tuple[int | None, int], list[Lane]] = {}
    for lane in lanes:
        if lane.size <= limit_of(lane.environment, batch_size, bounds):
            members.setdefault((account_of(lane.environment, batch_size, bounds), lane.size), []).append(lane)
    pools = []
    for index, ((account, size), own) in enumerate(members.items()):
        most = limit_of(account, batch_size, bounds) // size
        keys = sorted(head.arrival * len(members) + index for lane in own for head in lane.heads[:most])[:most]
        pools.append(_Pool(account, size, tuple(keys), tuple(own)))
    return pools


def _last(low: int, high: int, test: Callable[[int], bool]) -> int:
    """Return the last number from ``low`` to ``high`` that passes; ``low`` does, and after one fails all do."""
    return low + bisect_left(range(low + 1, high + 1), True, key=lambda number: not test(number))


def _last_from_above(failing: int, test: Callable[[int], bool]) -> int:
    """Return the last number below ``failing`` that passes, as `_last` from 0, but quick if it is near ``failing``."""
    step = 1
    while failing - step > 0 and not test(failing - step):
        failing -= step
        step *= 2
    return _last(max(0, failing - step), failing - 1, test)


def _below(wanted: int, got: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.maximum(wanted - got, 0)


def _without_minimums(bounds: Mapping[int, Bounds]) -> dict[int, Bounds]:
    return {environment: Bounds(0, bound.maximum) for environment, bound in bounds.items()}


def _shortfall(groups: Sequence[PlannedGroup], bounds: Mapping[int, Bounds]) -> dict[int, int]:
    got: Counter[int | None] = Counter()
    for group in groups:
        got[group.environment] += group.size
    short = {environment: bound.minimum - got[environment] for environment, bound in bounds.items()}
    return {environment: missing for environment, missing in short.items() if missing > 0}
