"""What a group of a run is to its replay buffer: one fragment, and that a chunk."""

import numpy as np
from numpy.typing import ArrayLike

from app.core.numeric.short_sums import mean
from app.core.replay.buffer import Versions


def mean_reward(scores: ArrayLike) -> float:
    """Return the mean of a group's scores, of which there must be one; finite, as they are."""
    values = np.asarray(scores, np.float64)
    lowest, highest = float(values[values.argmin()]), float(values[values.argmax()])
    return min(max(mean(values), lowest), highest)


def versions_counted(oldest: int, sampled: Versions | None, current: int) -> Versions:
    """Return the versions that a group counts as sampled by, once it was trained on: none later than that in force.

    Args:
        oldest: The version that the group as a whole counts as sampled by.
        sampled: What it said of its tokens, if anything.
        current: The version in force.
    """
    lowest = min(oldest, current)
    if sampled is None:
        return Versions(lowest, float(lowest), lowest)
    highest = max(lowest, min(sampled.highest, current))
    return Versions(lowest, min(max(sampled.mean, float(lowest)), float(highest)), highest, sampled.tokens)
