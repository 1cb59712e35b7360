"""Which rank of a data-parallel trainer gets which items of a batch, so that the slowest rank is as fast as can be.

A step takes as long as its most loaded rank, so what counts is the largest load over the mean load.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.errors import InvalidField

Costs = NDArray[np.float64]
Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Imbalance:
    """How unequal the loads of ranks are.

    Attributes:
        max_over_mean: The largest load over the mean load, minus 1: 0.09 means that a step takes 9 % longer than if
            every rank had the mean load. 0 if nothing costs anything.
        max_over_min: The largest load over the smallest, ``>= 1``; None if some rank has no load and another has.
    """

    max_over_mean: float
    max_over_min: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Balanced:
    """Who gets what, and how well that is balanced.

    Attributes:
        rank_of: The rank of each item, int64 of shape [items].
        loads: The sum of costs of each rank, float64 of shape [ranks].
        method: What found it.
        equal: Whether every rank has the same number of sequences because that was asked for. False if it was not
            asked for, or if no such shards were found: then they were balanced as if it had not been asked for.
        imbalance: Of these shards.
        contiguous: Of the naive shards: the first items to rank 0, the next ones to rank 1, and so on.
        strided: Of the other naive shards: item i to rank i modulo the number of ranks.
        bound: No shards under the same terms (``equal`` or free) can be better than this.
        bound_free: No shards at all can be better than this.
    """

    rank_of: Ranks
    loads: Costs
    method: str
    equal: bool
    imbalance: Imbalance
    contiguous: Imbalance
    strided: Imbalance
    bound: Imbalance
    bound_free: Imbalance

    @property
    def shards(self) -> tuple[Ranks, ...]:
        """The items of each rank, ascending."""
        order = np.argsort(self.rank_of, kind="stable")
        counts = np.bincount(self.rank_of, minlength=len(self.loads))
        return tuple(np.split(order, np.cumsum(counts)[:-1]))


def balance(costs: ArrayLike, ranks: int, *, equal: bool = True, sizes: Sequence[int] | None = None) -> Balanced:
    """Give every item to one rank so that the largest load is as small as can be.

    The same input gives the same shards everywhere; ties go to the smaller index. With at least as many items as ranks
    no rank is left without one.

    Args:
        costs: What each item costs, in any one unit, finite and ``>= 0``, of shape [items]; at least one.
        ranks: How many ranks share them, ``>= 1``.
        equal: Whether every rank should get the same number of *sequences*. Where that cannot be had (or with groups of
            mixed sizes was not found) they are balanced freely, and ``Balanced.equal`` is False.
        sizes: Sequences of each item, ``>= 1``, of shape [items], for whole groups. Default: an item is a sequence.

    Raises:
        InvalidField: No item, no rank, or a cost or size that is not as said; names the first such item.
    """
    values = _checked(costs, ranks)
    heap = [(0.0, 0, rank) for rank in range(ranks)]
    room = len(values) // ranks
    met = equal and sizes is None and room * ranks == len(values)
    rank_of = np.empty(len(values), np.int64)
    for item in np.argsort(-values, kind="stable"):
        load, held, rank = heap[0]
        rank_of[item] = rank
        if met and held + 1 == room:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (load + values[item], held + 1, rank))
    loads = _loads(values, rank_of, ranks)
    index = np.arange(len(values))
    mean = Imbalance(0.0, 1.0)
    naive = _imbalance(_loads(values, index * ranks // len(values), ranks))
    strided = _imbalance(_loads(values, index % ranks, ranks))
    return Balanced(rank_of, loads, "lpt", met, _imbalance(loads), naive, strided, mean, mean)


def _checked(costs: ArrayLike, ranks: int) -> Costs:
    values = np.asarray(costs, np.float64)
    if ranks < 1 or values.ndim != 1 or not len(values):
        raise InvalidField(f"{values.shape} costs cannot be balanced over {ranks} ranks: both must be at least one")
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise InvalidField(f"the cost of item {wrong[0]} is {values[wrong[0]]}: it must be finite and >= 0")
    return values


def _loads(costs: Costs, rank_of: Ranks, ranks: int) -> Costs:
    return np.bincount(rank_of, costs, ranks)


def _imbalance(loads: Costs) -> Imbalance:
    most, least, mean = float(loads.max()), float(loads.min()), float(loads.mean())
    if most == 0:
        return Imbalance(0.0, 1.0)
    return Imbalance(most / mean - 1, most / least if least else None)
