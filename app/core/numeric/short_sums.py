"""Sum short arrays. For a few numbers Python is faster than numpy."""

import numpy as np
from numpy.typing import NDArray

_FEW = 64  # more are quicker added by numpy


def total(values: NDArray[np.integer]) -> int:
    """Return the sum of whole numbers, which 64 bits must hold."""
    if len(values) <= _FEW:
        return sum(values.tolist())
    return int(values.sum(dtype=np.int64))


def mean(values: NDArray[np.float64]) -> float:
    """Return the mean of finite numbers, of which there must be one; infinite if it overflows on the way, never NaN."""
    count = len(values)
    if count <= _FEW:
        return float(sum(values.tolist()) / count)
    # numpy divides first: of the sums that it makes side by side two could overflow, to infinities of either sign.
    with np.errstate(over="ignore"):
        return float((values / count).sum())
