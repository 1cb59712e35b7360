"""Decide how long to hold something back of a sender that sends much of it: refusals, environments of new names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SenderPace:
    """What a sender gets without waiting.

    Attributes:
        each_s: How many a second, ``> 0``.
        burst_s: Seconds of the rate that may come at once.
        longest_s: The longest wait.
    """

    each_s: float
    burst_s: float
    longest_s: float


def hold_back(free_at_s: float, now_s: float, pace: SenderPace) -> tuple[float, float]:
    """Count one more event of a sender, and say how long to hold it back (GCRA).

    If a sender stays above its rate, each of its events waits for the longest time.

    Args:
        free_at_s: When the sender has its whole burst again, as returned for its last event. Any past time for the
            first one.
        now_s: Now, on the same clock.
        pace: What the sender gets without waiting.

    Returns:
        The new ``free_at_s``, and the seconds to hold the event back.
    """
    then_s = max(free_at_s, now_s) + 1 / pace.each_s
    wait_s = min(max(0.0, then_s - now_s - pace.burst_s), pace.longest_s)
    return min(then_s, now_s + pace.burst_s + pace.longest_s), wait_s
