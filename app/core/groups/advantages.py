"""Compare the sequences of a group with each other."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-12  # relative to the largest |score|: equal scores that were computed in different ways


def relative_advantages(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Return the advantage of each sequence over its group: (score - mean) / standard deviation.

    All are 0 if the scores are equal up to rounding, so also in a group of one sequence.

    Args:
        scores: Finite, one per sequence.

    Returns:
        One advantage per sequence. Their mean is 0; the mean of their squares is 1, or 0 if the scores are equal.

    Source: Shao et al., *DeepSeekMath* (2024): group relative policy optimization (GRPO).
    """
    values = np.asarray(scores, np.float64)
    scaled = values / (np.abs(values).max() or 1.0)  # squares of large scores would overflow
    if np.ptp(scaled) <= _ROUNDING:
        return np.zeros(len(values))
    centred = scaled - scaled.mean()
    return np.asarray(centred / np.sqrt(np.mean(centred**2)))
