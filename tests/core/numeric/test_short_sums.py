"""Sums and means of arrays that are mostly short."""

import math
import sys

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.numeric.short_sums import mean


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
@example([1e308, -1e308] * 12)
@example([1e308, -1e308] * 50)
@example([0.1, 0.2, 0.7] * 300)
@example([sys.float_info.max] * 1998)
def test_the_mean_of_finite_numbers_is_finite_and_between_them(numbers: list[float]) -> None:
    found = mean(np.array(numbers))
    assert min(numbers) <= found <= max(numbers)
    if max(map(abs, numbers)) < 1e300:
        assert math.isclose(
            found, math.fsum(numbers) / len(numbers), rel_tol=1e-9, abs_tol=1e-9 * max(map(abs, numbers))
        )
