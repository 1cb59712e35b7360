"""Plan the shards of a dataset, one for each rank: which rank gets which episode, and how much faster a pass is.

All ranks go through their shards at the same pace, so a pass takes as long as its most loaded rank. Times are in units
of the mean load. 1.0 is a pass in which no rank waits for another. No plan is faster.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.ranks.balancing import Balanced, balance, contiguous
from app.core.ranks.costs import Costs

PERCENTILES = (5, 25, 50, 75, 95, 99)


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of episodes.

    Attributes:
        episodes: How many there are, ``>= 1``.
        total: The sum of their lengths.
        shortest, longest, mean: The shortest, longest and mean length of an episode.
        variation: The standard deviation over the mean; 0 if all are equally long.
        percentiles: For each of `PERCENTILES`, the length that this percentage of episodes does not exceed
            (interpolated).
    """

    episodes: int
    total: int
    shortest: int
    longest: int
    mean: float
    variation: float
    percentiles: dict[int, float]


@dataclass(frozen=True, slots=True)
class DatasetShard:
    """The shard of one rank.

    Attributes:
        episodes: How many.
        length: The sum of their lengths.
        cost: The sum of their costs.
        load: The cost divided by the mean cost of a shard. Above 1, others wait for this rank. 1 if all costs are 0.
    """

    episodes: int
    length: int
    cost: float
    load: float


@dataclass(frozen=True, slots=True, eq=False)
class ShardPlan:
    """The shards of all ranks, and how well they are balanced.

    Attributes:
        lengths: The distribution of the episodes' lengths.
        costs: The cost of each episode, ``[episodes]``.
        balanced: The rank of each episode, and the balance of the loads.
        shards: The shard of each rank, by rank.
        contiguous_loads: The costs of contiguous shards, which are usual without a plan, ``[ranks]``.
    """

    lengths: Lengths
    costs: Costs
    balanced: Balanced
    shards: tuple[DatasetShard, ...]
    contiguous_loads: Costs

    @property
    def pass_time(self) -> float:
        """Return the time of a pass, in units of the mean load."""
        return 1 + self.balanced.imbalance.max_over_mean

    @property
    def contiguous_pass_time(self) -> float:
        """Return the time of a pass over contiguous shards, in units of the mean load."""
        return 1 + self.balanced.contiguous.max_over_mean

    @property
    def bound_pass_time(self) -> float:
        """Return a lower bound of the time of a pass under the same terms, in units of the mean load."""
        return 1 + self.balanced.bound.max_over_mean

    @property
    def speed_up(self) -> float:
        """Return the speed of a pass relative to one over contiguous shards."""
        return self.contiguous_pass_time / self.pass_time


def plan_shards(lengths: NDArray[np.int64], costs: Costs, ranks: int, *, equal_episodes: bool) -> ShardPlan:
    """Give every episode to one rank so that no rank waits long for another.

    Args:
        lengths: Frames or tokens of each episode, ``>= 0``, ``[episodes]``.
        costs: The cost of each episode, all in one unit, finite and ``>= 0``, ``[episodes]``.
        ranks: How many ranks there are, ``>= 1``.
        equal_episodes: Whether every rank should get equally many episodes, if their number allows it.

    Raises:
        InvalidField: There is no episode or no rank, or a cost is invalid.
    """
    balanced = balance(costs, ranks, equal=equal_episodes)
    contiguous_loads = np.bincount(contiguous(len(costs), ranks), costs, ranks)
    return ShardPlan(
        describe_lengths(lengths),
        costs,
        balanced,
        _shards(lengths, balanced),
        contiguous_loads.astype(np.float64, copy=False),
    )


def describe_lengths(lengths: NDArray[np.int64]) -> Lengths:
    """Describe the distribution of lengths. There must be at least one."""
    mean = float(lengths.mean())
    cuts = np.percentile(lengths, PERCENTILES)
    return Lengths(
        episodes=len(lengths),
        total=int(lengths.sum()),
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        mean=mean,
        variation=float(lengths.std()) / mean if mean else 0.0,
        percentiles=dict(zip(PERCENTILES, cuts.tolist(), strict=True)),
    )


def _shards(lengths: NDArray[np.int64], balanced: Balanced) -> tuple[DatasetShard, ...]:
    ranks = len(balanced.loads)
    counts = np.bincount(balanced.rank_of, minlength=ranks)
    totals = np.zeros(ranks, np.int64)
    np.add.at(totals, balanced.rank_of, lengths)  # exact in whole numbers; bincount adds its weights as floats
    mean = float(balanced.loads.mean())
    return tuple(
        DatasetShard(int(count), int(total), float(load), float(load) / mean if mean else 1.0)
        for count, total, load in zip(counts, totals, balanced.loads, strict=True)
    )
