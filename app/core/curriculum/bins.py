"""Divide items into bins by rank of mean reward. Bin 0 is the easiest; sizes differ by at most one."""

from collections import Counter
from collections.abc import Sequence

from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent


def bin_of(rank: int, seen: int, n_bins: int) -> int:
    """Return the bin of a rank.

    Args:
        rank: From 0, the least mean reward first, as in `ItemIndex.MEAN_REWARD`.
        seen: Items in `ItemIndex.MEAN_REWARD` (with priors included), above ``rank``.
        n_bins: How many bins there are.
    """
    return ((seen - rank) * n_bins - 1) // seen


def ranks_of(bin_: int, seen: int, n_bins: int) -> range:
    """Return the ranks of a bin. A bin may be empty if there are fewer items than bins."""
    return range(seen - (bin_ + 1) * seen // n_bins, seen - bin_ * seen // n_bins)


def middle(n_bins: int) -> int:
    """Return the bin of items that are not seen and have no prior."""
    return n_bins // 2


def bin_sizes(counts: ItemCounts, n_bins: int) -> list[int]:
    """Return how many items each bin has."""
    sizes = [len(ranks_of(each, counts.length(ItemIndex.MEAN_REWARD), n_bins)) for each in range(n_bins)]
    sizes[middle(n_bins)] += counts.length(ItemIndex.UNSEEN)
    return sizes


def bin_distribution(
    parts: Sequence[MixtureComponent], counts: ItemCounts, n_bins: int, looked_up: Sequence[int] = ()
) -> list[float]:
    """Return each bin's probability under a distribution: for ``bins_only``, and to compare strategies.

    The result is exact for items in MEAN_REWARD and UNSEEN. The bins of places in other indexes are known only after a
    look-up. Their probability is divided between bins in the proportions of ``looked_up``.

    Args:
        parts: The distribution.
        counts: The counts that the distribution was made from.
        n_bins: How many bins there are.
        looked_up: Bins of items drawn from the parts in other indexes (`in_other_indexes`), in any number, by
            `sampling.independent`. Draws without replacement would be biased.

    Raises:
        ValueError: There are such parts, and ``looked_up`` is empty.
    """
    distribution, ranked = [0.0] * n_bins, counts.length(ItemIndex.MEAN_REWARD)
    for part in parts:
        if part.index is ItemIndex.UNSEEN:
            distribution[middle(n_bins)] += part.probability
        elif part.index is ItemIndex.MEAN_REWARD:
            own = range(part.first, part.first + part.size)
            for each in range(bin_of(own[-1], ranked, n_bins), bin_of(own[0], ranked, n_bins) + 1):
                ranks = ranks_of(each, ranked, n_bins)
                shared = min(own.stop, ranks.stop) - max(own.start, ranks.start)
                distribution[each] += part.probability * shared / part.size
    if others := in_other_indexes(parts):
        if not looked_up:
            raise ValueError("which bins these items belong to must be looked up")
        elsewhere = sum(part.probability for part in others)
        for each, times in Counter(looked_up).items():
            distribution[each] += elsewhere * times / len(looked_up)
    return distribution


def in_other_indexes(parts: Sequence[MixtureComponent]) -> tuple[MixtureComponent, ...]:
    """Return the parts of a distribution whose items must be looked up to know their bins."""
    return tuple(part for part in parts if part.index not in (ItemIndex.MEAN_REWARD, ItemIndex.UNSEEN))


def bin_at(rank: int, ranked: int, n_bins: int) -> int:
    """Return the bin of an item by its rank of mean reward.

    An item without observations and prior has rank -1 and belongs to the middle bin. The rank may exceed ``ranked``,
    because items may have come after the count.
    """
    return middle(n_bins) if rank < 0 else bin_of(rank, max(ranked, rank + 1), n_bins)
