"""Decide how long to hold something back of a sender that sends much of it: refusals, environments of new names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SenderPace:
    """What a sender gets without waiting.

    Attributes:
        each_s: How many a second, ``> 0``.
        burst_s: So many seconds' number may come at once.
        longest_s: The longest wait.
    """

    each_s: float
    burst_s: float
    longest_s: float


def hold_back(free_at_s: float, now_s: float, pace: SenderPace) -> tuple[float, float]:
    """Count one more of a sender, and say how long to hold it back (GCRA).

    One that sends more than fits waits for the longest time with each.

    Args:
        free_at_s: When the sender may have the full number at once again, as returned for its last one. Any past time
            for the first one.
        now_s: Now, on the same clock.
        pace: What it gets without waiting.

    Returns:
        The new ``free_at_s``, and the seconds to hold it back.
    """
    then_s = max(free_at_s, now_s) + 1 / pace.each_s
    wait_s = min(max(0.0, then_s - now_s - pace.burst_s), pace.longest_s)
    return min(then_s, now_s + pace.burst_s + pace.longest_s), wait_s
