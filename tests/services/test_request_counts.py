"""The histogram of how long requests took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.request_counts import Durations
from app.telemetry import DURATION_BUCKETS_S


@given(st.lists(st.one_of(st.floats(0, 120), st.sampled_from(DURATION_BUCKETS_S))))
def test_each_bucket_counts_the_requests_that_took_no_longer_than_its_bound(durations_s: list[float]) -> None:
    histogram = Durations()
    for duration_s in durations_s:
        histogram.observe(duration_s)
    bounds = [*DURATION_BUCKETS_S, float("inf")]
    counted = [(bound, sum(duration_s <= bound for duration_s in durations_s)) for bound in bounds]
    assert [(float(bound), count) for bound, count in histogram.buckets] == counted
    assert histogram.sum_s == pytest.approx(sum(durations_s))
