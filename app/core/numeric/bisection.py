"""Find a place in an ordered range by halving it."""

from bisect import bisect_left
from collections.abc import Callable


def last(low: int, high: int, test: Callable[[int], bool]) -> int:
    """Return the last number from ``low`` to ``high`` that passes. ``low`` passes; all numbers after a failure fail."""
    return low + bisect_left(range(low + 1, high + 1), True, key=lambda number: not test(number))
