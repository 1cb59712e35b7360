"""Decide how full a run is. Groups that fit no batch are counted apart, up to the same limits."""

from dataclasses import dataclass

from app.core.runs.settings import Policy


@dataclass(frozen=True, slots=True)
class WaitingGroups:
    """Waiting groups, and the bytes of their payload."""

    groups: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """The numbers of waiting groups and payload bytes at which no group is admitted any more; None for no limit."""

    max_groups: int | None = None
    max_bytes: int | None = None


NO_LIMIT, FULL = AdmissionLimits(), AdmissionLimits(max_groups=0)


def reached_limit(policy: Policy, waiting: WaitingGroups) -> str | None:
    """Return the limit that the waiting groups reach, with its value; None if they reach none."""
    for name, limit, count in (
        ("max_queued_groups", policy.max_queued_groups, waiting.groups),
        ("max_queued_bytes", policy.max_queued_bytes, waiting.payload_bytes),
    ):
        if limit is not None and count >= limit:
            return f"{name} = {limit}"
    return None


def limits_for(policy: Policy, oversized: WaitingGroups) -> AdmissionLimits:
    """Return the limits for a submission.

    Args:
        policy: The run's limits.
        oversized: The waiting groups that can never enter a batch. They may take as much room as all others.
    """
    groups, size = policy.max_queued_groups, policy.max_queued_bytes
    return AdmissionLimits(
        None if groups is None else groups + oversized.groups,
        None if size is None else size + oversized.payload_bytes,
    )
