"""Decide how long to delay the events of a sender that exceeds its rate: refusals, and environments of new names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThrottleRate:
    """What a sender gets without waiting.

    Attributes:
        each_s: How many a second, ``> 0``.
        burst_s: Seconds of the rate that may come at once.
        longest_s: The longest wait.
    """

    each_s: float
    burst_s: float
    longest_s: float


def throttle(free_at_s: float, now_s: float, rate: ThrottleRate) -> tuple[float, float]:
    """Count one more event of a sender, and return how long to delay it (GCRA).

    If a sender stays above its rate, each of its events waits for the longest time.

    Args:
        free_at_s: When the sender has its whole burst again, as returned for its last event. Any past time for the
            first one.
        now_s: Now, on the same clock.
        rate: What the sender gets without waiting.

    Returns:
        The new ``free_at_s``, and the seconds to delay the event.
    """
    then_s = max(free_at_s, now_s) + 1 / rate.each_s
    wait_s = min(max(0.0, then_s - now_s - rate.burst_s), rate.longest_s)
    return min(then_s, now_s + rate.burst_s + rate.longest_s), wait_s
