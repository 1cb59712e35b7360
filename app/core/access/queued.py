"""Limits of what a token may have in the queue of a run.

A group counts from its submission until a batch takes it or it is dropped. If its batch is given back, it does not
count again. `app/store/lua/groups/token_limits.lua` does the same in Redis.
"""

from dataclasses import asdict, dataclass

from app.core.runs.capacity import Waiting
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


def exceeded_limit(limits: QueueLimits, queued: Waiting, new: Waiting) -> str | None:
    """Return the name of the limit that a submission would exceed; None if it may be stored.

    A submission that is larger than a limit is stored if nothing else of its token is in the queue. Otherwise it could
    never be stored.

    Args:
        limits: The limits of the token.
        queued: What the token has in the queue.
        new: What the submission adds to that. Groups that were stored before or are dropped on arrival add nothing.
    """
    if new.groups == 0 or queued.groups == 0:
        return None
    if limits.max_queued_groups is not None and queued.groups + new.groups > limits.max_queued_groups:
        return "max_queued_groups"
    if limits.max_queued_bytes is not None and queued.payload_bytes + new.payload_bytes > limits.max_queued_bytes:
        return "max_queued_bytes"
    return None


def as_settings(limits: QueueLimits | None) -> dict[str, int | None]:
    """Return limits as a reply shows them."""
    return asdict(limits or QueueLimits())
