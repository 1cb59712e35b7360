"""Follow what Redis promises while the service runs: it may restart with another configuration."""

import logging

from app.logs import LogBackoff
from app.store.server.probe import probe_patiently
from lachesis.wire.errors import StoreMisconfigured, StoreUnavailable

_SHORTEST_SILENCE_S, _LONGEST_SILENCE_S = 30.0, 600.0

log = logging.getLogger("lachesis.redis")


class StoreWatch:
    """What Redis promised when it was last asked.

    Args:
        url: Where it is, with user and password.
        durability: What it promised at start.

    Attributes:
        durability: What it promises, or why the service should not use it.
    """

    def __init__(self, url: str, durability: str) -> None:
        self._url = url
        self.durability = durability
        self._asks_config = True
        self._clock_ms = 0
        self._lines = LogBackoff(_SHORTEST_SILENCE_S, _LONGEST_SILENCE_S)

    async def look(self) -> None:
        """Ask Redis again, and log what has changed, or is wrong. Of a Redis that is down, nothing is said."""
        try:
            facts = await probe_patiently(self._url, 0.0, asks_config=self._asks_config)
        except StoreMisconfigured as error:
            self.durability = error.detail
            if self._lines.is_due("misconfigured"):
                log.warning("the configuration of Redis is wrong: %s", error)
            return
        except StoreUnavailable:
            return
        self._lines.forget("misconfigured")
        self._asks_config = facts.config_is_readable
        self._compare_clock(facts.clock_ms)
        if facts.summary != self.durability:
            log.warning("Redis has changed. Now: %s. Before: %s", facts.summary, self.durability)
            for warning in facts.warnings:
                log.warning(warning)
            self.durability = facts.summary

    def _compare_clock(self, clock_ms: int) -> None:
        """Log that Redis has lost data if the service clock, which is stored there, went back."""
        if clock_ms < self._clock_ms:
            log.error(
                "Redis has lost data: the service clock in it went back by %.0f s. It was emptied, restored or started "
                "without its file. What was confirmed in this time is gone (docs/operate/index.md: what each Redis "
                "promises)",
                (self._clock_ms - clock_ms) / 1000,
            )
        self._clock_ms = clock_ms
