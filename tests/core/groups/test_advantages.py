"""Advantages over the group, held against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.groups.advantages import relative_advantages
from tests.properties import examples

scores_of_groups = st.lists(st.integers(-20, 20).map(lambda number: Fraction(number, 8)), min_size=1, max_size=8)


@examples(200)
@given(scores_of_groups, st.sampled_from([-1020, -40, 0, 40, 1000]))
def test_advantages_are_those_of_exact_arithmetic_at_any_scale(scores: list[Fraction], power: int) -> None:
    found = relative_advantages(np.array([float(score * Fraction(2) ** power) for score in scores]))
    mean = sum(scores) / len(scores)
    variance = sum((score - mean) ** 2 for score in scores) / len(scores)
    expected = [float(score - mean) / float(variance) ** 0.5 if variance else 0.0 for score in scores]
    assert found.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("scores", [[1.0], [0.1 + 0.2, 0.3], [1e308, 1e308]], ids=str)
def test_without_a_difference_nobody_has_an_advantage(scores: list[float]) -> None:
    assert relative_advantages(np.array(scores)).tolist() == [0.0] * len(scores)


def test_the_largest_scores_do_not_overflow() -> None:
    assert relative_advantages(np.array([1.7e308, -1.7e308])).tolist() == [1.0, -1.0]
