"""Limit how fast one sender brings environments of new names into a run."""

MINUTE_S = 60.0


def admit(full_at_s: float, now_s: float, each_minute: int) -> tuple[float, float]:
    """Admit one more environment, or return how long to wait.

    A sender may bring a minute's number at once, and further ones at this rate (GCRA).

    Args:
        full_at_s: When all the room is free again, as returned for the last one. Any past time for the first one.
        now_s: Now, on the same clock.
        each_minute: How many a minute, ``>= 1``.

    Returns:
        The new ``full_at_s``, and 0; or the old one, and the seconds to wait.
    """
    then_s = max(full_at_s, now_s) + MINUTE_S / each_minute
    wait_s = then_s - now_s - MINUTE_S
    return (full_at_s, wait_s) if wait_s > 1e-9 else (then_s, 0.0)  # the intervals of a minute sum to about 60
