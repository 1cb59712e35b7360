"""Count the environments of new names that each sender brings into each run."""

import asyncio
import math

from app.core.access.gcra import ThrottleRate, admit, throttle
from lachesis.wire.errors import TooManyNewEnvironments

_MINUTE_S = 60.0
_SLOWEST_PER_S = 5.0
_WITHIN_S = 24.0  # the number of environments for a minute may come in this time
_MANY = 1024  # runs and senders to remember; beyond that, forget those without a recent environment


class NewEnvironmentLimit:
    """The recent environments of new names. Each process counts its own.

    Args:
        each_minute: How many one sender may bring into a run in a minute.
    """

    def __init__(self, each_minute: int) -> None:
        self._each_minute = each_minute
        each_s = max(_SLOWEST_PER_S, each_minute / _WITHIN_S)
        self._rate = ThrottleRate(each_s=each_s, burst_s=4.0, longest_s=30.0)
        self._full_at_s: dict[tuple[str, str], float] = {}  # for the number a minute
        self._free_at_s: dict[tuple[str, str], float] = {}  # for the rate at which they are let through

    def check(self, run: str, sender: str) -> None:
        """Check that a sender may bring one more now.

        Raises:
            TooManyNewEnvironments: It has brought too many. The error says when to try again.
        """
        self._admit(run, sender)

    async def count(self, run: str, sender: str) -> None:
        """Count one more. Many at once wait one after the other: each new environment makes every request of the run
        more expensive.

        Raises:
            TooManyNewEnvironments: As `check`. Nothing is counted.
        """
        full_at_s, now_s = self._admit(run, sender)
        if len(self._full_at_s) >= _MANY:
            self._full_at_s = {key: at_s for key, at_s in self._full_at_s.items() if at_s > now_s}
            self._free_at_s = {key: at_s for key, at_s in self._free_at_s.items() if at_s > now_s}
        self._full_at_s[run, sender] = full_at_s
        self._free_at_s[run, sender], wait_s = throttle(self._free_at_s.get((run, sender), now_s), now_s, self._rate)
        if wait_s:
            await asyncio.sleep(wait_s)

    def _admit(self, run: str, sender: str) -> tuple[float, float]:
        now_s = asyncio.get_running_loop().time()
        full_at_s = self._full_at_s.get((run, sender), now_s)
        full_at_s, wait_s = admit(full_at_s, now_s, _MINUTE_S / self._each_minute, burst_s=_MINUTE_S)
        if wait_s:
            error = TooManyNewEnvironments(
                f"one address brings at most {self._each_minute} environments of new names a minute into a run "
                "(LACHESIS_MAX_NEW_ENVIRONMENTS_PER_MINUTE)"
            )
            error.retry_after_s = float(math.ceil(wait_s))
            raise error
        return full_at_s, now_s
