"""Sum short arrays. For a few numbers Python is faster than numpy."""

import numpy as np
from numpy.typing import NDArray

_FEW = 64  # for more numbers numpy is faster


def total(values: NDArray[np.integer]) -> int:
    """Return the sum of whole numbers. The sum must fit into 64 bits."""
    if len(values) <= _FEW:
        return sum(values.tolist())
    return int(values.sum(dtype=np.int64))


def mean(values: NDArray[np.float64]) -> float:
    """Return the mean of at least one finite number. An overflow on the way gives infinity, never NaN."""
    count = len(values)
    if count <= _FEW:
        return float(sum(values.tolist()) / count)
    # With numpy divide first: two of its partial sums could overflow to infinities of opposite signs.
    with np.errstate(over="ignore"):
        return float((values / count).sum())
