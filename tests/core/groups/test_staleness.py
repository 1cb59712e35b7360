"""Staleness, in policy versions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.groups.staleness import Freshness, drop_reason, freshness, oldest_fresh, staleness
from app.core.runs.settings import Policy
from lachesis.wire.states import DropReason

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


@pytest.mark.parametrize(
    ("sampled", "waited_ms", "changes", "expected"),
    [
        (3, 1000, {}, "stale"),
        (3, 1001, {}, "stale"),
        (4, 1000, {}, None),
        (4, 1001, {}, "expired"),
        (None, 1001, {}, "expired"),
        (None, 10**9, {"max_age_s": None}, None),
        (6, 0, {}, None),
        (6, 1001, {}, "expired"),
        (6, 1001, {"future_versions": "refuse"}, "future_version"),
    ],
)
def test_a_group_is_dropped_for_its_version_before_its_age(
    sampled: int | None, waited_ms: int, changes: dict[str, Any], expected: DropReason | None
) -> None:
    policy = Policy.model_validate({"max_staleness": 1, "max_age_s": 1.0} | changes)
    assert drop_reason(sampled, 5, policy, waited_ms) is expected
