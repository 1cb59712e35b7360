"""Batches that are divided between the data-parallel ranks of a trainer."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lachesis.wire.body import MAX_INTEGER, MAX_WAIT_S

MAX_RANKS = 4096
MAX_COST_CHARACTERS = 200

RankNumber = Annotated[int, Field(ge=0, lt=MAX_RANKS, description="A data-parallel rank, 0-based.")]


class TakeQuery(BaseModel):
    """The query of `POST …/batches`: how long to wait and, for a trainer of several ranks, which shard to return."""

    model_config = ConfigDict(extra="forbid")

    wait_s: float = Field(default=0.0, ge=0, le=MAX_WAIT_S, description="How long to wait for a batch, seconds.")
    rank: RankNumber | None = Field(default=None, description="The rank that asks: it gets its shard of the batch.")
    world_size: int | None = Field(default=None, ge=1, le=MAX_RANKS, description="How many ranks there are.")
    after: int | None = Field(
        default=None,
        ge=-MAX_INTEGER,
        le=MAX_INTEGER,
        description="Step of the last batch that this rank holds. It gets the next one. Without `after`, it gets the "
        "oldest batch that it has not acknowledged.",
    )
    step: int | None = Field(
        default=None,
        ge=-MAX_INTEGER,
        le=MAX_INTEGER,
        description="The step of this rank. 409 if the batch that it would get has another step.",
    )
    split_groups: bool = Field(
        default=False, description="Whether the sequences of a group may go to different ranks; else groups stay whole."
    )
    equal_sequences: bool | None = Field(
        default=None,
        description="`true`: each rank gets the same number of sequences; groups are split if that is necessary. "
        "`false`: only the cost counts. Without it: the same number, if whole groups allow that.",
    )
    cost: str = Field(
        default="tokens",
        max_length=MAX_COST_CHARACTERS,
        description="What a sequence costs: `tokens`; a sum like `24576*L + L^2`; or `declared`, what "
        "its group's producer said.",
    )
    ended_by: Literal["all", "rank_0"] = Field(
        default="all", description="Whether the batch ends when every rank has acknowledged it, or when rank 0 has."
    )
    micro_batch_tokens: int | None = Field(
        default=None, ge=1, le=2**40, description="Put each shard into micro-batches of at most so many tokens."
    )
    padded: bool = Field(
        default=False,
        description="Whether each sequence of a micro-batch counts as many tokens as the longest one in it (padded "
        "rows). Otherwise it counts its own tokens (sequences end to end).",
    )
    equal_micro_batches: bool = Field(
        default=True, description="Whether all ranks have the same number of micro-batches; some may be empty then."
    )

    @model_validator(mode="after")
    def _of_a_rank(self) -> "TakeQuery":
        if (self.rank is None) != (self.world_size is None):
            raise ValueError("rank and world_size go together")
        if self.rank is not None and self.world_size is not None and self.rank >= self.world_size:
            raise ValueError(f"rank {self.rank} of a world of {self.world_size}: ranks are 0 to {self.world_size - 1}")
        of_ranks = self.model_fields_set - {"wait_s", "rank", "world_size"}
        if self.rank is None and of_ranks:
            raise ValueError(f"{', '.join(sorted(of_ranks))}: only with rank and world_size")
        of_packing = self.model_fields_set & {"padded", "equal_micro_batches"}
        if self.micro_batch_tokens is None and of_packing:
            raise ValueError(f"{', '.join(sorted(of_packing))}: only with micro_batch_tokens")
        return self


class BalanceInfo(BaseModel):
    """How evenly the cost of a batch lies on its ranks. An imbalance is the largest load over the mean, minus 1."""

    method: str = Field(description="The method that divided the batch.")
    imbalance: float = Field(description="The imbalance of this division; 0 is perfect.")
    max_over_min: float | None = Field(description="Largest load over the smallest; null if a rank has none.")
    contiguous: float = Field(description="The imbalance if each rank got the next sequences in training order.")
    strided: float = Field(description="The imbalance if ranks took sequences in turns.")
    bound: float = Field(description="No division can have a smaller imbalance than this.")


class PackingInfo(BaseModel):
    """The micro-batches of a shard. Waste is a share of tokens, 0 to 1."""

    micro_batches: list[list[int]] = Field(
        description="The sequences of each, as positions in the shard, ascending. Empty micro-batches come last."
    )
    method: str = Field(description="The method that formed them.")
    bound: int = Field(description="The fewest micro-batches that this shard can have.")
    waste: float = Field(description="Share of their capacity in tokens that stays empty.")
    waste_of_bound: float = Field(description="The same with as many micro-batches as `bound`.")
    waste_of_rows: float = Field(description="Share of padding if all sequences are rows as long as the longest.")


class ShardInfo(BaseModel):
    """The part of a batch that a rank gets."""

    rank: int = Field(description="The rank.")
    world_size: int = Field(description="How many ranks there are.")
    size: int = Field(description="Sequences of this shard.")
    split_groups: bool = Field(description="Whether groups are divided. If not, each is on one rank.")
    equal_sequences: bool = Field(description="Whether each rank has the same number of sequences.")
    ended_by: Literal["all", "rank_0"] = Field(description="Whether all ranks end the batch, or rank 0 does.")
    balance: BalanceInfo = Field(description="The balance of the whole batch.")
    packing: PackingInfo | None = Field(default=None, description="Its micro-batches, if the rank asked for them.")
