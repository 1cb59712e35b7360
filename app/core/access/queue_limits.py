"""Limit what an account, such as a token or the subject of a JWT, may have in the queue of a run.

A group counts from its submission until a batch takes it or it is dropped. If its batch is given back, it does not
count again. `app/store/lua/groups/token_limits.lua` has the rule.
"""

from dataclasses import dataclass

from lachesis.wire.limits import QueueLimitSettings


@dataclass(frozen=True, slots=True)
class LimitedAccount:
    """An account with such limits.

    Attributes:
        account_id: Its id in Redis: that of the token, or a hash of the account (`Identity.owner`).
        name: Its name in messages.
        environment: The only environment that it may act for, by name; None for any.
        limits: The limits.
    """

    account_id: str
    name: str
    environment: str | None
    limits: QueueLimitSettings
