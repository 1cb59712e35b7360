"""Plan shards of a dataset: read it, work out what its episodes cost, and balance them."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.core.datasets.costs import DECLARED_COLUMN, parse_episode_cost
from app.core.datasets.plans import ShardPlan, plan_shards
from app.core.errors import DatasetNotFound
from app.core.ranks.costs import Costs
from app.datasets.episodes import Facts, Ids, Progress, Wanted
from app.datasets.reading import read_dataset
from lachesis.wire.shards import (
    DatasetInfo,
    ImbalanceInfo,
    LengthsInfo,
    PlannedShard,
    ShardPlanInfo,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShardPlanSpec:
    """What shards are asked for.

    Attributes:
        ranks: How many ranks there are, ``>= 1``.
        cost: What an episode costs, as `parse_episode_cost` reads it.
        equal_episodes: Whether every rank should get equally many episodes.
        length: The column or tensor that says how long an episode is; None: the layout's own.
    """

    ranks: int
    cost: str = "tokens"
    equal_episodes: bool = False
    length: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DatasetPlan:
    """A plan, and whose it is.

    Attributes:
        ids: Of each episode.
        lengths: Of each, ``[episodes]``.
        plan: Who gets which.
        terms: What was asked for.
        facts: What the dataset says beside; None where episodes came with the request.
    """

    ids: Ids
    lengths: NDArray[np.int64]
    plan: ShardPlan
    terms: ShardPlanSpec
    facts: Facts | None = None


def plan_dataset(
    path: Path, terms: ShardPlanSpec, *, within: Path | None = None, progress: Progress = lambda _done, _total: None
) -> DatasetPlan:
    """Plan the shards of a dataset on disk; see `read_dataset`. Takes seconds for a million episodes.

    Raises:
        DatasetNotFound: There is none at the path.
        InvalidDataset: It is broken, or of no layout that is read.
        InvalidField: The cost is none, or takes what the dataset does not say.
    """
    cost = parse_episode_cost(terms.cost)
    found = read_dataset(path, Wanted(length=terms.length, cost=cost.column), within=within, progress=progress)
    cameras = None if found.facts.cameras is None else len(found.facts.cameras)
    costs = cost.of(found.lengths, declared=found.costs, action_dim=found.facts.action_dim, cameras=cameras)
    plan = plan_shards(found.lengths, costs, terms.ranks, equal_episodes=terms.equal_episodes)
    return DatasetPlan(found.ids, found.lengths, plan, terms, found.facts)


def plan_episodes(ids: Ids, lengths: NDArray[np.int64], declared: Costs | None, terms: ShardPlanSpec) -> DatasetPlan:
    """Plan the shards of episodes at hand.

    Raises:
        InvalidField: The cost is none, or takes what these episodes do not say.
    """
    cost = parse_episode_cost(terms.cost)
    costs = cost.of(lengths, declared=declared if cost.column == DECLARED_COLUMN else None)
    return DatasetPlan(
        ids, lengths, plan_shards(lengths, costs, terms.ranks, equal_episodes=terms.equal_episodes), terms
    )


def summary_of(planned: DatasetPlan) -> ShardPlanInfo:
    """Tell a plan, but for the episodes of each shard."""
    plan, balanced = planned.plan, planned.plan.balanced
    lengths = asdict(plan.lengths) | {"percentiles": {str(cut): at for cut, at in plan.lengths.percentiles.items()}}
    imbalances = {
        name: ImbalanceInfo(max_over_mean=found.max_over_mean, max_over_min=found.max_over_min)
        for name, found in (
            ("imbalance", balanced.imbalance),
            ("contiguous", balanced.contiguous),
            ("strided", balanced.strided),
            ("bound", balanced.bound),
        )
    }
    return ShardPlanInfo(
        dataset=None if planned.facts is None else _dataset(planned.facts),
        lengths=LengthsInfo(**lengths),
        cost=planned.terms.cost,
        ranks=planned.terms.ranks,
        equal_episodes=balanced.equal,
        method=balanced.method,
        **imbalances,
        pass_time=plan.pass_time,
        contiguous_pass_time=plan.contiguous_pass_time,
        speed_up=plan.speed_up,
        shards=[
            PlannedShard(rank=rank, count=shard.episodes, length=shard.length, cost=shard.cost, load=shard.load)
            for rank, shard in enumerate(plan.shards)
        ],
    )


def episodes_of(planned: DatasetPlan) -> Iterator[tuple[list[Any], NDArray[np.int64], Costs]]:
    """The ids, lengths and costs of each shard's episodes, in the order of the dataset, rank after rank."""
    ids = planned.ids
    for members in planned.plan.balanced.shards:
        named = ids[members].tolist() if isinstance(ids, np.ndarray) else [ids[n] for n in members.tolist()]
        yield named, planned.lengths[members], planned.plan.costs[members]


def _dataset(facts: Facts) -> DatasetInfo:
    said = asdict(replace(facts, tasks=None)) | {"tasks": None if facts.tasks is None else dict(facts.tasks)}
    said.pop("unit")
    return DatasetInfo.model_validate(said | {"cameras": None if facts.cameras is None else [*facts.cameras]})


class ShardPlanner:
    """Plans beside the event loop, one at a time: a plan takes a processor and, of a large dataset, much memory.

    Args:
        datasets_dir: Where datasets are read from; None: no dataset on disk is read.
    """

    def __init__(self, datasets_dir: Path | None) -> None:
        self._datasets_dir = datasets_dir
        self._thread = ThreadPoolExecutor(1, "shards")

    def dataset(self, path: str, terms: ShardPlanSpec) -> DatasetPlan:
        """Plan a dataset below the folder of datasets; called in `beside`.

        Raises:
            DatasetNotFound: There is none, or there is no such folder.
        """
        if self._datasets_dir is None:
            raise DatasetNotFound("this service reads no datasets from disk: LACHESIS_DATASETS_DIR is not set")
        return plan_dataset(Path(path), terms, within=self._datasets_dir.resolve())

    async def beside(self, work: Callable[[], T]) -> T:
        """Do something long after what is being done, without holding up the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
