"""Pearson's test of observed counts. With fixed seeds it fails for a wrong distribution, never by chance."""

import numpy as np
from numpy.typing import ArrayLike

_SIGMAS = 5.0
_LEAST = 10.0  # Pearson's rule is that a cell should expect five


def fits(counts: ArrayLike, distribution: ArrayLike) -> None:
    """Assert that outcomes were seen about as often as their probabilities say; the rarest count as one."""
    seen, probability = np.asarray(counts, np.float64), np.asarray(distribution, np.float64)
    assert abs(probability.sum() - 1) < 1e-9, "not a distribution"
    assert (seen[probability == 0] == 0).all(), "what is impossible was seen"
    order = np.argsort(probability)
    seen, expected = seen[order], probability[order] * seen.sum()
    rare = min(int(np.searchsorted(np.cumsum(expected), _LEAST)), len(expected) - 1)
    seen, expected = (
        np.append(seen[rare + 1 :], seen[: rare + 1].sum()),
        np.append(expected[rare + 1 :], expected[: rare + 1].sum()),
    )
    freedom = len(seen) - 1
    distance = float(((seen - expected) ** 2 / expected).sum())
    assert distance <= freedom + _SIGMAS * (2 * freedom) ** 0.5, (distance, freedom)
