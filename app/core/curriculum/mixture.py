"""Turn logarithms of weights into probabilities, and these into components of a mixture over indexes."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from app.core.curriculum.bins import bin_sizes, middle, ranks_of
from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent


def tempered(log_weights: ArrayLike, temperature: float, sizes: ArrayLike = 1) -> list[float]:
    """Return probabilities in proportion to ``size * exp(log_weight / temperature)``.

    Weights do not overflow. Weights that underflow are 0. If all weights are 0, all probabilities are 0.

    Args:
        log_weights: Finite, or ``-inf`` for a probability of 0.
        temperature: Above 0.
        sizes: How many places each weight is for, ``>= 0``. A size of 0 has the probability 0.
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
    """Leave out components without a place or with a probability of 0."""
    return tuple(part for part in parts if part.size and part.probability)


def over_bins(
    log_weights: Sequence[float], temperature: float, counts: ItemCounts, why: Sequence[str]
) -> tuple[MixtureComponent, ...]:
    """Return the mixture of bins by their weights, with uniform items within a bin. Empty bins are left out.

    Args:
        log_weights: One for each bin.
        temperature: The divisor of the logarithms.
        counts: The items.
        why: The reason to choose from each bin.
    """
    n_bins, ranked, unseen = len(log_weights), counts.length(ItemIndex.MEAN_REWARD), counts.length(ItemIndex.UNSEEN)
    ranks, sizes = [ranks_of(each, ranked, n_bins) for each in range(n_bins)], bin_sizes(counts, n_bins)
    # The weight of a bin alone decides its probability, not the number of its items.
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
    index: ItemIndex, sizes: Sequence[int], probabilities: Sequence[float], why: Sequence[str], kind: str = ""
) -> tuple[MixtureComponent, ...]:
    """Return consecutive parts of an index from its lowest place on. Empty parts are left out."""
    rows = zip(accumulate(sizes, initial=0), sizes, probabilities, why, strict=False)
    return tuple(
        MixtureComponent(index, first, size, probability, reason, kind=kind)
        for first, size, probability, reason in rows
        if size and probability
    )
