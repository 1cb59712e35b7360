"""Sketches against the values themselves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.history.sketch import FIRST_ERROR, LARGEST, MOST_BINS, SMALLEST, Sketch, merged

usual = st.floats(-1e6, 1e6)
any_float = st.floats(allow_nan=True, allow_infinity=True)
shares = [0.0, 0.1, 0.5, 0.9, 1.0]


def counted(values: list[float]) -> list[float]:
    """The values as a sketch counts them, in order."""
    return sorted(min(max(value, -LARGEST), LARGEST) for value in values if not math.isnan(value))


def check(sketch: Sketch, values: list[float]) -> None:
    """Compare a sketch with the values that it counted."""
    exact = counted(values)
    assert sketch.count == len(exact) == sum(count for _, _, count in sketch.bins())
    assert max(len(sketch.above), len(sketch.below)) <= MOST_BINS
    if not exact:
        assert sketch.quantiles(shares) == [None] * len(shares)
        assert sketch.mean is None
        return
    assert (sketch.least, sketch.most) == (exact[0], exact[-1])
    assert sketch.mean == pytest.approx(math.fsum(exact) / len(exact), rel=1e-9, abs=1e-6 * max(map(abs, exact)))
    for share, found in zip(shares, sketch.quantiles(shares), strict=True):
        wanted = exact[int(share * (len(exact) - 1))]
        assert found is not None
        assert abs(found - wanted) <= sketch.error * abs(wanted) * (1 + 1e-9) + SMALLEST


@given(st.lists(any_float))
def test_quantiles_are_those_of_the_values(values: list[float]) -> None:
    check(Sketch.of(values), values)


@given(st.lists(st.lists(any_float), max_size=6))
def test_sketches_add_up(parts: list[list[float]]) -> None:
    check(merged(map(Sketch.of, parts)), [value for part in parts for value in part])


@given(st.lists(usual), st.lists(usual))
def test_it_does_not_matter_which_comes_first(one: list[float], other: list[float]) -> None:
    forth, back = Sketch.of(one).merged(Sketch.of(other)), Sketch.of(other).merged(Sketch.of(one))
    assert (forth.level, forth.zeros, forth.above, forth.below) == (back.level, back.zeros, back.above, back.below)


def test_the_error_is_small_where_values_are_near_each_other() -> None:
    lengths = np.random.default_rng(1).integers(1000, 3000, 10_000).astype(float)
    sketch = Sketch.of(lengths.tolist())
    assert sketch.level == 0
    assert sketch.error == pytest.approx(FIRST_ERROR)
    far_apart = Sketch.of([10.0**n for n in range(-9, 18)])
    assert far_apart.error < 0.5


def test_two_rewards_are_known_exactly() -> None:
    sketch = Sketch.of([0.0] * 30 + [1.0] * 70)
    assert sketch.quantiles([0.1, 0.29, 0.31, 0.5, 0.9]) == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert list(sketch.bins()) == [(0.0, 0.0, 30), (1.0, 1.0, 70)]


@pytest.mark.parametrize("groups", [3000, 100_000])
def test_rewards_on_both_sides_of_zero_keep_their_tenths(groups: int) -> None:
    """A few of them are very near 0, so bins are wide. Merging must not move the quantiles, either."""
    rewards = np.random.default_rng(1).normal(size=groups)
    whole = Sketch.of(rewards.tolist())
    parts = merged(Sketch.of(part.tolist()) for part in np.array_split(rewards, 100))
    for sketch in (whole, parts):
        assert sketch.error > 0.1
        assert sketch.quantiles([0.1, 0.9]) == pytest.approx(np.quantile(rewards, [0.1, 0.9]), rel=0.03)
