"""The rules of limits, which stand in Lua: `access/count_use.lua` and `groups/token_limits.lua`."""

from collections.abc import Sequence

from app.core.access.rate_limits import BURST_US
from app.core.runs.capacity import WaitingGroups
from lachesis.wire.limits import QueueLimitSettings


def count_use(
    arrivals_us: Sequence[int],
    costs_us: Sequence[int],
    now_us: int,
    burst_us: int = BURST_US,
    *,
    happened: bool = False,
) -> tuple[list[int], list[int]]:
    """Count a use against several limits, all or none. A use that has happened counts in any case.

    A use may exceed the burst. It is then accepted if nothing else is used, and the next one waits for longer.

    Args:
        arrivals_us: The arrival of each limit, microseconds since 1970; 0 if it was not used yet.
        costs_us: What the use costs against each limit, ``>= 0``.
        now_us: The time.
        burst_us: What may be used at once, ``> 0``.
        happened: Whether nothing can make the use wait.

    Returns:
        How long the use must wait for each limit, and the new arrivals. If it must wait for one, none has changed.
    """
    starts_us = [max(arrival, now_us) for arrival in arrivals_us]
    waits_us = [
        max(0, start - now_us + min(cost, burst_us) - burst_us) for start, cost in zip(starts_us, costs_us, strict=True)
    ]
    if happened:
        waits_us = [0] * len(waits_us)
    if any(waits_us):
        return waits_us, list(arrivals_us)
    return waits_us, [start + cost for start, cost in zip(starts_us, costs_us, strict=True)]


def exceeded_limit(limits: QueueLimitSettings, queued: WaitingGroups, new: WaitingGroups) -> str | None:
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
