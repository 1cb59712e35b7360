"""How long the events of a sender are delayed, and which ones are refused."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from app.core.access.gcra import ThrottleRate, admit, throttle

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


@given(each_minute=st.sampled_from([1, 2, 3, 5, 60]), pauses_s=st.lists(st.integers(0, 100), max_size=30))
def test_refusals_are_those_of_a_bucket_that_fills_at_the_rate(each_minute: int, pauses_s: list[int]) -> None:
    """An oracle: a bucket of a minute's number, exact."""
    room, now_s, free_at_s = Fraction(each_minute), 1000, 1000.0
    for pause_s in pauses_s:
        now_s += pause_s
        room = min(Fraction(each_minute), room + Fraction(pause_s * each_minute, 60))
        then_s, wait_s = admit(free_at_s, now_s, 60 / each_minute, burst_s=60)
        if room >= 1:
            room -= 1
            assert wait_s == 0
            free_at_s = then_s
        else:
            assert then_s == free_at_s
            assert abs(wait_s - (1 - room) * 60 / each_minute) < 1e-6
            assert admit(free_at_s, now_s + wait_s, 60 / each_minute, burst_s=60)[1] == 0
