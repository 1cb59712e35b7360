"""Data-parallel ranks: one batch under one lease, and a shard of it for each rank.

Whichever rank asks first forms the batch and divides it; the division is part of the lease. Every rank gets its own
shard as often as it asks, until it has acknowledged it; the batch ends when all have, or when rank 0 has, as they
agreed. What they do not agree on is refused, by name: two ranks that divide the same batch differently would train on
some sequences twice and on others never.
"""

from dataclasses import dataclass, fields, replace
from enum import StrEnum


class EndedBy(StrEnum):
    """Whose acknowledgement ends a batch that is divided."""

    ALL = "all"
    RANK_0 = "rank_0"


@dataclass(frozen=True, slots=True)
class Undivided:
    """A batch that could not be divided as its ranks asked.

    Attributes:
        group_id: The service's own id of the group that does not fit.
        batch_id: The batch, if it was taken before and waits to be handed out again; None: the next new one.
        detail: What is wrong, as a sentence.
    """

    group_id: str
    batch_id: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class ShardingSpec:
    """How a batch is to be divided; all ranks of a step say the same.

    Attributes:
        world_size: Ranks, ``>= 1``.
        split_groups: Whether the sequences of a group may go to different ranks.
        equal_sequences: Whether each rank must have the same number of sequences (groups are then divided if there is
            no other way); None: where that is possible without.
        cost: What a sequence costs, as `app.core.ranks.costs.CostModel` reads it.
        ended_by: Whose acknowledgement ends the batch.
        micro_batch_tokens: The most tokens in a micro-batch; None: shards are not put into micro-batches.
        padded: Whether a sequence takes as many tokens of its micro-batch as the longest one there.
        equal_micro_batches: Whether all ranks have the same number of micro-batches.
    """

    world_size: int
    split_groups: bool = False
    equal_sequences: bool | None = None
    cost: str = "tokens"
    ended_by: EndedBy = EndedBy.ALL
    micro_batch_tokens: int | None = None
    padded: bool = False
    equal_micro_batches: bool = True

    def wants_equal(self, sequences: int) -> bool:
        """Whether each rank should have the same number of a batch's sequences."""
        return sequences % self.world_size == 0 if self.equal_sequences is None else self.equal_sequences


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly the cost of a batch lies on its ranks.

    Attributes:
        method: The method whose division it is.
        imbalance: Largest load over the mean load, minus 1; 0 is perfect.
        max_over_min: Largest load over the smallest; None if some rank has none.
        contiguous: The imbalance of giving each rank the next sequences in training order.
        strided: The same where they are dealt out in turns.
        bound: No division can have a smaller imbalance than this.
    """

    method: str
    imbalance: float
    max_over_min: float | None
    contiguous: float
    strided: float
    bound: float


@dataclass(frozen=True, slots=True)
class Sharding:
    """A batch as it is divided.

    Attributes:
        spec: What the ranks asked for.
        split_groups: Whether its jobs are sequences; else they are groups.
        equal: Whether each rank has the same number of sequences.
        ranks: The rank of each job, in training order, as `app.core.ranks.division.ranks_text` writes them: every look
            at the run reads its leases, and only who cuts a shard must know.
        balance: How evenly their cost lies on the ranks.
        micro_batches: How many micro-batches each rank has at least; 0: as few as can be.
        taken: Ranks that were handed their shard in this delivery, ascending.
        acknowledged: Ranks that have trained on theirs, ascending.
    """

    spec: ShardingSpec
    split_groups: bool
    equal_sequences: bool
    ranks: str
    balance: Balance
    micro_batches: int = 0
    taken: tuple[int, ...] = ()
    acknowledged: tuple[int, ...] = ()

    @property
    def awaited(self) -> tuple[int, ...]:
        """The ranks whose acknowledgement is still missing, ascending."""
        needed = range(self.spec.world_size) if self.spec.ended_by is EndedBy.ALL else range(1)
        return tuple(rank for rank in needed if rank not in self.acknowledged)


@dataclass(frozen=True, slots=True)
class BalanceHistory:
    """How evenly the batches of a run were divided so far.

    Attributes:
        batches: Batches that were divided.
        imbalance: Sum of their imbalances.
        contiguous: Sum of what they would have been in training order.
        bound: Sum of what they could have been at best.
        world_size: Ranks of the last one.
        last: Of the last one.
    """

    batches: int
    imbalance: float
    contiguous: float
    bound: float
    world_size: int
    last: Balance


def recorded(before: BalanceHistory | None, sharding: Sharding) -> BalanceHistory:
    """Note a batch that was divided."""
    balance, world_size = sharding.balance, sharding.spec.world_size
    if before is None:
        return BalanceHistory(1, balance.imbalance, balance.contiguous, balance.bound, world_size, balance)
    return BalanceHistory(
        before.batches + 1,
        before.imbalance + balance.imbalance,
        before.contiguous + balance.contiguous,
        before.bound + balance.bound,
        world_size,
        balance,
    )


def disagreement(agreed: ShardingSpec, asked: ShardingSpec) -> str | None:
    """Say what a rank wants otherwise than the ranks before it; None if nothing."""
    names = (field.name for field in fields(ShardingSpec))
    different = next((name for name in names if getattr(agreed, name) != getattr(asked, name)), None)
    if different is None:
        return None
    before, now = getattr(agreed, different), getattr(asked, different)
    return f"{different} is {before} for the ranks that have this batch, not {now}"


def taken_by(sharding: Sharding, rank: int) -> Sharding:
    """Note that a rank was handed its shard."""
    return replace(sharding, taken=_with(sharding.taken, rank))


def acknowledged_by(sharding: Sharding, rank: int) -> Sharding:
    """Note that a rank has trained on its shard."""
    return replace(sharding, acknowledged=_with(sharding.acknowledged, rank))


def untouched(sharding: Sharding) -> Sharding:
    """The same division before any rank had its shard: so it is handed out again after its lease ran out."""
    return replace(sharding, taken=(), acknowledged=())


def _with(ranks: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(sorted({*ranks, rank}))
