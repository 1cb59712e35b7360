"""Measure the age of a group in policy versions, and decide whether it is dropped."""

from enum import StrEnum

from app.core.runs.settings import Policy
from lachesis.wire.states import DropReason


class Freshness(StrEnum):
    """The freshness of a group by its policy version."""

    FRESH = "fresh"
    STALE = "stale"
    FUTURE = "future"


def staleness(sampled: int | None, current: int) -> int | None:
    """Return how many weight updates there were since a group was sampled.

    Args:
        sampled: The policy version that sampled it (its oldest), or None if the group has no version.
        current: The policy version in force.

    Returns:
        ``current - sampled``, but 0 for a version that is not in force yet; None without a version.
    """
    return None if sampled is None else max(0, current - sampled)


def freshness(sampled: int | None, current: int, max_staleness: int | None) -> Freshness:
    """Return whether a group may be trained on. A group without a version may always be.

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


def drop_reason(sampled: int | None, current: int, policy: Policy, waited_ms: int = 0) -> DropReason | None:
    """Return why a group is dropped; None if it may be trained on.

    Args:
        sampled: The policy version that sampled it (its oldest), or None.
        current: The policy version in force.
        policy: What the run does with groups.
        waited_ms: How long it has waited, milliseconds of run clock.
    """
    match freshness(sampled, current, policy.max_staleness):
        case Freshness.STALE:
            return "stale"
        case Freshness.FUTURE if policy.future_versions == "refuse":
            return "future_version"
    if policy.max_age_s is not None and waited_ms > policy.max_age_s * 1000:
        return "expired"
    return None


def oldest_fresh(current: int, max_staleness: int | None) -> int:
    """Return the smallest version that is not stale. `freshness` is STALE for exactly the smaller versions."""
    return 0 if max_staleness is None else max(0, current - max_staleness)
