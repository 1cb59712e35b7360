"""Divide one batch under one lease between data-parallel ranks: a shard for each rank.

The rank that asks first forms the batch and divides it. The division is part of the lease. Every rank gets its own
shard each time it asks, until it acknowledges it. The batch ends when all ranks have acknowledged it, or when rank 0
has if they agreed on that. A rank that asks for another division is refused, and the error names the setting that
differs. Two ranks that divide the same batch differently would train on some sequences twice and on others never.
"""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from app.core.ranks.balancing import Balanced, balance
from app.core.ranks.costs import CostModel, Measure, weigh
from app.core.ranks.micro_batches import most_needed
from lachesis.wire.errors import InvalidField


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
    """The division of a batch that ranks ask for. All ranks of a step ask for the same one.

    Attributes:
        world_size: Ranks, ``>= 1``.
        split_groups: Whether the sequences of a group may go to different ranks.
        equal_sequences: Whether each rank must have the same number of sequences. Groups are then divided if there is
            no other way. None: equal if that is possible without dividing groups.
        cost: The cost of a sequence, as `app.core.ranks.costs.CostModel` reads it.
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
        """Return whether each rank should have the same number of a batch's sequences."""
        return sequences % self.world_size == 0 if self.equal_sequences is None else self.equal_sequences


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of a batch's cost over its ranks.

    Attributes:
        method: The method whose division it is.
        imbalance: Largest load over the mean load, minus 1; 0 is perfect.
        max_over_min: Largest load over the smallest; None if some rank has none.
        contiguous: The imbalance if each rank got the next jobs in training order.
        strided: The imbalance if the ranks took jobs in turns.
        bound: A lower bound of the imbalance of divisions of the same jobs, of equal numbers where those are kept.
    """

    method: str
    imbalance: float
    max_over_min: float | None
    contiguous: float
    strided: float
    bound: float


@dataclass(frozen=True, slots=True)
class Sharding:
    """The division of a batch between ranks.

    Attributes:
        spec: What the ranks asked for.
        split_groups: Whether its jobs are sequences; else they are groups.
        equal_sequences: Whether each rank has the same number of sequences.
        ranks: The rank of each job, in training order, as text of `app.core.ranks.sharding.ranks_text`. Every read of
            the run reads its leases, and only the code that cuts a shard decodes the text.
        balance: How evenly the cost is divided between ranks.
        micro_batches: The least number of micro-batches of each rank; 0: as few as possible.
        taken: Ranks that were handed their shard in this delivery, ascending.
        acknowledged: Ranks that have trained on theirs, ascending.
        requests: The requests of ranks that got their shard although they had a later one: rank, id of the request.
        loads: The cost of each rank's shard. Only the process that divided the batch knows it: leases do not have it.
    """

    spec: ShardingSpec
    split_groups: bool
    equal_sequences: bool
    ranks: str
    balance: Balance
    micro_batches: int = 0
    taken: tuple[int, ...] = ()
    acknowledged: tuple[int, ...] = ()
    requests: tuple[tuple[int, str], ...] = ()
    loads: tuple[float, ...] = field(default=(), compare=False)

    @property
    def awaited(self) -> tuple[int, ...]:
        """The ranks whose acknowledgement is still missing, ascending."""
        needed = range(self.spec.world_size) if self.spec.ended_by is EndedBy.ALL else range(1)
        acknowledged = frozenset(self.acknowledged)  # a tuple would be searched for each of thousands of ranks
        return tuple(rank for rank in needed if rank not in acknowledged)


@dataclass(frozen=True, slots=True)
class BalanceHistory:
    """The balance of all divided batches of a run so far.

    Attributes:
        batches: Batches that were divided.
        imbalance: Sum of their imbalances.
        contiguous: Sum of the imbalances that contiguous shards in training order would have.
        bound: Sum of the lower bounds of their imbalances.
        world_size: Ranks of the last divided batch.
        last: The balance of the last divided batch.
    """

    batches: int
    imbalance: float
    contiguous: float
    bound: float
    world_size: int
    last: Balance


def recorded(before: BalanceHistory | None, sharding: Sharding) -> BalanceHistory:
    """Return the history after one more divided batch."""
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
    """Return how a rank's request differs from that of the ranks before it; None if it does not."""
    names = (field.name for field in fields(ShardingSpec))
    different = next((name for name in names if getattr(agreed, name) != getattr(asked, name)), None)
    if different is None:
        return None
    before, now = getattr(agreed, different), getattr(asked, different)
    return f"{different} is {before} for the ranks that have this batch, not {now}"


def taken_by(sharding: Sharding, rank: int, request_id: str = "") -> Sharding:
    """Return the sharding after a rank was handed its shard, with the id of its request if that is remembered."""
    requests = [one for one in sharding.requests if one[0] != rank]
    requests += [(rank, request_id)] if request_id else []
    return replace(sharding, taken=_with(sharding.taken, rank), requests=tuple(requests))


def acknowledged_by(sharding: Sharding, rank: int) -> Sharding:
    """Return the sharding after a rank has trained on its shard."""
    return replace(sharding, acknowledged=_with(sharding.acknowledged, rank))


def untouched(sharding: Sharding) -> Sharding:
    """Return the same division before any rank had its shard, to hand it out again."""
    return replace(sharding, taken=(), acknowledged=(), requests=())


def _with(ranks: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(sorted({*ranks, rank}))


_RANK = np.dtype("<u2")


def divide(lengths: Sequence[NDArray[np.integer]], declared: Sequence[float | None], spec: ShardingSpec) -> Sharding:
    """Divide a batch.

    Groups stay whole unless they may be divided, or must be divided. They must be if each rank should have the same
    number of sequences and no division into whole groups gives that.

    Args:
        lengths: Of each group, in training order, the tokens of each sequence, ``>= 1``.
        declared: The cost that each group's producer declared, ``>= 0``, or None.
        spec: What the ranks agreed on.

    Raises:
        InvalidField: The cost model cannot be read, or a cost cannot be computed.
    """
    try:
        costs = _costs(lengths, declared, spec.cost)
    except InvalidField as error:
        raise InvalidField(error.message, ("cost",)) from None
    sizes = [len(group) for group in lengths]
    equal = spec.wants_equal(sum(sizes))
    if not spec.split_groups:
        starts = np.cumsum([0, *sizes[:-1]])
        whole = balance(np.add.reduceat(costs, starts), spec.world_size, equal=equal, sizes=sizes)
        if whole.equal or not spec.equal_sequences:
            return _sharding(whole, spec, lengths, split_groups=False)
    return _sharding(balance(costs, spec.world_size, equal=equal), spec, lengths, split_groups=True)


def sequences_of(sizes: Sequence[int], sharding: Sharding, rank: int) -> dict[int, tuple[int, ...]]:
    """Return the sequences of a rank.

    Args:
        sizes: Sequences in each group of the batch, in training order.
        sharding: How the batch is divided.
        rank: The rank.

    Returns:
        The positions of its sequences in each group, by the position of the group in the batch. Both are ascending.
        Groups without a sequence of the rank are left out.
    """
    mine = np.flatnonzero(read_ranks(sharding.ranks) == rank)
    if not sharding.split_groups:
        return {position: tuple(range(sizes[position])) for position in mine.tolist()}
    if not len(mine):
        return {}
    ends = np.cumsum(sizes)
    groups = np.searchsorted(ends, mine, side="right")
    sequences = mine - (ends - sizes)[groups]
    positions, firsts = np.unique(groups, return_index=True)
    parts = np.split(sequences, firsts[1:])
    return {position: tuple(part.tolist()) for position, part in zip(positions.tolist(), parts, strict=True)}


def ranks_text(ranks: NDArray[np.integer]) -> str:
    """Encode the rank of each job: two bytes each, compressed. Equal ranks may give different text: store the text."""
    return base64.b64encode(zlib.compress(ranks.astype(_RANK).tobytes())).decode()


def read_ranks(text: str) -> NDArray[np.uint16]:
    """Decode the text of `ranks_text` into ranks of shape [jobs]."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), _RANK)


def _costs(lengths: Sequence[NDArray[np.integer]], declared: Sequence[float | None], cost: str) -> NDArray[np.float64]:
    """Return the cost of each sequence, of shape [sequences].

    The declared cost of a group is divided between its sequences by their tokens. A group without a declared cost has
    the mean cost of the others.
    """
    model, tokens = CostModel.parse(cost), np.concatenate(lengths)
    if model.measure is not Measure.DECLARED:
        return model.costs(tokens)
    of_groups = model.of_groups([weigh(group, each) for group, each in zip(lengths, declared, strict=True)])
    shares = [group / group.sum() * each for group, each in zip(lengths, of_groups, strict=True)]
    return model.costs(tokens, declared=np.concatenate(shares))


def _most_micro_batches(lengths: Sequence[NDArray[np.integer]], owners: NDArray[np.int64], spec: ShardingSpec) -> int:
    """Return the number of micro-batches of every rank if all must have the same number, else 0."""
    if spec.micro_batch_tokens is None or not spec.equal_micro_batches:
        return 0
    by_rank = [np.flatnonzero(owners == rank) for rank in range(spec.world_size)]
    return most_needed(np.concatenate(lengths), by_rank, spec.micro_batch_tokens, padded=spec.padded)


def _sharding(
    balanced: Balanced, spec: ShardingSpec, lengths: Sequence[NDArray[np.integer]], *, split_groups: bool
) -> Sharding:
    owners = balanced.rank_of if split_groups else np.repeat(balanced.rank_of, [len(group) for group in lengths])
    report = Balance(
        method=balanced.method.value,
        imbalance=balanced.imbalance.max_over_mean,
        max_over_min=balanced.imbalance.max_over_min,
        contiguous=balanced.contiguous.max_over_mean,
        strided=balanced.strided.max_over_mean,
        bound=balanced.bound.max_over_mean,
    )
    number = _most_micro_batches(lengths, owners, spec)
    ranks = ranks_text(balanced.rank_of)
    return Sharding(spec, split_groups, balanced.equal, ranks, report, number, loads=tuple(map(float, balanced.loads)))
