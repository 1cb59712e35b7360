"""The rule of rate limits, against a bucket that leaks and against time itself."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from app.core.access.rate_limits import BURST_US, LimitUse, Use, costs, limits_of, named_limits, used
from app.core.runs.settings import Policy
from lachesis.wire.access import TokenCreate
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings
from tests.core.access.rate_limits import count_use
from tests.properties import examples

REQUESTS = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 5_000_000)), max_size=30)
"""The pause before each request, and its cost, microseconds."""


@given(requests=REQUESTS, burst_us=st.integers(1, 3_000_000))
@examples(300)
def test_it_decides_as_a_bucket_that_leaks(requests: list[tuple[int, int]], burst_us: int) -> None:
    """The oracle has a level that falls with time. A request must fit on top of it, or find it empty."""
    now_us, level_us, arrival_us = 1_000_000, 0, 0
    for pause_us, cost_us in requests:
        now_us, level_us = now_us + pause_us, max(0, level_us - pause_us)
        excess_us = level_us + min(cost_us, burst_us) - burst_us
        (wait_us,), (arrival_us,) = count_use([arrival_us], [cost_us], now_us, burst_us)
        assert wait_us == max(0, excess_us)
        if wait_us == 0:
            level_us += cost_us
        else:
            assert count_use([arrival_us], [cost_us], now_us + wait_us, burst_us)[0] == [0], "it passes after the wait"
            assert count_use([arrival_us], [cost_us], now_us + wait_us - 1, burst_us)[0] == [1], "and not before"


@given(requests=REQUESTS)
@examples(300)
def test_no_span_of_time_has_more_than_the_limit_and_the_burst(requests: list[tuple[int, int]]) -> None:
    now_us, arrival_us, accepted = 0, 0, list[tuple[int, int]]()
    for pause_us, cost_us in requests:
        now_us += pause_us
        (wait_us,), (arrival_us,) = count_use([arrival_us], [cost_us], now_us)
        if wait_us == 0:
            accepted.append((now_us, cost_us))
    for first, (began_us, _) in enumerate(accepted):
        for last in range(first, len(accepted)):
            costs_us = [cost for _, cost in accepted[first : last + 1]]
            most_us = accepted[last][0] - began_us + BURST_US + max(0, *costs_us, 0)
            assert sum(costs_us) <= most_us


@given(
    limits=st.lists(st.tuples(st.integers(0, 9_000_000), st.integers(0, 5_000_000)), min_size=1, max_size=6),
    now_us=st.integers(0, 9_000_000),
)
@examples(300)
def test_several_limits_count_all_or_none(limits: list[tuple[int, int]], now_us: int) -> None:
    arrivals, costs = [list(column) for column in zip(*limits, strict=True)]
    waits, new = count_use(arrivals, costs, now_us)
    alone = [count_use([arrival], [cost], now_us) for arrival, cost in limits]
    assert waits == [wait for (wait,), _ in alone]
    assert new == (arrivals if any(waits) else [at for _, (at,) in alone])


@given(
    limit=st.floats(0.001, 2**53 - 1),
    requests=st.integers(0, 10),
    size=st.integers(0, 2**40),
    groups=st.integers(0, 5000),
)
@examples(200)
def test_a_cost_is_the_time_that_a_use_takes_at_the_limit(limit: float, requests: int, size: int, groups: int) -> None:
    limits = RateLimitSettings(max_requests_per_s=limit, max_bytes_per_s=max(1, limit), max_groups_per_s=limit)
    amounts = (requests, size, groups)
    found = list(costs(limits, Use(*amounts)))
    assert [one[:2] for one in found] == [
        one for one, amount in zip(named_limits(limits), amounts, strict=True) if amount
    ]
    for (_, value, cost_us), amount in zip(found, filter(None, amounts), strict=True):
        exact = Fraction(amount) * 1_000_000 / Fraction(value)
        assert abs(cost_us - exact) <= 1 + exact / 2**50


def test_what_has_no_limit_costs_nothing() -> None:
    assert list(costs(RateLimitSettings(max_groups_per_s=2.0), Use(requests=1, bytes=5))) == []


def test_limits_are_taken_out_of_other_settings() -> None:
    """A model with more fields is never equal to limits, and would be stored with all of them."""
    token = TokenCreate(role="operator", max_bytes_per_s=5, max_queued_groups=7)
    assert limits_of(RateLimitSettings, token) == RateLimitSettings(max_bytes_per_s=5)
    assert limits_of(QueueLimitSettings, token) == QueueLimitSettings(max_queued_groups=7)
    assert limits_of(RateLimitSettings, Policy(max_groups_per_s=1)) == RateLimitSettings(max_groups_per_s=1)
    assert limits_of(RateLimitSettings, Policy(max_queued_groups=1)) is None
    assert limits_of(QueueLimitSettings, TokenCreate(role="operator")) is None


def test_the_use_is_a_share_of_the_burst() -> None:
    limits = RateLimitSettings(max_requests_per_s=10.0, max_groups_per_s=1.0)
    assert used(limits, [1_000_000, 7_000_000], 3_000_000) == [
        LimitUse("max_requests_per_s", 10.0, 0.0),
        LimitUse("max_groups_per_s", 1.0, 2.0),
    ]
