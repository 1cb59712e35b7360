"""Series of curricula, against the numbers that were noted."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.history.curricula import MOST_CURRICULA, add_items, curriculum_series
from app.core.history.series import Facts

POINTS, TENTHS = 5, 3
noted = st.dictionaries(
    st.integers(0, POINTS - 1), st.dictionaries(st.sampled_from(["a", "b:0", "unseen"]), st.integers(0, 9))
)


@given(noted)
def test_series_have_what_was_noted_and_none_elsewhere(items: dict[int, dict[str, int]]) -> None:
    facts = {place: Facts(lasts={"step": 1}) for place in items}
    for place, curricula in items.items():
        for name, count in curricula.items():
            add_items(facts[place], name, [9, 9, 9], 9)
            add_items(facts[place], name, [count, 0, 1], count + 1)
    found = curriculum_series(facts, POINTS, TENTHS)
    assert list(found) == sorted({name for curricula in items.values() for name in curricula})
    for name, series in found.items():
        counts = [items.get(place, {}).get(name) for place in range(POINTS)]
        assert series.items_by_reward[0] == counts
        assert series.items_by_reward[1:] == [
            [None if count is None else constant for count in counts] for constant in (0, 1)
        ]
        assert series.unseen == [None if count is None else count + 1 for count in counts]


def test_curricula_that_come_and_go_are_not_all_shown() -> None:
    facts = {place: Facts() for place in range(100)}
    for place, one in facts.items():
        for n in range(MOST_CURRICULA):
            add_items(one, f"{place}-{n}", [1], 0)
    found = curriculum_series(facts, 100, 1)
    assert sorted(found) == sorted(f"99-{n}" for n in range(MOST_CURRICULA))
