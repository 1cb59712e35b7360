"""Measure the rate of events. Old events count less and less."""

import math
from dataclasses import dataclass

_MEAN_AGE_MS = 30_000


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate that forgets.

    Attributes:
        since_ms: Run clock at the start of the measurement, milliseconds.
        at_ms: Run clock of the last event.
        recent: Events until the last one, each counted as ``exp(-age / 30 s)``.
    """

    since_ms: int
    at_ms: int
    recent: float = 0.0

    def after(self, events: int, clock_ms: int) -> "Rate":
        """Return the rate after ``events`` more at a run clock."""
        later_ms = max(self.at_ms, clock_ms)
        return Rate(self.since_ms, later_ms, self._recent(later_ms) + events)

    def per_s(self, clock_ms: int) -> float:
        """Return events per second at a run clock; 0 before any time has passed.

        For evenly spaced events the result is right from the start, not only after 30 s.
        """
        watched_ms = clock_ms - self.since_ms
        if watched_ms <= 0:
            return 0.0
        seen_ms = _MEAN_AGE_MS * -math.expm1(-watched_ms / _MEAN_AGE_MS)
        return 1000 * self._recent(clock_ms) / seen_ms

    def _recent(self, clock_ms: int) -> float:
        return self.recent * math.exp(-max(0, clock_ms - self.at_ms) / _MEAN_AGE_MS)
