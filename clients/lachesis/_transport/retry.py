"""When to send a request again: full jitter under a budget of time; and when to say so.

Source: M. Brooker, *Exponential Backoff And Jitter* (AWS Architecture Blog, 2015): "full jitter".
"""

from dataclasses import dataclass
from random import Random

from lachesis.errors import LachesisError, ServiceError, Unreachable

PASSING = frozenset({408, 429, 502, 503, 504, 507})
"""Statuses of what may be otherwise in a moment."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to pause before each repetition.

    Attributes:
        budget_s: No repetition starts later than this after the first attempt.
        base_s: The first pause is up to this long; each further one up to twice the one before.
        cap_s: And none is longer than this.
    """

    budget_s: float
    base_s: float = 0.1
    cap_s: float = 5.0

    def pause_s(self, error: LachesisError, attempt: int, elapsed_s: float, random: Random) -> float | None:
        """Say how long to wait before the request is sent again.

        Args:
            error: How the last attempt ended.
            attempt: Attempts so far, ``>= 1``.
            elapsed_s: Time since the first began.
            random: Where chance comes from.

        Returns:
            Seconds, or None if it should not be sent again.
        """
        if not passes(error):
            return None
        longest_s = min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 30))
        pause_s = random.uniform(0, longest_s)
        if isinstance(error, ServiceError) and error.retry_after_s is not None:
            pause_s += error.retry_after_s
        return pause_s if elapsed_s + pause_s <= self.budget_s else None


class Seldom:
    """Lets the first notice through, and then one in so many seconds."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._said_s: float | None = None

    def due(self, now_s: float) -> bool:
        """Whether to say it now; True counts as said."""
        if self._said_s is not None and now_s < self._said_s + self._every_s:
            return False
        self._said_s = now_s
        return True


class LessOften:
    """Schedules notices of a wait: each pause is three times as long as the one before.

    After such a pause without a notice, it starts again with the first pause.
    """

    def __init__(self, first_s: float = 10.0, longest_s: float = 1800.0) -> None:
        self._first_s = self._pause_s = first_s
        self._longest_s = longest_s
        self.due_s = float("-inf")
        """Time at which the next notice is due."""

    def said(self, now_s: float) -> None:
        """Record that a notice was given."""
        if now_s > self.due_s + self._pause_s:
            self._pause_s = self._first_s
        self.due_s = now_s + self._pause_s
        self._pause_s = min(self._longest_s, 3 * self._pause_s)


def passes(error: LachesisError) -> bool:
    """Whether the same request may succeed in a moment."""
    return isinstance(error, Unreachable) or (isinstance(error, ServiceError) and error.status in PASSING)
