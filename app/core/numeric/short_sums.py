"""Sum short arrays. For a few numbers Python is faster than numpy."""

import numpy as np
from numpy.typing import NDArray

_FEW = 64  # for more numbers numpy is faster


def total(values: NDArray[np.integer]) -> int:
    """Return the sum of whole numbers. The sum must fit into 64 bits."""
    if len(values) <= _FEW:
        return sum(values.tolist())
    return int(values.sum(dtype=np.int64))


def mean(values: NDArray[np.floating]) -> float:
    """Return the mean of at least one finite number. It is within their range, so it is finite, too."""
    lowest, highest = float(values[values.argmin()]), float(values[values.argmax()])
    return min(max(_mean(values), lowest), highest)


def _mean(values: NDArray[np.floating]) -> float:
    """Return the mean up to rounding. An overflow on the way gives infinity, never NaN."""
    count = len(values)
    if count <= _FEW:
        return float(sum(values.tolist()) / count)
    # With numpy divide first: two of its partial sums could overflow to infinities of opposite signs.
    with np.errstate(over="ignore"):
        return float((values.astype(np.float64) / count).sum())
