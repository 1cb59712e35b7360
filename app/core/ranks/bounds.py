"""What no split of jobs over ranks can be better than: what `app.core.ranks.balancing` measures itself against."""

import numpy as np

from app.core.ranks.costs import Costs
from app.core.ranks.partition import Integers, PartitionProblem


def lower_bound(problem: PartitionProblem) -> float:
    """Return a load that the most loaded rank of every split reaches.

    Why each term holds, with R ranks and costs x_1 >= x_2 >= ...:

    - The mean load: some rank has at least that.
    - x_(mR-m+1) + ... + x_(mR+1), for each m: of the mR + 1 dearest jobs some rank has m + 1, at best the cheapest of
      them. For m = 0 it is the dearest job.

    With a quota of Q sequences a rank, let fill(q) be the least that any q sequences can cost: the cheapest ones, and
    of a group of which only a part is needed that part of its cost. Then too:

    - The rank of a job has Q sequences: its cost + fill(Q - its sequences). Likewise for the sums above.
    - For each i up to R: either two of the i dearest jobs share a rank, which so has x_(i-1) + x_i + a fill; or they
      are on i ranks, which have iQ sequences, so one has an i-th of x_1 + ... + x_i + fill(the rest). If moreover all
      sizes are one, these ranks have i(Q - 1) other jobs; the dearest of them, no cheaper than the i(Q - 1)-th
      cheapest job of all, is on a rank with x_i or more and a fill. (For any one size likewise.)
    """
    costs, ranks, jobs = problem.costs, problem.ranks, len(problem.costs)
    sums = np.concatenate([[0.0], np.cumsum(costs)])
    several = np.arange((jobs - 1) // ranks + 1)
    together = sums[several * ranks + 1] - sums[several * ranks - several]
    mean = float(sums[-1]) / ranks
    if problem.quota is None:
        return max(mean, float(together.max()))
    sizes, quota = problem.sizes, problem.quota
    per_sequence = np.argsort(costs / sizes, kind="stable")
    filled = np.concatenate([[0], np.cumsum(sizes[per_sequence])])
    price = np.concatenate([[0.0], np.cumsum(costs[per_sequence])])

    def fill(count: Integers) -> Costs:
        return np.asarray(np.interp(count, filled, price))

    largest = np.concatenate([[0], np.cumsum(np.sort(sizes)[::-1])])
    alone = costs + fill(quota - sizes)
    together += fill(quota - largest[several + 1])
    i = np.arange(1, min(ranks, jobs) + 1)
    spread = (sums[i] + fill(i * quota - np.cumsum(sizes)[i - 1])) / i
    if problem.room is not None and problem.room.shape[1] == 1:
        size = int(sizes[0])
        last = i * (quota // size - 1)  # in ascending order of cost the dearest of what must fill up the ranks
        spread = np.maximum(
            spread, np.where(last > 0, costs[i - 1] + costs[-last] + fill(np.array(quota - 2 * size)), 0.0)
        )
    sharing = np.concatenate([[np.inf], costs[: len(i) - 1] + costs[1 : len(i)]]) + fill(quota - largest[min(2, jobs)])
    return float(max(mean, alone.max(), together.max(), np.minimum(spread, sharing).max()))
