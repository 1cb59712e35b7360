"""How long things are held back."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.access.throttling import ThrottleRate, throttle

BURST_S, LONGEST_S = 10.0, 2.0
RATE = ThrottleRate(2.0, BURST_S, LONGEST_S)


@given(st.floats(0.1, 100), st.lists(st.floats(0, 5), max_size=60))
def test_senders_wait_like_water_that_leaves_a_bucket_at_the_rate(each_s: float, gaps_s: list[float]) -> None:
    """An oracle: a bucket of so many seconds, into which each one pours its interval."""
    now_s, free_at_s, full_s = 1000.0, 0.0, 0.0
    for gap_s in gaps_s:
        now_s += gap_s
        full_s = min(max(0.0, full_s - gap_s) + 1 / each_s, BURST_S + LONGEST_S)
        free_at_s, wait_s = throttle(free_at_s, now_s, ThrottleRate(each_s, BURST_S, LONGEST_S))
        assert abs(wait_s - min(max(0.0, full_s - BURST_S), LONGEST_S)) < 1e-6


def test_the_burst_is_free_and_then_each_waits_for_its_turn() -> None:
    free_at_s, waits_s = 0.0, []
    for _ in range(23):
        free_at_s, wait_s = throttle(free_at_s, 50.0, RATE)
        waits_s.append(wait_s)
    assert waits_s == [0.0] * 20 + [0.5, 1.0, 1.5]


def test_a_sender_with_very_many_connections_waits_no_longer_than_the_longest_time() -> None:
    free_at_s = 0.0
    for _ in range(1000):
        free_at_s, wait_s = throttle(free_at_s, 50.0, RATE)
    assert wait_s == LONGEST_S
    assert throttle(free_at_s, 50.0 + LONGEST_S + 1, RATE)[1] == 0.0, "what it sent beyond that is forgotten"
