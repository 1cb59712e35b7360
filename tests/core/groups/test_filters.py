"""Which groups filters find, held against exact arithmetic on rewards that rounding has not touched."""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.groups.filters import (
    Arrived,
    FilterMark,
    apply_filters,
    are_equal,
    arrived_since,
    pass_rate,
    with_filtered,
)
from app.core.model import NotReady, by_number
from app.core.runs.counters import Starvation
from app.core.runs.settings import Policy
from lachesis.wire.blockers import Blocker
from lachesis.wire.filters import PassRateFilter, RewardRangeFilter, ZeroVarianceFilter
from tests.properties import examples

DAPO = Policy(filter_pass_rate=PassRateFilter())
SAME = Policy(filter_zero_variance=ZeroVarianceFilter())

tenths = st.integers(-20, 20).map(lambda number: Fraction(number, 10))
rewards_of_groups = st.lists(tenths, min_size=1, max_size=8) | st.tuples(tenths, st.integers(1, 8)).map(
    lambda pair: [pair[0]] * pair[1]
)
weights = st.none() | st.sampled_from([0.0, 0.25, 1.0])


class Group(NamedTuple):
    rewards: NDArray[Any]
    lengths: NDArray[Any]


def group(rewards: list[float]) -> Group:
    """A group with these rewards. Each sequence has one token."""
    return Group(np.array(rewards), np.ones(len(rewards), np.int64))


def bands(bounds: st.SearchStrategy[Fraction]) -> st.SearchStrategy[tuple[Fraction | None, Fraction | None]]:
    """Two bounds, either of them or both."""
    pairs = st.tuples(st.none() | bounds, st.none() | bounds)
    return pairs.filter(lambda pair: pair != (None, None) and (None in pair or pair[0] < pair[1]))


def rounded(rewards: list[Fraction], scale: int, noise: list[float], single: bool) -> list[float]:
    """The rewards as a reward model in f32 or f64 may say them: times ``scale``, off in the last digits."""
    values = np.array([float(reward * scale) * (1 + 1e-8 * off) for reward, off in zip(rewards, noise, strict=False)])
    return [float(value) for value in (values.astype(np.float32) if single else values)]


def number(value: Fraction | None, scale: int = 1) -> float | None:
    return None if value is None else float(value * scale)


def within(value: Fraction, band: tuple[Fraction | None, Fraction | None]) -> bool:
    above, below = band
    return (above is None or value > above) and (below is None or value < below)


@given(
    rewards_of_groups,
    bands(tenths),
    bands(st.integers(0, 10).map(lambda number: Fraction(number, 10))),
    tenths,
    st.tuples(weights, weights, weights),
    st.sampled_from([1, 1000]),
    st.lists(st.floats(-1, 1), min_size=8, max_size=8),
    st.booleans(),
)
@examples(500)
def test_filters_find_what_exact_arithmetic_on_unrounded_rewards_finds(
    exact: list[Fraction],
    means: tuple[Fraction | None, Fraction | None],
    rates: tuple[Fraction | None, Fraction | None],
    threshold: Fraction,
    kept: tuple[float | None, float | None, float | None],
    scale: int,
    noise: list[float],
    single: bool,
) -> None:
    assume(scale == 1 or 0 not in means)  # rounding is relative to the bound: large rewards around 0 exceed it
    passed = Fraction(sum(reward >= threshold for reward in exact), len(exact))
    found = [
        ("zero_variance", kept[0], len(exact) > 1 and len(set(exact)) == 1),
        ("reward_range", kept[1], not within(sum(exact, Fraction(0)) / len(exact), means)),
        ("pass_rate", kept[2], not within(passed, rates)),
    ]
    drops = [reason for reason, weight, is_found in found if is_found and weight is None]
    marks = [FilterMark(reason, weight) for reason, weight, is_found in found if is_found and weight is not None]
    expected = drops[0] if drops else min(marks, key=lambda mark: mark.loss_weight) if marks else None
    policy = Policy(
        filter_zero_variance=ZeroVarianceFilter(loss_weight=kept[0]),
        filter_reward_range=RewardRangeFilter(
            above=number(means[0], scale), below=number(means[1], scale), loss_weight=kept[1]
        ),
        filter_pass_rate=PassRateFilter(
            threshold=float(threshold * scale), above=number(rates[0]), below=number(rates[1]), loss_weight=kept[2]
        ),
    )
    assert apply_filters(group(rounded(exact, scale, noise, single)), policy) == expected


@given(st.lists(st.integers(0, 1), min_size=2, max_size=16), st.booleans())
def test_of_two_values_all_alike_is_all_passed_or_all_failed(passed: list[int], signed: bool) -> None:
    """So for rewards of 0 and 1, or -1 and 1, DAPO's filter by accuracy is verl's by standard deviation."""
    rewards = [2.0 * one - 1 if signed else float(one) for one in passed]
    assert (
        (apply_filters(group(rewards), DAPO) is None)
        == (apply_filters(group(rewards), SAME) is None)
        == (0 < sum(passed) < len(passed))
    )


@pytest.mark.parametrize(
    ("rewards", "equal"),
    [
        ([0.1 + 0.2, 0.3] * 4, True),
        ([float(np.float32(0.7))] * 3 + [0.7], True),
        ([1.0, 0.9999995], True),
        ([1e6, 1e6 + 0.5], True),
        ([1e6, 1e6 + 2.0], False),
        ([1.0, 0.999], False),
        ([0.0, 1e-5], False),
        ([-0.0, 0.0], True),
        ([0.5], False),
        ([0.0] + [0.95] * 7, False),
    ],
)
def test_rewards_that_only_rounding_tells_apart_are_equal(rewards: list[float], equal: bool) -> None:
    """In the last group all rewards are equal except one, and the group learns from that difference."""
    assert are_equal(rewards, 1e-6) is equal


def test_an_epsilon_of_zero_asks_for_every_bit() -> None:
    assert are_equal([0.3, 0.3], 0.0)
    assert not are_equal([0.1 + 0.2, 0.3], 0.0)


def test_who_reaches_the_threshold_except_for_rounding_passes() -> None:
    assert pass_rate([0.5, 0.49999997, 0.4999, 0.0], 0.5) == 0.5
    assert pass_rate([-1000.0, -1000.0005, -1000.5, -2000.0], -1000.0) == 0.5


@pytest.mark.parametrize("most", [1.7976931348623157e308, 1e308])
def test_the_largest_numbers_there_are_break_nothing(most: float) -> None:
    every = Policy(
        filter_zero_variance=ZeroVarianceFilter(),
        filter_reward_range=RewardRangeFilter(below=1.0),
        filter_pass_rate=PassRateFilter(),
    )
    assert apply_filters(group([most] * 7), every) == "zero_variance"
    without_variance = every.model_copy(update={"filter_zero_variance": None})
    assert apply_filters(group([most] * 7), without_variance) == "reward_range"
    assert apply_filters(group([most, -most]), every) is None


def test_what_came_between_two_looks_is_nothing_of_a_run_that_was_reset() -> None:
    before, now = Arrived(10, {"zero_variance": 4, "pass_rate": 1}), Arrived(30, {"zero_variance": 19, "pass_rate": 1})
    lately = arrived_since(before, now)
    assert lately == Arrived(20, {"zero_variance": 15})
    assert str(lately) == "filters dropped 15 of the last 20 groups (75 %): zero_variance 15"
    assert arrived_since(now, before) == Arrived()
    assert arrived_since(before, Arrived(10, {"zero_variance": 3, "pass_rate": 1})) == Arrived()
    assert arrived_since(Arrived(10), Arrived(3)) == Arrived()


def test_groups_that_filters_dropped_lately_are_counted_for_their_environments() -> None:
    before, now = Arrived(10, {"pass_rate": 4}, {0: 3, None: 1}), Arrived(30, {"pass_rate": 19}, {0: 3, None: 2, 7: 14})
    assert arrived_since(before, now).filtered_of == {None: 1, 7: 14}


@pytest.mark.parametrize(
    ("sequences", "after", "alarms"), [(7, 2, False), (8, 2, True), (9, 2, True), (99, None, False)]
)
def test_starvation_alarms_once_it_has_the_sequences_of_so_many_batches(
    sequences: int, after: int | None, alarms: bool
) -> None:
    assert Starvation(0, sequences).alarms(4, after) is alarms


def test_the_reason_says_that_filters_drop_groups_of_an_environment_that_batches_wait_for() -> None:
    short = NotReady(Blocker.MINIMUM_SHORT, "short", 4, {0: 4})
    assert with_filtered(short, Arrived(9), Policy(), by_number) == short
    told = "short; filters dropped 5 of the last 9 groups (56 %): pass_rate 5"
    of_other = Arrived(9, {"pass_rate": 5}, {1: 5})
    assert with_filtered(short, of_other, Policy(), by_number).detail == told
    of_both = Arrived(9, {"pass_rate": 5}, {0: 3, 1: 2})
    told += ". Of these, 3 of environment 0: change filter_pass_rate"
    assert with_filtered(short, of_both, Policy(), by_number).detail == f"{told} or set relax_scarce_after_s"
    relaxing = Policy(relax_scarce_after_s=5.0)
    assert with_filtered(short, of_both, relaxing, by_number).detail == told
