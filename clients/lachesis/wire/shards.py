"""Balanced shards of a dataset of episodes, as they are asked for and answered under ``/v1/shards``."""

from typing import Annotated

from pydantic import BaseModel, Field

from lachesis.wire.body import MAX_INTEGER, Body

MAX_SHARDS = 100_000
MAX_LENGTH = 2**36
"""Longest episode. A sum of as many lengths as a dataset may have is still exact."""

Length = Annotated[int, Field(ge=0, le=MAX_LENGTH, strict=True, description="Frames or tokens.")]
Cost = Annotated[float, Field(ge=0, description="Cost of training on the episode, in any unit.")]
EpisodeId = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER, strict=True)] | Annotated[str, Field(max_length=1024)]


class InlineEpisode(Body):
    """One episode of a request."""

    length: Length
    episode: EpisodeId | None = Field(
        None, description="Its id. Give all episodes an id, or none. Without ids, the service numbers episodes from 0."
    )
    cost: Cost | None = Field(None, description="Its cost, for `declared`. `declared` needs a cost for every episode.")


class ShardPlanRequest(Body):
    """A request for dataset shards. It has `lengths`, `episodes` or the `path` of a dataset on the service's disk."""

    ranks: int = Field(ge=1, le=MAX_SHARDS, strict=True, description="Number of ranks.", examples=[8])
    lengths: list[Length] | None = Field(
        None,
        min_length=1,
        description="Lengths of the episodes. The service numbers episodes from 0.",
        examples=[[310, 95, 240]],
    )
    episodes: list[InlineEpisode] | None = Field(
        None, min_length=1, description="Episodes with ids or costs.", examples=[[{"episode": "a", "length": 310}]]
    )
    path: str | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="A dataset below `LACHESIS_DATASETS_DIR`: LeRobot 2.x or 3.0, JSON lines, Parquet, safetensors.",
        examples=["pusht"],
    )
    length: str | None = Field(
        None,
        max_length=1024,
        description="With `path`: the column of lengths (default `length`), or a tensor whose length is the episode's.",
        examples=["length"],
    )
    cost: str = Field(
        "tokens",
        max_length=1024,
        description="What an episode of length L costs. `tokens` means L. A sum is written like `24576*L + L^2`, or "
        "like `linear=24576,quadratic=1`. `frames*action_dim*cameras` is for LeRobot datasets. `column:NAME` is a "
        "column of the dataset, and `declared` is short for `column:cost`.",
        examples=["24576*L + L^2"],
    )
    equal_episodes: bool = Field(
        False,
        strict=True,
        description="Whether every rank gets the same number of episodes, if possible.",
        examples=[False],
    )
    list_episodes: bool = Field(
        True, strict=True, description="Whether the reply lists the episodes of each shard.", examples=[True]
    )


class LengthsInfo(BaseModel):
    """The lengths of episodes."""

    episodes: int
    total: int = Field(description="The sum of all lengths.")
    shortest: int
    longest: int
    mean: float
    variation: float = Field(description="Standard deviation divided by the mean.")
    percentiles: dict[str, float] = Field(description="Lengths by percentile.")


class DatasetInfo(BaseModel):
    """Facts about a dataset. Null stands for unknown facts."""

    layout: str = Field(description="`LeRobot v2.1`, `Parquet`, …")
    files: int = Field(description="Files that were read.")
    fps: float | None = None
    action_dim: int | None = Field(None, description="Numbers in one action.")
    cameras: list[str] | None = None
    robot: str | None = None
    tasks: dict[str, int] | None = Field(None, description="Episodes by task, the most frequent task first.")


class ImbalanceInfo(BaseModel):
    """How unequal the loads of ranks are."""

    max_over_mean: float = Field(
        description="Largest load divided by the mean load, minus 1: the extra time of a pass."
    )
    max_over_min: float | None = Field(
        description="Largest load divided by the smallest. Null if the smallest load is 0."
    )


class PlannedShard(BaseModel):
    """The dataset shard of a rank."""

    rank: int
    count: int = Field(description="Number of episodes.")
    length: int = Field(description="Sum of the lengths of these episodes.")
    cost: float = Field(description="Sum of the costs of these episodes.")
    load: float = Field(description="Cost of the shard divided by the mean cost of a shard.")
    episodes: Annotated[
        list[int | str] | None,
        Field(description="Ids of these episodes, in the order of the dataset. Null without `list_episodes`."),
    ] = None


class ShardPlanInfo(BaseModel):
    """Dataset shards, and how evenly they are balanced."""

    dataset: DatasetInfo | None = None
    lengths: LengthsInfo
    cost: str = Field(description="The cost in the request.")
    ranks: int
    equal_episodes: bool = Field(description="Whether every rank has the same number of episodes, as requested.")
    method: str = Field(description="The method that found the shards.")
    imbalance: ImbalanceInfo = Field(description="The imbalance of these shards.")
    contiguous: ImbalanceInfo = Field(
        description="The imbalance of contiguous shards: the first episodes to rank 0, and so on."
    )
    strided: ImbalanceInfo = Field(
        description="The imbalance of strided shards: episode i to rank i modulo the number of ranks."
    )
    bound: ImbalanceInfo = Field(description="A lower bound of the imbalance of any shards for this request.")
    pass_time: float = Field(description="Estimated time of a pass. 1 is a pass without waiting ranks.")
    contiguous_pass_time: float = Field(description="Estimated time of a pass over contiguous shards.")
    speed_up: float = Field(description="`contiguous_pass_time` divided by `pass_time`.")
    shards: list[PlannedShard]
