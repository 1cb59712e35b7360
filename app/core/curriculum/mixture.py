"""Turn logarithms of weights into probabilities, and these into components of a mixture over indexes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from app.core.curriculum.bins import bin_sizes, middle, ranks_of
from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent


def tempered(log_weights: ArrayLike, temperature: float, sizes: ArrayLike = 1) -> list[float]:
    """Return probabilities in proportion to ``size * exp(log_weight / temperature)``.

    Nothing overflows; what underflows is 0. Where all are 0, so is what is returned.

    Args:
        log_weights: Finite, or ``-inf`` for what is impossible.
        temperature: Above 0.
        sizes: What each stands for: ``>= 0``; of a size 0, the probability is 0.
    """
    logs, counts = np.broadcast_arrays(np.asarray(log_weights, np.float64), np.asarray(sizes, np.float64))
    possible = (counts > 0) & (logs > -np.inf)
    if not possible.any():
        return [0.0] * len(logs)
    scaled = (logs - logs[possible].max()) / temperature + np.log(np.where(possible, counts, 1.0))
    weights = np.where(possible, np.exp(scaled - scaled[possible].max()), 0.0)
    distribution: list[float] = (weights / weights.sum()).tolist()
    return distribution


def kept(parts: Sequence[MixtureComponent]) -> tuple[MixtureComponent, ...]:
    """Leave out what has no place or no probability."""
    return tuple(part for part in parts if part.size and part.probability)


def over_bins(
    log_weights: Sequence[float], temperature: float, counts: ItemCounts, why: Sequence[str]
) -> tuple[MixtureComponent, ...]:
    """Return the mixture of bins by their weights, with uniform items within a bin. Empty bins are left out.

    Args:
        log_weights: One for each bin.
        temperature: What they are divided by.
        counts: The items.
        why: One for each bin.
    """
    n_bins, ranked, unseen = len(log_weights), counts.length(ItemIndex.MEAN_REWARD), counts.length(ItemIndex.UNSEEN)
    ranks, sizes = [ranks_of(each, ranked, n_bins) for each in range(n_bins)], bin_sizes(counts, n_bins)
    # A bin is as likely as its weight says, however many items are in it.
    distribution = tempered(
        [weight if size else -np.inf for weight, size in zip(log_weights, sizes, strict=True)], temperature
    )
    parts = [
        MixtureComponent(
            ItemIndex.MEAN_REWARD,
            ranks[each].start,
            len(ranks[each]),
            distribution[each] * len(ranks[each]) / size,
            why[each],
            each,
        )
        for each, size in enumerate(sizes)
        if size
    ]
    if unseen:
        each = middle(n_bins)
        parts.append(
            MixtureComponent(
                ItemIndex.UNSEEN,
                0,
                unseen,
                distribution[each] * unseen / sizes[each],
                f"{why[each]}, not yet seen",
                each,
            )
        )
    return kept(parts)


def over_cells(
    index: ItemIndex, sizes: Sequence[int], probabilities: Sequence[float], why: Sequence[str]
) -> tuple[MixtureComponent, ...]:
    """Return parts that follow each other in an order, from its lowest place; empty ones are left out."""
    firsts = np.cumsum([0, *sizes]).tolist()
    return kept([MixtureComponent(index, *each) for each in zip(firsts, sizes, probabilities, why, strict=False)])
