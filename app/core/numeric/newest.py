"""Keep the newest of many values within a number and a size."""

from collections.abc import Sequence


def oldest_beyond(sizes: Sequence[int], most: int, most_size: float) -> int:
    """Return how many of the oldest values must go so that the others are within both limits.

    Args:
        sizes: The size of each value, oldest first.
        most: Most values to keep.
        most_size: Most size to keep in all. A value larger than that is not kept, nor any before it.
    """
    kept, kept_size = 0, 0
    for size in reversed(sizes):
        if kept == most or kept_size + size > most_size:
            break
        kept, kept_size = kept + 1, kept_size + size
    return len(sizes) - kept
