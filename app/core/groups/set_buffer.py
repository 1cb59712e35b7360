"""Decide when buffered groups add up to a set of the size that their environment declared."""

from collections.abc import Sequence

from app.core.batches.selection import select
from app.core.model import Lane, PlannedGroup


def completed_set(group_size: int, buffered: Sequence[Lane]) -> tuple[PlannedGroup, ...]:
    """Return buffered groups that sum to exactly the declared size: the oldest such set, or none.

    Args:
        group_size: Sequences per group that the environment declared, ``>= 1``.
        buffered: Its buffered groups, as lanes; at least the ``group_size // size`` oldest of each.

    Returns:
        The groups to release to the queue, in arrival order; empty if no set is complete. Call it again after the
        release, because there may be another set.
    """
    plan = select(group_size, buffered, {})
    return () if plan is None else plan.groups
