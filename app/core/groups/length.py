"""Find a sequence that is too long."""

from typing import Any

from numpy.typing import NDArray


def position_of_too_long(lengths: NDArray[Any], limit: int | None) -> int | None:
    """Return the position of the longest sequence if it is too long, else None.

    Args:
        lengths: Tokens of each sequence, integers of shape [sequences].
        limit: Most tokens of a sequence; None: there is no limit.
    """
    if limit is None or not len(lengths):
        return None
    longest = int(lengths.argmax())
    return longest if lengths[longest] > limit else None
