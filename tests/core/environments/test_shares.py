"""Shares of a batch as sequences, and the debts that relaxed batches leave."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.environments.shares import ShareLimits, binds, bounds_for, debt_changes, settle_debts
from app.core.model import Bounds

SHARES = st.dictionaries(st.integers(0, 9), st.integers(0, 100), max_size=8)  # percent


def minimums(batch_size: int, *shares: float | None) -> list[int]:
    bounds = bounds_for(batch_size, {environment: ShareLimits(share) for environment, share in enumerate(shares)})
    return [bound.minimum for bound in bounds.values()]


def test_fault_16_a_minimum_is_rounded_down_without_the_float_error() -> None:
    assert int(100 * 0.29) == 28, "the error this is about"
    assert minimums(100, 0.29) == [29]


@given(st.integers(1, 5000), st.integers(0, 1000))
def test_a_minimum_is_the_floor_of_the_exact_product(batch_size: int, permille: int) -> None:
    assert minimums(batch_size, permille / 1000) == [batch_size * permille // 1000]


def test_a_minimum_below_one_sequence_does_not_bind() -> None:
    assert bounds_for(8, {0: ShareLimits(0.1), 1: ShareLimits(None), 2: ShareLimits(0.0)}) == dict.fromkeys(
        range(3), Bounds(0)
    )


def test_shares_that_sum_to_one_are_not_scaled() -> None:
    assert minimums(10, *[0.1] * 10) == [1] * 10
    assert minimums(8, 0.3, 0.3, 0.4) == [2, 2, 3]


def test_shares_above_one_are_scaled_with_ties_to_the_smaller_id() -> None:
    assert minimums(8, 0.5, 0.5, 0.5) == [3, 3, 2]
    assert minimums(100, 0.9, 0.9) == [50, 50]
    assert minimums(7, 1.0, 0.5, 0.25) == [4, 2, 1]
    shares = {9: ShareLimits(0.5), 2: ShareLimits(0.5), 5: ShareLimits(0.5)}
    assert bounds_for(4, shares) == {9: Bounds(1), 2: Bounds(2), 5: Bounds(1)}


def test_a_tie_of_remainders_is_one_although_floats_differ() -> None:
    """The exact quotas are 1/7, 2 3/7 and 3/7."""
    assert minimums(3, 0.05, 0.85, 0.15) == [0, 3, 0]


@given(st.integers(1, 5000), SHARES.filter(lambda shares: sum(shares.values()) > 100))
def test_scaled_minimums_sum_to_the_batch_and_stay_within_one_of_their_proportion(
    batch_size: int, shares: dict[int, int]
) -> None:
    bounds = bounds_for(batch_size, {environment: ShareLimits(share / 100) for environment, share in shares.items()})
    assert sum(bound.minimum for bound in bounds.values()) == batch_size
    for environment, share in shares.items():
        assert abs(bounds[environment].minimum - Fraction(batch_size * share, sum(shares.values()))) < 1


@given(st.integers(1, 5000), SHARES)
def test_minimums_never_sum_to_more_than_the_batch(batch_size: int, shares: dict[int, int]) -> None:
    assert sum(minimums(batch_size, *(share / 100 for share in shares.values()))) <= batch_size


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (ShareLimits(None, 0.29), Bounds(0, 29)),
        (ShareLimits(0.2, 1.0), Bounds(20, 100)),
        (ShareLimits(0.2, None), Bounds(20, None)),
        (ShareLimits(0.5, 0.2), Bounds(20, 20)),
        (ShareLimits(0.1, 0.001), Bounds(0, 0)),
    ],
)
def test_a_maximum_is_rounded_down_and_wins_over_a_larger_minimum(share: ShareLimits, expected: Bounds) -> None:
    assert bounds_for(100, {0: share}) == {0: expected}


def test_a_minimum_above_its_own_maximum_takes_nothing_from_others() -> None:
    shares = {0: ShareLimits(0.8, 0.3), 1: ShareLimits(0.6)}
    assert bounds_for(100, shares) == {0: Bounds(30, 30), 1: Bounds(60)}


@given(st.integers(1, 12), st.integers(0, 12), st.none() | st.integers(0, 14))
def test_bounds_bind_if_they_exclude_some_number_of_sequences(batch_size: int, least: int, most: int | None) -> None:
    allowed = range(least, batch_size + 1 if most is None else most + 1)
    assert binds(Bounds(least, most), batch_size) == any(count not in allowed for count in range(batch_size + 1))


def test_a_debt_grows_by_shortfalls_and_shrinks_by_surpluses() -> None:
    bounds = {0: Bounds(2), 1: Bounds(2), 2: Bounds(2)}
    after_one = settle_debts({}, bounds, {0: 4, 1: 4})
    assert after_one == {2: 2}
    after_two = settle_debts(after_one, bounds, {0: 4, None: 4})
    assert after_two == {1: 2, 2: 4}
    assert settle_debts(after_two, bounds, {1: 3, 2: 8}) == {0: 2, 1: 1}


def test_an_environment_without_a_minimum_is_owed_nothing() -> None:
    assert settle_debts({0: 5, 1: 5}, {1: Bounds(0, 4)}, {}) == {}


GOT = st.dictionaries(st.integers(0, 3), st.integers(0, 9), max_size=4)


@given(st.lists(st.tuples(GOT, GOT), max_size=6), st.randoms(use_true_random=False))
def test_batches_that_are_all_given_back_leave_no_debt_in_whatever_order(
    batches: list[tuple[dict[int, int], dict[int, int]]], random: Random
) -> None:
    debts: dict[int, int] = {}
    changes = []
    for minimums, got in batches:
        after = settle_debts(debts, {key: Bounds(least) for key, least in minimums.items()}, got)
        changes.append(debt_changes(debts, after))
        debts = after
    random.shuffle(changes)
    for change in changes:
        for key, by in change:
            debts[key] = debts.get(key, 0) - by
    assert not any(debts.values())


def test_what_repaid_a_debt_that_was_taken_back_is_offset_against_the_next_shortfall() -> None:
    two = {0: Bounds(2)}
    assert settle_debts({0: -1}, two, {0: 2}) == {0: -1}, "and only against that"
    assert settle_debts({0: -1}, two, {0: 5}) == {0: -1}, "no surplus builds up"
    assert settle_debts({0: -1}, two, {0: 1}) == {}
    assert settle_debts({0: -1}, two, {0: 0}) == {0: 1}
