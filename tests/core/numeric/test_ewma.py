"""A rate that forgets: right for what comes evenly, from the start; and zero in the end."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.numeric.ewma import Rate


@pytest.mark.parametrize("per_s", [1, 20])
@pytest.mark.parametrize("watched_s", [2, 10, 300])
def test_what_comes_evenly_has_its_rate_from_the_start(per_s: int, watched_s: int) -> None:
    rate = Rate(1000, 1000)
    for second in range(watched_s):
        for event in range(per_s):
            rate = rate.after(1, 1000 + 1000 * second + round(1000 * (event + 0.5) / per_s))
    assert rate.per_s(1000 + 1000 * watched_s) == pytest.approx(per_s, rel=0.03)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 9)), max_size=20))
def test_it_is_the_sum_over_all_events_each_with_its_age(events: list[tuple[int, int]]) -> None:
    rate = Rate(0, 0)
    for at_ms, count in sorted(events):
        rate = rate.after(count, at_ms)
    now_ms = 6000
    recent = sum(count * math.exp(-(now_ms - at_ms) / 30_000) for at_ms, count in events)
    assert rate.per_s(now_ms) == pytest.approx(recent / (30 * -math.expm1(-now_ms / 30_000)))


def test_before_any_time_has_passed_and_long_after_the_last_event_it_is_zero() -> None:
    assert Rate(5, 5).after(3, 5).per_s(5) == 0.0
    assert Rate(5, 5).after(3, 5).per_s(10_000_000) == pytest.approx(0.0)
