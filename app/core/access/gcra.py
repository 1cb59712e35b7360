"""Limit the rate of a sender's events: delay those above the rate, or refuse them.

Both rules keep one time for each sender: when it has its whole burst again. Each event puts this time off by one
interval of the rate. This is the generic cell rate algorithm (GCRA); the time is its theoretical arrival time.

Source: ITU-T Recommendation I.371, annex A: virtual scheduling.
"""

from dataclasses import dataclass

_FLOAT_ERROR_S = 1e-9  # the intervals of a burst sum to about the burst


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
    """Count one more event of a sender, and return how long to delay it.

    If a sender stays above its rate, each of its events waits for the longest time.

    Args:
        free_at_s: When the sender has its whole burst again, as returned for its last event. Any past time for the
            first one.
        now_s: Now, on the same clock.
        rate: What the sender gets without waiting.

    Returns:
        The new ``free_at_s``, and the seconds to delay the event.
    """
    then_s = _next_free_at_s(free_at_s, now_s, 1 / rate.each_s)
    wait_s = min(max(0.0, then_s - now_s - rate.burst_s), rate.longest_s)
    return min(then_s, now_s + rate.burst_s + rate.longest_s), wait_s


def admit(free_at_s: float, now_s: float, interval_s: float, burst_s: float) -> tuple[float, float]:
    """Count one more event of a sender. If it is above the rate, do not count it, and return when to try again.

    Args:
        free_at_s: When the sender has its whole burst again, as returned for its last event. Any past time for the
            first one.
        now_s: Now, on the same clock.
        interval_s: Seconds between two events at the rate, ``> 0``.
        burst_s: Seconds of the rate that may come at once, ``>= interval_s``.

    Returns:
        The new ``free_at_s``, and 0; or the old one, and the seconds to wait.
    """
    then_s = _next_free_at_s(free_at_s, now_s, interval_s)
    wait_s = then_s - now_s - burst_s
    return (free_at_s, wait_s) if wait_s > _FLOAT_ERROR_S else (then_s, 0.0)


def _next_free_at_s(free_at_s: float, now_s: float, interval_s: float) -> float:
    return max(free_at_s, now_s) + interval_s
