"""How old a group is in policy versions, and what becomes of it for that."""

from enum import StrEnum


class Freshness(StrEnum):
    """What a group's policy version means to a run."""

    FRESH = "fresh"
    STALE = "stale"
    FUTURE = "future"


def staleness(sampled: int | None, current: int) -> int | None:
    """Return how many weight updates there were since a group was sampled.

    Args:
        sampled: The policy version that sampled it (its oldest), or None if it does not say.
        current: The policy version in force.

    Returns:
        ``current - sampled``, but 0 for a version that is not in force yet; None if it does not say.
    """
    return None if sampled is None else max(0, current - sampled)


def freshness(sampled: int | None, current: int, max_staleness: int | None) -> Freshness:
    """Say whether a group may be trained on. A group that names no version always may.

    Args:
        sampled: The policy version that sampled it (its oldest), or None.
        current: The policy version in force.
        max_staleness: Most versions between the two, or None for no limit.
    """
    if sampled is None:
        return Freshness.FRESH
    if sampled > current:
        return Freshness.FUTURE
    if max_staleness is not None and current - sampled > max_staleness:
        return Freshness.STALE
    return Freshness.FRESH


def oldest_fresh(current: int, max_staleness: int | None) -> int:
    """Return the smallest version that is not stale: `freshness` says STALE for exactly the smaller ones."""
    return 0 if max_staleness is None else max(0, current - max_staleness)
