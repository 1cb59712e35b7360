"""Word lists in sentences."""

from collections.abc import Sequence

MOST_NAMED = 8
"""Values that a sentence names before it breaks off with an ellipsis."""


def listed(values: Sequence[object], between: str = ", ") -> str:
    """Return the first `MOST_NAMED` values as text, and ``…`` if there are more."""
    more = f"{between}…" if len(values) > MOST_NAMED else ""
    return between.join(map(str, values[:MOST_NAMED])) + more
