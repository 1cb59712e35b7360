"""Staleness, in policy versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.freshness import Freshness, freshness, oldest_fresh, staleness

versions = st.integers(0, 20)


@pytest.mark.parametrize(
    ("sampled", "current", "limit", "expected"),
    [
        (None, 100, 0, Freshness.FRESH),
        (5, 5, 0, Freshness.FRESH),
        (4, 5, 0, Freshness.STALE),
        (4, 5, 1, Freshness.FRESH),
        (0, 1000, None, Freshness.FRESH),
        (6, 5, None, Freshness.FUTURE),
        (6, 5, 0, Freshness.FUTURE),
    ],
)
def test_a_group_is_fresh_within_the_limit(
    sampled: int | None, current: int, limit: int | None, expected: Freshness
) -> None:
    assert freshness(sampled, current, limit) is expected


@given(versions, versions, st.none() | versions)
def test_exactly_the_versions_before_the_oldest_fresh_one_are_stale(
    sampled: int, current: int, limit: int | None
) -> None:
    stale = freshness(sampled, current, limit) is Freshness.STALE
    assert stale == (sampled < oldest_fresh(current, limit))


@given(versions, versions)
def test_staleness_counts_updates_and_is_never_negative(sampled: int, current: int) -> None:
    assert staleness(sampled, current) == max(0, current - sampled)
    assert staleness(None, current) is None
