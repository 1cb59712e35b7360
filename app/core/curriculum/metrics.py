"""Compute the metrics of a curriculum."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.curriculum.bins import bin_distribution, bin_sizes, in_other_indexes
from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent
from app.core.curriculum.strategies.table import draws_candidates, numbers
from app.core.numeric.zipf import zipf_total
from lachesis.wire.curricula import CurriculumSettings

_STEP = 1e-5


@dataclass(frozen=True, slots=True)
class CurriculumTotals:
    """The numbers of a curriculum in addition to the sizes of its indexes.

    Attributes:
        reward_sum: Sum of the scores of `ItemIndex.MEAN_REWARD`.
        reward_min: The least of these scores. It has no meaning while there is no score.
        reward_max: The greatest of these scores. It has no meaning while there is no score.
        updates: Observations so far.
        in_flight: Items handed out and not yet observed.
        left_out: Observations of groups that could not be counted.
    """

    reward_sum: float = 0.0
    reward_min: float = 0.0
    reward_max: float = 0.0
    updates: int = 0
    in_flight: int = 0
    left_out: int = 0


def metrics(
    settings: CurriculumSettings,
    counts: ItemCounts,
    totals: CurriculumTotals,
    parts: Sequence[MixtureComponent],
    progress: float = 0.0,
) -> dict[str, float]:
    """Return metrics by name under ``curriculum/``, including those of Atropos's CurriculumScheduler.

    As in Atropos, "difficulty" is the moving average of rewards, so high is easy. The three difficulty metrics are left
    out while no item has an average. A strategy's own metrics exist while the curriculum uses it. The entropy of the
    distribution is in nats. `thompson` has no distribution. `plr` has two places for each item, and its entropy is that
    of the places. It is at least the entropy of the items.

    Args:
        settings: The settings of the curriculum.
        counts: The counts for the spans of its strategy.
        totals: The other numbers.
        parts: Its distribution.
        progress: The progress that the distribution was made with.
    """
    found = {
        "items": float(counts.items),
        "items_tracked": float(counts.seen),
        "coverage": counts.seen / max(1, counts.items),
        "total_updates": float(totals.updates),
        "in_flight": float(totals.in_flight),
        "left_out": float(totals.left_out),
        "progress": progress,
    }
    if ranked := counts.length(ItemIndex.MEAN_REWARD):
        found["mean_difficulty"] = totals.reward_sum / ranked
        found["min_difficulty"], found["max_difficulty"] = totals.reward_min, totals.reward_max
    found |= {f"bin_{each}_count": float(size) for each, size in enumerate(bin_sizes(counts, settings.n_bins))}
    if parts and not draws_candidates(settings):
        found["entropy"] = entropy(parts)
        found["effective_items"] = math.exp(found["entropy"])
        if not in_other_indexes(parts):
            distribution = bin_distribution(parts, counts, settings.n_bins)
            found |= {f"bin_{each}_probability": probability for each, probability in enumerate(distribution)}
    found |= numbers(settings, counts, progress)
    return {f"curriculum/{name}": value for name, value in found.items()}


def entropy(parts: Sequence[MixtureComponent]) -> float:
    """Return the entropy of a draw over places, nats: 0 for a single place, log n for n equally likely places."""
    return math.fsum(part.probability * (_within(part) - math.log(part.probability)) for part in parts)


def _within(part: MixtureComponent) -> float:
    if not part.exponent:
        return math.log(part.size)
    # The mean of log k under k ** -a / Z(a) is the derivative of -log Z(a).
    low, high = max(0.0, part.exponent - _STEP), part.exponent + _STEP
    slope = (math.log(zipf_total(high, part.size)) - math.log(zipf_total(low, part.size))) / (high - low)
    return math.log(zipf_total(part.exponent, part.size)) - part.exponent * slope
