"""The queue as the rules of selection see it: pools of groups that can stand in for each other."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from app.core.batches.diagnosis import account_of, limit_of, supplies_of
from app.core.batches.subset_sum import Supply
from app.core.model import Bounds, Lane, PlannedGroup

ClassCounts = list[int]  # groups by pool


@dataclass(frozen=True, slots=True)
class SizeClass:
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


class SizeClasses:
    """All pools of one snapshot of the queue.

    A walk over them is told by two counts of groups of each pool: ``low``, which were taken, and ``high``, up to which
    more may be.
    """

    def __init__(self, batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> None:
        self._batch_size = batch_size
        self._untouched = supplies_of(batch_size, {}, bounds)
        self.all = _pools(batch_size, lanes, bounds)
        self.nothing: ClassCounts = [0] * len(self.all)
        self.everything: ClassCounts = [len(pool.keys) for pool in self.all]

    def remaining(self, low: ClassCounts, high: ClassCounts) -> tuple[int, list[Supply]]:
        """Return what is missing to a batch of ``low`` groups of each pool, and what groups up to ``high`` can add."""
        taken = {part.environment: 0 for part in self._untouched}
        counts: dict[int | None, dict[int, int]] = {account: {} for account in taken}
        for pool, have, most in zip(self.all, low, high, strict=True):
            taken[pool.account] += have * pool.size
            if most > have:
                counts[pool.account][pool.size] = most - have
        parts = []
        for account, _, least, most, _ in self._untouched:
            have = taken[account]
            parts.append(Supply(account, have, max(0, least - have), most - have, counts[account]))
        return self._batch_size - sum(taken.values()), parts

    def order(self, low: ClassCounts, high: ClassCounts) -> list[int]:
        """Return the keys of the groups from ``low`` to ``high``, oldest first."""
        return sorted(chain.from_iterable(p.keys[a:b] for p, a, b in zip(self.all, low, high, strict=True)))

    def groups(self, taken: ClassCounts) -> tuple[PlannedGroup, ...]:
        """Return the oldest ``taken`` groups of each pool, in arrival order."""
        planned = []
        for pool, count in zip(self.all, taken, strict=True):
            last_arrival = pool.keys[count - 1] // len(self.all) if count else -1
            for lane in pool.lanes:
                old = bisect_right(lane.heads, last_arrival, key=attrgetter("arrival"))
                planned += [PlannedGroup(h.arrival, h.group_id, lane.environment, lane.size) for h in lane.heads[:old]]
        if sum(group.size for group in planned) != self._batch_size:
            raise ValueError("two queued groups have the same arrival number")
        return tuple(sorted(planned, key=attrgetter("arrival")))


def last(low: int, high: int, test: Callable[[int], bool]) -> int:
    """Return the last number from ``low`` to ``high`` that passes; ``low`` does, and after one fails all do."""
    return low + bisect_left(range(low + 1, high + 1), True, key=lambda number: not test(number))


def _pools(batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> list[SizeClass]:
    members: dict[tuple[int | None, int], list[Lane]] = {}
    for lane in lanes:
        if lane.size <= limit_of(lane.environment, batch_size, bounds):
            members.setdefault((account_of(lane.environment, batch_size, bounds), lane.size), []).append(lane)
    pools = []
    for index, ((account, size), own) in enumerate(members.items()):
        most = limit_of(account, batch_size, bounds) // size
        keys = sorted(head.arrival * len(members) + index for lane in own for head in lane.heads[:most])[:most]
        pools.append(SizeClass(account, size, tuple(keys), tuple(own)))
    return pools
