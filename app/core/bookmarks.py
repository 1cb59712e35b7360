"""Which delivered batches are kept for a rewind."""

from collections.abc import Sequence


def beyond_limits(sizes_bytes: Sequence[int], keep_batches: int, keep_bytes: int) -> int:
    """Return how many of the oldest batches must go so that the rest is within both limits.

    Args:
        sizes_bytes: Payload of each batch that is kept, oldest first.
        keep_batches: Most batches to keep.
        keep_bytes: Most bytes to keep. A batch larger than that is not kept at all, nor any before it.
    """
    kept, kept_bytes = 0, 0
    for size in reversed(sizes_bytes):
        if kept == keep_batches or kept_bytes + size > keep_bytes:
            break
        kept, kept_bytes = kept + 1, kept_bytes + size
    return len(sizes_bytes) - kept
