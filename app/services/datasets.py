"""Plan shards of a dataset: read it, compute the costs of its episodes, and balance them."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.core.datasets.costs import DECLARED_COLUMN, parse_episode_cost
from app.core.datasets.plans import ShardPlan, plan_shards
from app.core.ranks.costs import Costs
from app.datasets.episodes import DatasetFacts, Ids, Progress, WantedColumns
from app.datasets.reading import read_dataset
from lachesis.wire.errors import DatasetNotFound

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShardPlanSpec:
    """A request for shards.

    Attributes:
        ranks: Number of ranks, ``>= 1``.
        cost: The cost of an episode, as `parse_episode_cost` reads it.
        equal_episodes: Whether every rank should get the same number of episodes.
        length: The column or tensor with the length of an episode; None for the default of the layout.
    """

    ranks: int
    cost: str = "tokens"
    equal_episodes: bool = False
    length: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DatasetPlan:
    """A plan with the episodes it is for.

    Attributes:
        ids: The id of each episode.
        lengths: The length of each episode, ``[episodes]``.
        plan: The episodes of each rank.
        terms: The request.
        facts: Other facts about the dataset; None if the episodes came with the request.
    """

    ids: Ids
    lengths: NDArray[np.int64]
    plan: ShardPlan
    terms: ShardPlanSpec
    facts: DatasetFacts | None = None


def plan_dataset(
    path: Path, terms: ShardPlanSpec, *, within: Path | None = None, progress: Progress = lambda _done, _total: None
) -> DatasetPlan:
    """Plan the shards of a dataset on disk, which `read_dataset` reads. Takes seconds for a million episodes.

    Raises:
        DatasetNotFound: There is no dataset at the path.
        InvalidDataset: The dataset is broken, or has an unknown layout.
        InvalidField: The cost is invalid, or needs a field that the dataset does not have.
    """
    cost = parse_episode_cost(terms.cost)
    found = read_dataset(path, WantedColumns(length=terms.length, cost=cost.column), within=within, progress=progress)
    cameras = None if found.facts.cameras is None else len(found.facts.cameras)
    costs = cost.of(found.lengths, declared=found.costs, action_dim=found.facts.action_dim, cameras=cameras)
    plan = plan_shards(found.lengths, costs, terms.ranks, equal_episodes=terms.equal_episodes)
    return DatasetPlan(found.ids, found.lengths, plan, terms, found.facts)


def plan_episodes(ids: Ids, lengths: NDArray[np.int64], declared: Costs | None, terms: ShardPlanSpec) -> DatasetPlan:
    """Plan the shards of episodes that came with the request.

    Raises:
        InvalidField: The cost is invalid, or needs a field that the episodes do not have.
    """
    cost = parse_episode_cost(terms.cost)
    costs = cost.of(lengths, declared=declared if cost.column == DECLARED_COLUMN else None)
    return DatasetPlan(
        ids, lengths, plan_shards(lengths, costs, terms.ranks, equal_episodes=terms.equal_episodes), terms
    )


def episodes_of(planned: DatasetPlan) -> Iterator[tuple[list[Any], NDArray[np.int64], Costs]]:
    """Yield the ids, lengths and costs of each shard's episodes, in the order of the dataset, rank after rank."""
    ids = planned.ids
    for members in planned.plan.balanced.shards:
        named = ids[members].tolist() if isinstance(ids, np.ndarray) else [ids[n] for n in members.tolist()]
        yield named, planned.lengths[members], planned.plan.costs[members]


class ShardPlanner:
    """Plans in a thread, one plan at a time, because a plan of a large dataset takes a core and much memory.

    Args:
        datasets_dir: The folder that datasets are read from; None to read no datasets from disk.
    """

    def __init__(self, datasets_dir: Path | None) -> None:
        self._datasets_dir = datasets_dir
        self._thread = ThreadPoolExecutor(1, "shards")

    def dataset(self, path: str, terms: ShardPlanSpec) -> DatasetPlan:
        """Plan a dataset below the folder of datasets. Call this in `in_order`.

        Raises:
            DatasetNotFound: There is no such dataset, or no folder of datasets is set.
        """
        if self._datasets_dir is None:
            raise DatasetNotFound("this service reads no datasets from disk: LACHESIS_DATASETS_DIR is not set")
        return plan_dataset(Path(path), terms, within=self._datasets_dir.resolve())

    async def in_order(self, work: Callable[[], T]) -> T:
        """Do long work in a thread, after the work before it has ended."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
