"""Split jobs over ranks so that the largest load is small, and compute lower bounds of the largest load.

`app.core.ranks.balancing` chooses among these methods and measures itself against the bound.
All take a `PartitionProblem` with jobs in descending order of cost, and return the rank of each job. If
every rank must get the same number of sequences, a rank has *room* for a number of jobs of each size. A method keeps
that number if it puts a job only where there is room for its size, and exchanges only jobs of one size.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.ranks.costs import Costs

Integers = NDArray[np.int64]

_SAME = 1e-12  # loads with a relative difference up to this are equal: the difference is rounding
_MOST_EXCHANGES = 200  # of jobs, to improve a split
_MOST_NODES = 1500  # of the search tree
_MOST_SEARCHED = 16  # jobs: with more, such a short search hardly improves the first split
_MOST_LOOKS = 50_000  # at the jobs of one kind, for exchanges: about 20 us each


@dataclass(frozen=True, slots=True, eq=False)
class PartitionProblem:
    """The jobs to split over ranks, and the terms of the split.

    Attributes:
        costs: Descending, finite, ``>= 0``, of shape [jobs].
        ranks: How many ranks there are.
        sizes: Sequences of each job, of shape [jobs].
        quota: Sequences that every rank must get; None if it may get any number.
        kinds: Which of the different sizes each job has, of shape [jobs]; all 0 without a quota.
        room: Jobs of each kind that each rank gets, of shape [ranks, kinds]; None without a quota.
    """

    costs: Costs
    ranks: int
    sizes: Integers
    quota: int | None
    kinds: Integers
    room: Integers | None

    def loads(self, rank_of: Integers) -> Costs:
        """Return the sum of costs of each rank."""
        return np.bincount(rank_of, self.costs, self.ranks).astype(np.float64, copy=False)

    def admits(self, rank_of: Integers) -> bool:
        """Return whether every rank gets its quota."""
        sequences = np.bincount(rank_of, self.sizes, self.ranks)
        return self.quota is None or bool((sequences == self.quota).all())


def free(costs: Costs, ranks: int, sizes: Integers) -> PartitionProblem:
    """Pose the problem in which a rank may get any number of sequences."""
    return PartitionProblem(costs, ranks, sizes, None, np.zeros(len(costs), np.int64), None)


def equal(costs: Costs, ranks: int, sizes: Integers) -> PartitionProblem | None:
    """Pose the problem in which every rank must get the same number of sequences.

    How many jobs of each size a rank gets is itself a partition problem, with sizes as costs. The same methods solve
    it. They are sure to find a solution only if there are few jobs, or all have one size.

    Returns:
        None if the sequences cannot be shared out equally, or no way was found.
    """
    different, kinds = np.unique(sizes, return_inverse=True)
    quota, over = divmod(int(sizes.sum()), ranks)
    if over:
        return None
    if len(different) == 1:
        each, over = divmod(len(costs), ranks)
        return None if over else PartitionProblem(costs, ranks, sizes, quota, kinds, np.full((ranks, 1), each))
    order = np.argsort(-sizes, kind="stable")
    by_size = free(sizes[order].astype(np.float64), ranks, sizes[order])
    rank_of = improved(by_size, longest_first(by_size), quota)
    if by_size.loads(rank_of).max() > quota:
        rank_of = exhaustive(by_size, rank_of, quota)
    if by_size.loads(rank_of).max() > quota:
        return None
    room = np.bincount(rank_of * len(different) + kinds[order], minlength=ranks * len(different))
    return PartitionProblem(costs, ranks, sizes, quota, kinds, room.reshape(ranks, -1))


def longest_first(problem: PartitionProblem) -> Integers:
    """Give each job, the costliest first, to the least loaded rank that has room for it.

    Source: Graham, *Bounds on multiprocessing timing anomalies* (1969): LPT.
    """
    # Ties go to the rank with fewer jobs. Otherwise one rank would get all jobs of cost 0.
    heap = [(0.0, 0, rank) for rank in range(problem.ranks)]
    rank_of = np.empty(len(problem.costs), np.int64)
    if problem.room is None:
        for job, cost in enumerate(problem.costs.tolist()):
            load, held, rank = heap[0]
            rank_of[job] = rank
            heapq.heapreplace(heap, (load + cost, held + 1, rank))
        return rank_of
    room, total = problem.room.tolist(), problem.room.sum(axis=1).tolist()
    for job, (kind, cost) in enumerate(zip(problem.kinds.tolist(), problem.costs.tolist(), strict=True)):
        passed = []
        while not room[heap[0][2]][kind]:
            passed.append(heapq.heappop(heap))
        load, held, rank = heapq.heappop(heap)
        rank_of[job] = rank
        room[rank][kind] -= 1
        if held + 1 < total[rank]:
            passed.append((load + cost, held + 1, rank))
        for entry in passed:
            heapq.heappush(heap, entry)
    return rank_of


def largest_differences(problem: PartitionProblem) -> Integers:
    """Join the two partial splits with the largest differences, large shares with small ones, until one is left.

    Without a quota, a partial split starts as one job. With a quota, it starts as a row: one job for each rank, so that
    all ranks get equally many. Then all jobs must have one size.

    Source: Karmarkar and Karp, *The differencing method of set partitioning* (1982); for rows Michiels et al.,
    *Performance ratios for the differencing method* (2003).
    """
    jobs, ranks = len(problem.costs), problem.ranks
    width = 1 if problem.quota is None else ranks
    rows = np.zeros((jobs // width, ranks))
    rows[:, :width] = problem.costs.reshape(-1, width)
    # A tree of joins. Its leaves are rows. A node's order is the permutation that sorted its shares after the join.
    shares = dict(enumerate(rows))
    heap = [(float(row[-1] - row[0]), node) for node, row in enumerate(rows)]
    heapq.heapify(heap)
    joins: list[tuple[int, int, Integers]] = []
    while len(heap) > 1:
        first, second = heapq.heappop(heap)[1], heap[0][1]
        joined = shares.pop(first) + shares.pop(second)[::-1]
        order = np.argsort(-joined, kind="stable")
        node = len(rows) + len(joins)
        joins.append((first, second, order))
        shares[node] = joined = joined[order]
        heapq.heapreplace(heap, (float(joined[-1] - joined[0]), node))
    places = {len(rows) + len(joins) - 1: np.arange(ranks)}
    for node, (first, second, order) in reversed(list(enumerate(joins, len(rows)))):
        place = np.empty(ranks, np.int64)
        place[order] = places.pop(node)
        places[first], places[second] = place, place[::-1]
    return np.stack([places[node][:width] for node in range(len(rows))]).ravel()


def improved(problem: PartitionProblem, rank_of: Integers, goal: float) -> Integers:
    """Exchange jobs of the most loaded rank until its load is within the goal, or no exchange makes it smaller.

    Each step takes the exchange of two jobs after which the larger load of their two ranks is smallest. Without a
    quota, each rank also has unlimited empty jobs of cost 0 to give, so that a job can move alone.
    """
    jobs, spare = len(problem.costs), problem.ranks if problem.quota is None else 0
    costs = np.concatenate([problem.costs, np.zeros(spare)])
    placed = np.concatenate([rank_of, np.arange(spare)])
    kinds = np.concatenate([problem.kinds, np.zeros(spare, np.int64)])
    alike = np.split(np.argsort(kinds, kind="stable"), np.cumsum(np.bincount(kinds))[:-1])
    loads = problem.loads(rank_of)
    for _ in range(min(_MOST_EXCHANGES, _MOST_LOOKS // len(alike))):
        most = int(loads.argmax())
        if loads[most] <= goal * (1 + _SAME):
            break
        half_gaps = (loads[most] - loads) / 2
        saved, given, taken = max(_exchange(costs, placed, same, most, half_gaps) for same in alike)
        if saved <= loads[most] * _SAME:
            break
        other = placed[taken]
        loads[[most, other]] += np.array([-1, 1]) * (costs[given] - costs[taken])
        if given < jobs:
            placed[given] = other
        if taken < jobs:
            placed[taken] = most
    return placed[:jobs]


def _exchange(costs: Costs, placed: Integers, same: Integers, most: int, half_gaps: Costs) -> tuple[float, int, int]:
    """Return the best exchange of a job of the most loaded rank for another one: the saving, and the two jobs."""
    own = same[placed[same] == most][::-1]
    if not len(own):
        return 0.0, 0, 0
    gaps = half_gaps[placed[same]]
    wanted = costs[same] + gaps  # an exchange for a job of this cost would make the two loads equal
    above = np.searchsorted(costs[own], wanted)
    nearest = np.minimum(above, len(own) - 1)
    uneven = np.abs(costs[own[nearest]] - wanted)
    below = np.maximum(above - 1, 0)
    uneven_below = np.abs(costs[own[below]] - wanted)
    saved = gaps - np.minimum(uneven, uneven_below)
    best = int(saved.argmax())
    given = own[nearest[best] if uneven[best] <= uneven_below[best] else below[best]]
    return float(saved[best]), int(given), int(same[best])


def exhaustive(problem: PartitionProblem, rank_of: Integers, goal: float) -> Integers:
    """Try all splits that could be better than a given one, until one reaches the goal.

    After `_MOST_NODES` nodes of the search tree, return the best split so far. If there are many jobs, do not search.
    """
    if len(problem.costs) > _MOST_SEARCHED:
        return rank_of
    ranks = range(problem.ranks)
    costs, sizes = problem.costs.tolist(), problem.sizes.tolist()
    remaining = [*np.cumsum(problem.costs[::-1])[::-1].tolist(), 0.0]
    best, nodes = float(problem.loads(rank_of).max()), _MOST_NODES
    loads, room = [0.0] * problem.ranks, [problem.quota or 0] * problem.ranks
    chosen: list[int] = []

    def visit(job: int) -> None:
        nonlocal best, rank_of, nodes
        if job == len(costs):
            best, rank_of = max(loads), np.array(chosen)
            return
        tried = set()
        for rank in sorted(ranks, key=loads.__getitem__):
            ceiling = best * (1 - _SAME)
            if nodes == 0 or best <= goal * (1 + _SAME) or sum(ceiling - load for load in loads) < remaining[job]:
                return
            state = loads[rank], room[rank]
            if state in tried or state[0] + costs[job] >= ceiling:
                continue
            if problem.quota is not None and room[rank] < sizes[job]:
                continue
            tried.add(state)
            nodes -= 1
            loads[rank] += costs[job]
            room[rank] -= sizes[job]
            chosen.append(rank)
            visit(job + 1)
            chosen.pop()
            loads[rank], room[rank] = state

    visit(0)
    return rank_of


def lower_bound(problem: PartitionProblem) -> float:
    """Return a load that the most loaded rank of every split reaches: the largest of the bounds below.

    With R ranks and costs x_1 >= x_2 >= ..., and with a quota of Q sequences a rank.
    """
    sums = np.concatenate([[0.0], np.cumsum(problem.costs)])
    mean = float(sums[-1]) / problem.ranks  # some rank has at least that
    if problem.quota is None:
        return max(mean, _many_on_one_rank(problem, sums, None))
    fill = _Fill(problem, problem.quota)
    several = _many_on_one_rank(problem, sums, fill)
    return max(mean, several, _one_on_its_rank(problem, fill), _two_or_spread(problem, sums, fill))


class _Fill:
    """The least cost of any q sequences: the cheapest groups, and the needed part of the last one."""

    def __init__(self, problem: PartitionProblem, quota: int) -> None:
        per_sequence = np.argsort(problem.costs / problem.sizes, kind="stable")
        self.quota = quota
        self._sequences = np.concatenate([[0], np.cumsum(problem.sizes[per_sequence])])
        self._cost = np.concatenate([[0.0], np.cumsum(problem.costs[per_sequence])])
        self._largest = np.concatenate([[0], np.cumsum(np.sort(problem.sizes)[::-1])])

    def of(self, sequences: Integers) -> Costs:
        """Return the least cost of each number of sequences."""
        return np.asarray(np.interp(sequences, self._sequences, self._cost))

    def beside(self, jobs: Integers | int) -> Costs:
        """Return the least cost of the sequences that fill up a rank's quota beside this many jobs of any size."""
        return self.of(self.quota - self._largest[jobs])


def _many_on_one_rank(problem: PartitionProblem, sums: Costs, fill: _Fill | None) -> float:
    """Return the largest x_(mR-m+1) + ... + x_(mR+1) over all m, plus what the quota adds.

    Some rank has m + 1 of the mR + 1 costliest jobs. At best it has the cheapest m + 1 of them. For m = 0 this is the
    costliest job.
    """
    ranks = problem.ranks
    several = np.arange((len(problem.costs) - 1) // ranks + 1)
    together = sums[several * ranks + 1] - sums[several * ranks - several]
    if fill is not None:
        together += fill.beside(several + 1)
    return float(together.max())


def _one_on_its_rank(problem: PartitionProblem, fill: _Fill) -> float:
    """Return the largest cost of one job and the rest of its rank's quota."""
    return float((problem.costs + fill.of(fill.quota - problem.sizes)).max())


def _two_or_spread(problem: PartitionProblem, sums: Costs, fill: _Fill) -> float:
    """Return the largest bound over i up to R: two of the i dearest jobs share a rank, or they are on i ranks.

    If two share a rank, it has x_(i-1) + x_i and the rest of its quota. If they are on i ranks, these have iQ sequences
    and one has an i-th of x_1 + ... + x_i + the cheapest rest. If moreover all sizes are one, these ranks have i(Q - 1)
    other jobs. The costliest of them costs at least as much as the i(Q - 1)-th cheapest job of all. Its rank also has
    x_i or more, and the rest of a quota. The same holds for any one size.
    """
    costs, sizes, jobs, quota = problem.costs, problem.sizes, len(problem.costs), fill.quota
    i = np.arange(1, min(problem.ranks, jobs) + 1)
    spread = (sums[i] + fill.of(i * quota - np.cumsum(sizes)[i - 1])) / i
    if problem.room is not None and problem.room.shape[1] == 1:
        size = int(sizes[0])
        last = i * (quota // size - 1)  # by ascending cost: the costliest job that must fill up the ranks
        spread = np.maximum(
            spread, np.where(last > 0, costs[i - 1] + costs[-last] + fill.of(np.array(quota - 2 * size)), 0.0)
        )
    sharing = np.concatenate([[np.inf], costs[: len(i) - 1] + costs[1 : len(i)]]) + fill.beside(min(2, jobs))
    return float(np.minimum(spread, sharing).max())
