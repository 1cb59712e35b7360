"""Sum short arrays. For a few numbers Python is faster than numpy."""

import numpy as np
from numpy.typing import NDArray

_FEW = 64  # for more numbers numpy is faster


def total(values: NDArray[np.integer]) -> int:
    """Return the sum of whole numbers. The sum must fit into 64 bits."""
    if len(values) <= _FEW:
        return sum(values.tolist())
    return int(values.sum(dtype=np.int64))


def totals(values: NDArray[np.integer]) -> tuple[int, int]:
    """Return the sum of whole numbers, and the sum of their squares. Both must fit into 64 bits."""
    if len(values) <= _FEW:
        numbers = values.tolist()
        return sum(numbers), sum([number * number for number in numbers])
    wide = values.astype(np.int64, copy=False)
    return int(wide.sum()), int(wide.dot(wide))


def mean(values: NDArray[np.floating]) -> float:
    """Return the mean of at least one finite number. It is within their range, so it is finite, too."""
    count = len(values)
    if count <= _FEW:
        numbers = values.tolist()
        return float(min(max(sum(numbers) / count, min(numbers)), max(numbers)))
    # Divide first: two partial sums of numpy could overflow to infinities of opposite signs.
    with np.errstate(over="ignore"):
        found = float((values.astype(np.float64) / count).sum())
    return min(max(found, float(values.min())), float(values.max()))
