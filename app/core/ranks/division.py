"""How a batch is divided between ranks: what balances their cost best, within what they agreed on."""

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.core.errors import InvalidField
from app.core.ranks.balancing import Balanced, balance
from app.core.ranks.costs import CostModel, Measure, weigh
from app.core.ranks.micro_batches import most_needed
from app.core.ranks.sharding import Balance, Sharding, ShardingSpec

_RANK = np.dtype("<u2")


def divide(lengths: Sequence[NDArray[np.integer]], declared: Sequence[float | None], spec: ShardingSpec) -> Sharding:
    """Divide a batch.

    Groups stay whole, unless they may be divided or must be: because each rank is to have the same number of sequences
    and whole groups were not found to give that.

    Args:
        lengths: Of each group, in training order, the tokens of each sequence, ``>= 1``.
        declared: What each group's producer said it costs, ``>= 0``, or None.
        spec: What the ranks agreed on.

    Raises:
        InvalidField: The cost is none that can be reckoned.
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
    """Return which sequences a rank has.

    Args:
        sizes: Sequences in each group of the batch, in training order.
        sharding: How the batch is divided.
        rank: The rank.

    Returns:
        By position of a group in the batch, the positions of its sequences in the group; both ascending, and groups
        without any left out.
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
    """Write down the rank of each job: two bytes each, compressed. Not always in the same letters: keep them."""
    return base64.b64encode(zlib.compress(ranks.astype(_RANK).tobytes())).decode()


def read_ranks(text: str) -> NDArray[np.uint16]:
    """Invert `ranks_text`: [jobs]."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), _RANK)


def _costs(lengths: Sequence[NDArray[np.integer]], declared: Sequence[float | None], cost: str) -> NDArray[np.float64]:
    """What each sequence costs: [sequences].

    What a producer says of a group lies on its sequences by their tokens; a group of which nothing is said counts as
    the mean of the others.
    """
    model, tokens = CostModel.parse(cost), np.concatenate(lengths)
    if model.measure is not Measure.DECLARED:
        return model.costs(tokens)
    of_groups = model.of_groups([weigh(group, each) for group, each in zip(lengths, declared, strict=True)])
    shares = [group / group.sum() * each for group, each in zip(lengths, of_groups, strict=True)]
    return model.costs(tokens, declared=np.concatenate(shares))


def _most_micro_batches(lengths: Sequence[NDArray[np.integer]], owners: NDArray[np.int64], spec: ShardingSpec) -> int:
    """How many micro-batches every rank has, if all are to have the same number; else 0."""
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
    return Sharding(spec, split_groups, balanced.equal, ranks_text(balanced.rank_of), report, number)
