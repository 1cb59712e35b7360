"""Joined spans against the sum of all spans in each place."""

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from app.core.history.joined import JoinedSpans
from app.core.history.resolution import Range
from app.core.history.series import Facts, HistorySpan, added

RANGE = Range(100, 160, 20)
some_names = st.dictionaries(st.sampled_from(["", "math", "code"]), st.integers(1, 5))
pieces = st.lists(st.lists(st.tuples(st.integers(90, 170), some_names), max_size=4), max_size=4)


def span_of(groups: dict[str, int]) -> HistorySpan:
    return HistorySpan(environments={name: Facts({"groups_in": count}) for name, count in groups.items()})


@given(pieces)
def test_pieces_add_up_in_each_place_and_stay_as_they_are(parts: list[list[tuple[int, dict[str, int]]]]) -> None:
    given_parts = [[(time_s, span_of(groups)) for time_s, groups in part] for part in parts]
    before, joined = deepcopy(given_parts), JoinedSpans(RANGE)
    for part in given_parts:
        joined.add(part)
    inside = [(time_s, span) for part in before for time_s, span in part if 100 <= time_s < 160]
    places = {(time_s - 100) // 20 for time_s, _ in inside}
    assert joined.spans == {
        place: added(span for time_s, span in inside if (time_s - 100) // 20 == place) for place in places
    }
    assert joined.environments == len({name for _, span in inside for name in span.environments} - {""})
    assert given_parts == before
