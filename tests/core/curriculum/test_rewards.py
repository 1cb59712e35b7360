"""Items by mean reward, against a count of each item."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.curriculum.rewards import reward_edges, reward_spans
from lachesis.wire.curricula import REWARD_TENTHS, CurriculumSettings

bounds = st.tuples(st.floats(-1e6, 0), st.floats(1e-3, 1e6))


@given(bounds, st.lists(st.floats(-1e6, 1e6)))
def test_each_item_is_in_the_one_tenth_whose_bounds_it_is_between(
    ends: tuple[float, float], rewards: list[float]
) -> None:
    settings = CurriculumSettings(reward_min=ends[0], reward_max=ends[1])
    edges, spans = reward_edges(settings), reward_spans(settings)
    assert (len(edges), len(spans), edges[0], edges[-1]) == (REWARD_TENTHS + 1, REWARD_TENTHS, *ends)
    assert edges == sorted(edges)
    for reward in [*rewards, *ends]:
        (tenth,) = (n for n, span in enumerate(spans) if span.low <= reward < span.high)
        assert tenth == 0 or edges[tenth] <= reward
        assert tenth == REWARD_TENTHS - 1 or reward < edges[tenth + 1]
