"""A history is shown as finely as it is kept, and never too finely."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.history.resolution import (
    HOUR_S,
    KEPT,
    LEAST_S,
    LONGEST_S,
    MOST_CELLS,
    NEXT,
    STEPS_S,
    Range,
    chosen_range,
    default_begin,
    fresh_s,
    kept_resolution,
    span_begin,
    until_next_write_s,
)
from app.core.history.series import MOST_CHARTED_ENVIRONMENTS

NOW_S = 1_800_000_000
times = st.floats(-1e18, 1e18) | st.floats(NOW_S - 2 * LONGEST_S, NOW_S + LONGEST_S)


@given(times, times, st.integers(1, 257))
def test_the_finest_spans_are_chosen_that_are_kept_and_not_too_many(
    one: float, other: float, environments: int
) -> None:
    from_s, to_s = sorted((one, other))
    found = chosen_range(from_s, to_s, NOW_S, environments)
    assert found.from_s % found.step_s == found.to_s % found.step_s == 0
    if from_s > NOW_S or to_s <= NOW_S - LONGEST_S:
        assert (found.points, found.times_s) == (0, []), "nothing is kept of then"
        return
    assert NOW_S - LONGEST_S - found.step_s < found.from_s <= found.to_s
    assert 1 <= found.points * environments <= MOST_CELLS
    first, last = max(from_s, NOW_S - LONGEST_S), min(to_s, NOW_S)
    assert found.from_s <= first < found.from_s + found.step_s
    assert found.to_s - found.step_s <= last < found.to_s
    kept_s = {resolution.step_s: resolution.kept_s for resolution in KEPT}
    for finer_s in STEPS_S[: STEPS_S.index(found.step_s)]:
        points = (span_begin(int(last), finer_s) - span_begin(int(first), finer_s)) // finer_s + 1
        is_gone = NOW_S - first > kept_s.get(finer_s, LONGEST_S) + finer_s
        assert is_gone or points > 3000 or points * environments > MOST_CELLS


starts = st.lists(st.integers(1, 3 * LONGEST_S), min_size=1, max_size=30)


@given(starts)
def test_a_range_begins_an_hour_before_its_end_or_with_a_younger_history(ages_s: list[int]) -> None:
    """The store keeps entries for an hour, and their sums for longer."""
    times_s = [NOW_S - age_s for age_s in ages_s if age_s <= LONGEST_S]
    firsts = [min((at for at in times_s if at >= NOW_S - KEPT[0].kept_s), default=None)]
    for one in KEPT[1:]:
        sums = [span_begin(at, one.step_s) for at in times_s if at >= NOW_S - one.kept_s]
        firsts.append(min((begin for begin in sums if begin + one.step_s <= NOW_S), default=None))
    found = default_begin(NOW_S, firsts)
    if not times_s:
        assert found == NOW_S - LEAST_S
    elif any(at < NOW_S - HOUR_S for at in times_s):
        assert found == NOW_S - HOUR_S
    else:
        assert found == min(NOW_S - LEAST_S, *times_s)


def test_there_are_no_spans_of_the_future_or_of_what_is_no_longer_kept() -> None:
    oldest_s = NOW_S - LONGEST_S
    ranges = [(NOW_S + 0.5, 2**53), (0, oldest_s), (NOW_S, NOW_S + 1), (0, oldest_s + 0.5)]
    assert [chosen_range(*one, NOW_S, 1).points for one in ranges] == [0, 0, 1, 1]


def test_an_hour_a_day_and_a_month_have_their_steps() -> None:
    steps_s = {600: 10, 3600: 10, 3610: 10, 3611: 60, 86_400: 60, 86_460: 60, 86_461: 900, LONGEST_S: 900}
    assert {ago_s: chosen_range(NOW_S - ago_s, NOW_S, NOW_S, 1).step_s for ago_s in steps_s} == steps_s
    assert [chosen_range(NOW_S - 60, NOW_S, NOW_S, 1, least_step_s=least).step_s for least in (60, 61)] == [60, 900]


def test_two_hundred_environments_have_coarser_steps() -> None:
    assert [chosen_range(NOW_S - ago_s, NOW_S, NOW_S, 200).step_s for ago_s in (600, 3600, 86_400)] == [10, 60, 900]


def test_each_resolution_adds_up_to_the_next() -> None:
    assert all(coarse.step_s % fine.step_s == 0 and coarse.kept_s >= fine.kept_s for fine, coarse in NEXT)
    assert {step_s: kept_resolution(step_s).step_s for step_s in STEPS_S} == {
        10: 10,
        60: 60,
        900: 900,
        3600: 900,
        21600: 21600,
        86400: 21600,
    }


def test_each_time_is_in_one_span() -> None:
    shown = Range(100, 160, 20)
    assert shown.times_s == [100, 120, 140]
    assert [shown.place(time_s) for time_s in (99, 100, 119, 120, 159, 160)] == [None, 0, 0, 1, 2, None]


@given(st.floats(0, 1e9), st.lists(st.floats(0, 4.9), max_size=30))
def test_each_span_is_written_once_however_late_writes_are(now_s: float, late_s: list[float]) -> None:
    written = [now_s // 10]
    for late in late_s:
        now_s += until_next_write_s(now_s) + late
        written.append(now_s // 10)
    assert written == [written[0] + number for number in range(len(written))]


def test_what_was_written_is_fresh_for_longer_in_a_larger_run() -> None:
    assert [fresh_s(environments) for environments in (0, 1, 10, 50, 200)] == [0.2, 0.2, 0.2, 1.0, 4.0]
    assert fresh_s(MOST_CHARTED_ENVIRONMENTS + 1) < KEPT[0].step_s
