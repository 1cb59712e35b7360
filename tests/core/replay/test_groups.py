"""What a group is to the replay buffer of its run."""

import math
import sys

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.replay.buffer import Versions, mean_reward, versions_counted, versions_of

WHOLE = st.integers(0, 9)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
@example([1e308, -1e308] * 12)
@example([1e308, -1e308] * 50)
@example([0.1, 0.2, 0.7] * 300)
@example([sys.float_info.max] * 1998)
def test_the_mean_of_finite_scores_is_finite_and_between_them(scores: list[float]) -> None:
    mean = mean_reward(np.array(scores))
    assert min(scores) <= mean <= max(scores)
    if max(map(abs, scores)) < 1e300:
        assert math.isclose(mean, math.fsum(scores) / len(scores), rel_tol=1e-9, abs_tol=1e-9 * max(map(abs, scores)))


@given(st.lists(WHOLE, min_size=1), WHOLE)
def test_tokens_count_as_sampled_by_no_version_that_is_not_in_force(tokens: list[int], current: int) -> None:
    """And where all of them are in force, as what they say."""
    counted = versions_counted(min(tokens), versions_of(tokens), current)
    assert counted.lowest <= counted.mean <= counted.highest <= current
    assert counted.lowest == min(*tokens, current)
    assert counted.highest == min(max(tokens), current)
    if max(tokens) <= current:
        assert counted == versions_of(tokens)


def test_a_group_that_says_one_version_is_of_that_alone() -> None:
    assert versions_counted(3, None, 5) == Versions(3, 3.0, 3)
