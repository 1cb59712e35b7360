"""Limits of what a token may have in the queue of a run.

A group counts from its submission until a batch takes it or it is dropped. If its batch is given back, it does not
count again. `app/store/lua/groups/token_limits.lua` has the rule.
"""

from dataclasses import dataclass

from lachesis.wire.limits import QueueLimitSettings


@dataclass(frozen=True, slots=True)
class LimitedToken:
    """A token with such limits, and the only environment that it may act for, by name; None for any."""

    token_id: str
    environment: str | None
    limits: QueueLimitSettings
