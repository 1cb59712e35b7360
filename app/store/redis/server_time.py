"""Read the time of Redis: the clock that all API processes share."""

from collections.abc import Sequence


def parse_time_us(reply: Sequence[bytes]) -> int:
    """Parse the reply to ``TIME``: microseconds since 1970."""
    seconds, microseconds = map(int, reply)
    return 1_000_000 * seconds + microseconds
