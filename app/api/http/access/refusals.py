"""Hold back refusals (4xx) of a sender that gets very many.

Only refusals wait. So a wrong client does not slow others behind the same proxy, or with the same token.
"""

import asyncio
import contextlib
import logging

from starlette.types import Scope

from app.api.http.caller import counted_sender, described_caller, shown_path
from app.api.http.connection.client_connection import end_of_waiting
from app.core.access.gcra import ThrottleRate, throttle
from app.logs import LogBackoff

BURST_S, LONGEST_WAIT_S = 2.5, 20.0
"""A sender with many connections gets one refusal per connection in the longest wait: 50 a second for 1,000. It stays
below the 30 s after which clients give up."""

_MANY = 1024  # senders to remember; beyond that, forget those with few recent refusals

log = logging.getLogger("lachesis.api")


class Refusals:
    """The recent refusals of each sender, in this process.

    Args:
        each_s: How many a second one sender gets without waiting.
    """

    def __init__(self, each_s: float) -> None:
        self._rate = ThrottleRate(each_s, BURST_S, LONGEST_WAIT_S)
        self._free_at_s: dict[str, float] = {}
        self._log_backoff = LogBackoff()

    async def throttle(self, scope: Scope) -> None:
        """Wait before a request is refused, if its sender had many refusals. It ends with the client or the server."""
        sender, now_s = counted_sender(scope), asyncio.get_running_loop().time()
        if len(self._free_at_s) >= _MANY:
            self._free_at_s = {one: at_s for one, at_s in self._free_at_s.items() if at_s > now_s}
            if len(self._free_at_s) >= _MANY:  # so many addresses that counting them would cost more than they do
                self._free_at_s.clear()
        self._free_at_s[sender], wait_s = throttle(self._free_at_s.get(sender, now_s), now_s, self._rate)
        if not wait_s:
            return
        if self._log_backoff.is_due("refusals"):
            log.warning(
                "many refused requests", extra={"fields": {"path": shown_path(scope)} | described_caller(scope)}
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await end_of_waiting(scope)
