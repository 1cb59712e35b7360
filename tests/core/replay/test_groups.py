"""What a group is to the replay buffer of its run."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.replay.buffer import Versions, versions_counted, versions_of

WHOLE = st.integers(0, 9)


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
