"""Balance jobs over data-parallel ranks, so that the slowest rank is as fast as possible.

A step takes as long as its most loaded rank, so the measure is the largest load over the mean load. Several methods are
tried, the cheapest first, and the best split is taken. A lower bound tells when no split can be better.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite

import numpy as np
from numpy.typing import ArrayLike

from app.core.ranks import partition
from app.core.ranks.costs import Costs
from app.core.ranks.partition import Integers, PartitionProblem, lower_bound
from lachesis.wire.errors import InvalidField

_GOOD = 1e-5  # relative distance to the bound at which no more jobs are exchanged
_GOOD_ENOUGH = 1e-3  # relative distance at which no other method is tried: steps vary by more than that
_MOST_JOINED = 512  # jobs or rows. A join takes about 10 us, and with more jobs longest first is as good
_MOST_SEQUENCES = 1 << 31  # of a job: a sum over a million jobs is still exact


class BalancingMethod(StrEnum):
    """The method that found the shards."""

    LONGEST_FIRST = "longest_first"
    LARGEST_DIFFERENCES = "largest_differences"
    EXHAUSTIVE = "exhaustive"
    CONTIGUOUS = "contiguous"
    STRIDED = "strided"


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The imbalance between the loads of ranks.

    Attributes:
        max_over_mean: The largest load over the mean load, minus 1. 0.09 means that a step takes 9 % longer than if
            every rank had the mean load. 0 if all costs are 0.
        max_over_min: The largest load over the smallest, ``>= 1``; None if some rank has no load (or one that is too
            small to divide by) and another has.
    """

    max_over_mean: float
    max_over_min: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Balanced:
    """The rank of each job, and how well the loads are balanced.

    Attributes:
        rank_of: The rank of each job, int64 of shape [jobs].
        loads: The sum of costs of each rank, float64 of shape [ranks].
        method: The method that found it; the first two with exchanges of jobs afterwards.
        equal: Whether every rank has the same number of sequences because that was requested. False if it was not
            requested, or if no such shards were found. Then the jobs are balanced without this condition.
        imbalance: The imbalance of these shards.
        contiguous: The imbalance of contiguous shards, which do not depend on costs (`contiguous`).
        strided: The imbalance of strided shards: job i to rank i modulo the number of ranks.
        bound: A lower bound for shards under the terms kept (equal, or free). All shards may be above it.
    """

    rank_of: Integers
    loads: Costs
    method: BalancingMethod
    equal: bool
    imbalance: Imbalance
    contiguous: Imbalance
    strided: Imbalance
    bound: Imbalance

    @property
    def shards(self) -> tuple[Integers, ...]:
        """Return the jobs of each rank, ascending."""
        order = np.argsort(self.rank_of, kind="stable")
        counts = np.bincount(self.rank_of, minlength=len(self.loads))
        return tuple(np.split(order, np.cumsum(counts)[:-1]))


def balance(costs: ArrayLike, ranks: int, *, equal: bool = True, sizes: ArrayLike | None = None) -> Balanced:
    """Give every job to one rank so that the largest load is as small as possible.

    The same input gives the same shards everywhere; ties go to the smaller index. With at least as many jobs as ranks,
    every rank gets a job. The result is never worse than contiguous or strided shards that keep the same terms.

    Args:
        costs: The cost of each job, all in one unit, finite and ``>= 0``, of shape [jobs]; at least one.
        ranks: How many ranks share them, ``>= 1``.
        equal: Whether every rank should get the same number of *sequences*. If that is impossible, or no way is found
            for groups of mixed sizes, they are balanced freely, and ``Balanced.equal`` is False.
        sizes: Sequences of each job, ``>= 1``, of shape [jobs], for whole groups. Default: a job is a sequence.

    Raises:
        InvalidField: There is no job or no rank, or a cost or size is invalid. The error names the first such job. Or
            the costs add up to more than a float64 holds.
    """
    scaled = _scaled_problem(costs, ranks, equal, sizes)
    problem, jobs = scaled.problem, len(scaled.order)
    naive = {BalancingMethod.CONTIGUOUS: contiguous(jobs, ranks), BalancingMethod.STRIDED: np.arange(jobs) % ranks}
    least = lower_bound(problem)
    method, found = _best(problem, {name: rank_of[scaled.order] for name, rank_of in naive.items()}, least)
    rank_of = np.empty_like(found)
    rank_of[scaled.order] = found
    loads = problem.loads(found)
    return Balanced(
        rank_of=rank_of,
        loads=np.ldexp(loads, scaled.scale),
        method=method,
        equal=problem.quota is not None,
        imbalance=_imbalance(loads),
        contiguous=_imbalance(problem.loads(naive[BalancingMethod.CONTIGUOUS][scaled.order])),
        strided=_imbalance(problem.loads(naive[BalancingMethod.STRIDED][scaled.order])),
        bound=_imbalance_of_bound(least, problem),
    )


def contiguous(jobs: int, ranks: int) -> Integers:
    """Return the rank of each job if the first ones go to rank 0, the next to rank 1, and so on: [jobs]."""
    return np.arange(jobs) * ranks // jobs


def least_imbalance(costs: ArrayLike, ranks: int, *, equal: bool = True, sizes: ArrayLike | None = None) -> float:
    """Return ``balance(...).bound.max_over_mean`` without balancing. It is a lower bound, and `balance` comes near it.

    Args and Raises: As for `balance`.
    """
    problem = _scaled_problem(costs, ranks, equal, sizes).problem
    return _imbalance_of_bound(lower_bound(problem), problem).max_over_mean


@dataclass(frozen=True, slots=True, eq=False)
class _ScaledProblem:
    """Jobs as a partition problem.

    Attributes:
        problem: The problem under the terms that can be kept. Its costs are scaled by a power of two, so that nothing
            overflows. The scaling loses no digits.
        order: The input position of each job of the problem, of shape [jobs].
        scale: The power of two that scales loads back.
    """

    problem: PartitionProblem
    order: Integers
    scale: int


def _scaled_problem(costs: ArrayLike, ranks: int, equal: bool, sizes: ArrayLike | None) -> _ScaledProblem:
    values = _checked_costs(costs, ranks)
    sequences = _checked_sizes(sizes, len(values))
    scale = int(np.frexp(values.max())[1])
    scaled = np.ldexp(values, -scale)
    order = np.argsort(-scaled, kind="stable")
    jobs = scaled[order], ranks, sequences[order]
    problem = partition.equal(*jobs) if equal else None
    return _ScaledProblem(problem or partition.free(*jobs), order, scale)


def _best(
    problem: PartitionProblem, naive: dict[BalancingMethod, Integers], least: float
) -> tuple[BalancingMethod, Integers]:
    """Return the best split, the first one of equals. Stop as soon as a split is good enough.

    Every rank gets a job if there are enough jobs. If fewer jobs than ranks have a cost, the split by longest first is
    optimal and is tried before methods that might leave a rank empty. If more jobs have a cost, a split with an empty
    rank is not the best one.
    """
    goal = least * (1 + _GOOD)
    found = {method: rank_of for method, rank_of in naive.items() if problem.admits(rank_of)}
    for method, first in _starts(problem):
        found[method] = partition.improved(problem, first, goal)
        if problem.loads(found[method]).max() <= least * (1 + _GOOD_ENOUGH):
            break
    method = min(found, key=lambda name: _unevenness(problem, found[name]))
    searched = partition.exhaustive(problem, found[method], least)
    return (method, searched) if searched is found[method] else (BalancingMethod.EXHAUSTIVE, searched)


def _starts(problem: PartitionProblem) -> Iterator[tuple[BalancingMethod, Integers]]:
    """Yield splits that are worth improving, in order of the cost to find them."""
    yield BalancingMethod.LONGEST_FIRST, partition.longest_first(problem)
    if problem.room is None:
        joined = len(problem.costs)
    elif problem.room.shape[1] == 1:
        joined = len(problem.costs) // problem.ranks
    else:
        return
    if joined <= _MOST_JOINED:
        yield BalancingMethod.LARGEST_DIFFERENCES, partition.largest_differences(problem)


def _unevenness(problem: PartitionProblem, rank_of: Integers) -> tuple[float, float]:
    loads = problem.loads(rank_of)
    return float(loads.max()), -float(loads.min())


def _imbalance(loads: Costs) -> Imbalance:
    most, least, mean = float(loads.max()), float(loads.min()), float(loads.mean())
    if most == 0:
        return Imbalance(0.0, 1.0)
    over_min = most / least if least else inf
    return Imbalance(max(0.0, most / mean - 1), over_min if isfinite(over_min) else None)


def _imbalance_of_bound(most: float, problem: PartitionProblem) -> Imbalance:
    """Return the imbalance if one rank has this load. Some other rank then has at most the mean of the rest."""
    costs, ranks = problem.costs, problem.ranks
    total = float(costs.sum())
    if most == 0 or ranks == 1:
        return Imbalance(0.0, 1.0)
    rest = total - most + total * 1e-12  # at least the exact value, in spite of rounding
    over_min = max(1.0, most * (ranks - 1) / rest)
    return Imbalance(max(0.0, most * ranks / total - 1), over_min if np.count_nonzero(costs) >= ranks else None)


def _checked_costs(costs: ArrayLike, ranks: int) -> Costs:
    values = np.asarray(costs, np.float64)
    if ranks < 1 or values.ndim != 1 or not len(values):
        raise InvalidField(f"costs of shape {values.shape} cannot be shared out to {ranks} ranks")
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise InvalidField(
            f"the cost of job {wrong[0]} is {values[wrong[0]]}: it must be finite and >= 0", (int(wrong[0]),)
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(values.sum()):
            raise InvalidField("the costs add up to more than a number can hold: send them in a larger unit")
    return values


def _checked_sizes(sizes: ArrayLike | None, jobs: int) -> Integers:
    if sizes is None:
        return np.ones(jobs, np.int64)
    values = np.asarray(sizes)
    if values.shape != (jobs,) or not np.issubdtype(values.dtype, np.integer):
        raise InvalidField(f"sizes must be {jobs} integers, one for each cost")
    wrong = np.flatnonzero((values < 1) | (values > _MOST_SEQUENCES))
    if len(wrong):
        raise InvalidField(
            f"job {wrong[0]} has {values[wrong[0]]} sequences: from 1 to {_MOST_SEQUENCES} are possible",
            (int(wrong[0]),),
        )
    return values.astype(np.int64)
