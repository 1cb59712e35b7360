"""Limits of what a token may have in the queue of a run.

A group counts from its submission until a batch takes it or it is dropped. If its batch is given back, it does not
count again. `app/store/lua/groups/token_limits.lua` has the rule.
"""

from dataclasses import asdict, dataclass

from lachesis.wire.limits import QueueLimitSettings


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What a token may have in the queue of each run, as in `QueueLimitSettings`. None: there is no such limit."""

    max_queued_groups: int | None = None
    max_queued_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LimitedToken:
    """A token with such limits, and the only environment that it may act for, by name; None for any."""

    token_id: str
    environment: str | None
    limits: QueueLimits


def queue_limits_of(settings: QueueLimitSettings) -> QueueLimits | None:
    """Return the limits of a token from its settings. None means no limit."""
    limits = QueueLimits(settings.max_queued_groups, settings.max_queued_bytes)
    return None if limits == QueueLimits() else limits


def as_settings(limits: QueueLimits | None) -> dict[str, int | None]:
    """Return limits as a reply shows them."""
    return asdict(limits or QueueLimits())
