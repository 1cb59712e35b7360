"""How fast one sender brings environments of new names."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from app.core.environments.new_environment_limit import admit


@given(each_minute=st.sampled_from([1, 2, 3, 5, 60]), pauses_s=st.lists(st.integers(0, 100), max_size=30))
def test_it_is_a_bucket_that_fills_at_the_rate(each_minute: int, pauses_s: list[int]) -> None:
    """An oracle: a bucket of a minute's number, exact."""
    room, now_s, full_at_s = Fraction(each_minute), 1000, 1000.0
    for pause_s in pauses_s:
        now_s += pause_s
        room = min(Fraction(each_minute), room + Fraction(pause_s * each_minute, 60))
        then_s, wait_s = admit(full_at_s, now_s, each_minute)
        if room >= 1:
            room -= 1
            assert wait_s == 0
            full_at_s = then_s
        else:
            assert then_s == full_at_s
            assert abs(wait_s - (1 - room) * 60 / each_minute) < 1e-6
            assert admit(full_at_s, now_s + wait_s, each_minute)[1] == 0
