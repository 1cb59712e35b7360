"""Balanced shards of a dataset of episodes, as they are asked for and answered under ``/v1/shards``."""

from typing import Annotated

from pydantic import BaseModel, Field

from lachesis.wire.body import MAX_INTEGER, Body

MAX_SHARDS = 100_000
MAX_LENGTH = 2**36

Length = Annotated[int, Field(ge=0, le=MAX_LENGTH, strict=True, description="Frames or tokens.")]
Cost = Annotated[float, Field(ge=0, description="What it costs to train on, in any unit.")]
EpisodeId = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER, strict=True)] | Annotated[str, Field(max_length=1024)]


class InlineEpisode(Body):
    """One episode of a request."""

    length: Length
    episode: EpisodeId | None = Field(
        None, description="Its id. Either all episodes have one or none; without ids they are numbered from 0."
    )
    cost: Cost | None = Field(None, description="Its cost, for `declared`. Then every episode must have one.")


class ShardPlanRequest(Body):
    """A request for shards. It contains lengths or episodes, or names a dataset on the disk of the service."""

    ranks: int = Field(ge=1, le=MAX_SHARDS, strict=True, description="How many ranks there are.", examples=[8])
    lengths: list[Length] | None = Field(
        None, min_length=1, description="The lengths of episodes, numbered from 0.", examples=[[310, 95, 240]]
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
        description="With `path`: the column of lengths (default `length`), or the tensor as long as the episode.",
        examples=["length"],
    )
    cost: str = Field(
        "tokens",
        max_length=1024,
        description="What an episode of length L costs: `tokens` (L); a sum like `24576*L + L^2`, or "
        "`linear=24576,quadratic=1`; `frames*action_dim*cameras`, of a LeRobot dataset; `column:NAME`, what a producer "
        "wrote; `declared`, short for `column:cost`.",
        examples=["24576*L + L^2"],
    )
    equal_episodes: bool = Field(
        False,
        strict=True,
        description="Give every rank equally many episodes, if their number allows it.",
        examples=[False],
    )
    list_episodes: bool = Field(
        True, strict=True, description="Name the episodes of each shard in the answer.", examples=[True]
    )


class LengthsInfo(BaseModel):
    """How long episodes are."""

    episodes: int
    total: int = Field(description="The sum of all lengths.")
    shortest: int
    longest: int
    mean: float
    variation: float = Field(description="Standard deviation over mean.")
    percentiles: dict[str, float] = Field(description="Length that so many per cent of the episodes do not exceed.")


class DatasetInfo(BaseModel):
    """Facts that a dataset contains; null if it does not contain one."""

    layout: str = Field(description="`LeRobot v2.1`, `Parquet`, …")
    files: int = Field(description="Files that were read.")
    fps: float | None = None
    action_dim: int | None = Field(None, description="Numbers in one action.")
    cameras: list[str] | None = None
    robot: str | None = None
    tasks: dict[str, int] | None = Field(None, description="Episodes by task, the most frequent task first.")


class ImbalanceInfo(BaseModel):
    """How unequal the loads of ranks are."""

    max_over_mean: float = Field(description="Largest load over mean load, minus 1: by how much a pass takes longer.")
    max_over_min: float | None = Field(description="Largest load over smallest; null if some rank has none.")


class PlannedShard(BaseModel):
    """What one rank gets."""

    rank: int
    count: int = Field(description="Episodes.")
    length: int = Field(description="The sum of their lengths.")
    cost: float = Field(description="The sum of their costs.")
    load: float = Field(description="Its cost over the mean cost of a shard.")
    episodes: Annotated[
        list[int | str] | None, Field(description="Their ids, in the order of the dataset; null if not asked for.")
    ] = None


class ShardPlanInfo(BaseModel):
    """Shards of a dataset, and how well they are balanced."""

    dataset: DatasetInfo | None = None
    lengths: LengthsInfo
    cost: str = Field(description="The cost of the request.")
    ranks: int
    equal_episodes: bool = Field(description="Whether every rank has equally many episodes because that was asked for.")
    method: str = Field(description="The method that found the shards.")
    imbalance: ImbalanceInfo = Field(description="The imbalance of these shards.")
    contiguous: ImbalanceInfo = Field(
        description="The imbalance of contiguous shards: the first episodes to rank 0, and so on."
    )
    strided: ImbalanceInfo = Field(
        description="The imbalance of strided shards: episode i to rank i modulo the number of ranks."
    )
    bound: ImbalanceInfo = Field(description="A bound: no shards for the same request can have a smaller imbalance.")
    pass_time: float = Field(description="Estimated time of a pass, in units of one in which no rank ever waits.")
    contiguous_pass_time: float = Field(description="The same over contiguous shards.")
    speed_up: float = Field(description="How many times faster a pass is than over contiguous shards.")
    shards: list[PlannedShard]
