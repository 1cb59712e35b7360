"""Batches that are divided between the data-parallel ranks of a trainer."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.limits import MAX_WAIT_S

MAX_RANKS = 4096
MAX_COST_CHARACTERS = 200

RankNumber = Annotated[int, Field(ge=0, lt=MAX_RANKS, description="A data-parallel rank, 0-based.")]


class TakeQuery(BaseModel):
    """The query of `POST …/batches`: how long to wait and, for a trainer of several ranks, which shard to return."""

    model_config = ConfigDict(extra="forbid")

    wait_s: float = Field(default=0.0, ge=0, le=MAX_WAIT_S, description="Maximum time to wait for a batch, seconds.")
    rank: RankNumber | None = Field(default=None, description="The rank that asks. It gets its shard of the batch.")
    world_size: int | None = Field(default=None, ge=1, le=MAX_RANKS, description="Number of ranks.")
    after: int | None = Field(
        default=None,
        ge=-MAX_INTEGER,
        le=MAX_INTEGER,
        description="Step of the last batch that this rank holds. The rank gets the batch after it. An earlier batch "
        "that was handed out again to other ranks comes first. Without `after`, the rank gets the oldest batch that it "
        "has not acknowledged. With several ranks, the request fails (`step_mismatch`) if the run has not come to this "
        "step: it was created again, or restored.",
    )
    step: int | None = Field(
        default=None,
        ge=-MAX_INTEGER,
        le=MAX_INTEGER,
        description="The step of this rank. If the next batch of the rank has another step, the request fails "
        "(`step_mismatch`).",
    )
    split_groups: bool = Field(
        default=False,
        description="Whether the sequences of a group may go to different ranks. With `false`, groups stay whole.",
    )
    equal_sequences: bool | None = Field(
        default=None,
        description="`true`: each rank gets the same number of sequences. The service splits groups if necessary. "
        "`false`: ranks get equal costs, with any number of sequences. Null means the same number of sequences if "
        "whole groups make it possible.",
    )
    cost: str = Field(
        default="tokens",
        max_length=MAX_COST_CHARACTERS,
        description="What a sequence of length L costs: `tokens` (L); a sum like `24576*L + L^2`; or `declared`, the "
        "`cost` of its group.",
    )
    ended_by: Literal["all", "rank_0"] = Field(
        default="all", description="Which acknowledgements end the batch: those of all ranks, or the one of rank 0."
    )
    micro_batch_tokens: int | None = Field(
        default=None,
        ge=1,
        le=2**40,
        description="Maximum number of tokens in a micro-batch. The shard then comes with micro-batches.",
    )
    padded: bool = Field(
        default=False,
        description="Whether the sequences of a micro-batch are rows, padded to the longest sequence. Each sequence "
        "then counts as many tokens as the longest sequence. With `false`, sequences are end to end, and each counts "
        "its own tokens.",
    )
    equal_micro_batches: bool = Field(
        default=True,
        description="Whether all ranks get the same number of micro-batches. Some micro-batches may be empty then.",
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
    """How evenly the cost of a batch is divided between ranks. An imbalance is max / mean - 1 of the loads of ranks."""

    method: str = Field(description="The method that divided the batch.")
    imbalance: float = Field(description="The imbalance of this division. 0 means equal loads.")
    max_over_min: float | None = Field(
        description="Largest load divided by the smallest. Null if the smallest load is 0."
    )
    contiguous: float = Field(description="The imbalance if each rank got consecutive sequences in training order.")
    strided: float = Field(description="The imbalance if ranks took sequences in turns.")
    bound: float = Field(
        description="A lower bound of the imbalance of any division of the same kind: with whole or split groups, and "
        "with equal or free numbers."
    )


class PackingInfo(BaseModel):
    """The micro-batches of a shard. A waste is a share of tokens, 0 to 1."""

    micro_batches: list[list[int]] = Field(
        description="The sequences of each micro-batch, as ascending positions in the shard. Empty micro-batches come "
        "last."
    )
    method: str = Field(description="The method that formed them.")
    bound: int = Field(description="A lower bound of the number of micro-batches of this shard.")
    waste: float = Field(description="Share of the token capacity of the micro-batches that stays empty.")
    waste_of_bound: float = Field(description="The waste with as many micro-batches as `bound`.")
    waste_of_rows: float = Field(
        description="Share of padding if all sequences are rows, padded to the longest sequence."
    )


class ShardInfo(BaseModel):
    """The part of a batch that a rank gets."""

    rank: int = Field(description="The rank.")
    world_size: int = Field(description="Number of ranks.")
    size: int = Field(description="Sequences of this shard.")
    split_groups: bool = Field(
        description="Whether groups may be divided between ranks. With `false`, each group is on one rank."
    )
    equal_sequences: bool = Field(description="Whether each rank has the same number of sequences.")
    ended_by: Literal["all", "rank_0"] = Field(
        description="Which acknowledgements end the batch: those of all ranks, or the one of rank 0."
    )
    balance: BalanceInfo = Field(description="The balance of the whole batch.")
    packing: PackingInfo | None = Field(
        default=None, description="The micro-batches of the shard, if the rank asked for them."
    )
