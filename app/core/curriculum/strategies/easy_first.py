"""Prefer easy bins: P(bin i) in proportion to exp(-2 i / (n_bins - 1)), annealed linearly to uniform over bins.

P(i) = (1 - progress) * biased(i) + progress / n_bins, and log P is divided by the temperature. An item is drawn from
the bin uniformly. The bias is that of Atropos's CurriculumScheduler.
"""

import numpy as np

from app.core.curriculum.indexes import ItemCounts, MixtureComponent
from app.core.curriculum.mixture import over_bins
from lachesis.wire.curricula import CurriculumSettings

_BIAS = 2.0


def parts(settings: CurriculumSettings, counts: ItemCounts, progress: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution; bins without an item are left out."""
    number = np.arange(settings.n_bins)
    biased = np.exp(-_BIAS * number / max(1, settings.n_bins - 1))
    annealed = (1 - progress) * biased / biased.sum() + progress / settings.n_bins
    why = [f"bin {each} of {settings.n_bins}, at progress {progress:.2f}" for each in number]
    return over_bins(np.log(annealed).tolist(), settings.temperature, counts, why)
