"""Which snapshots go for another one."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.replay.buffer import place_snapshot

SLOTS = 4
NAMES = st.sampled_from("abcdefgh")


@given(st.lists(NAMES, max_size=30), st.integers(1, SLOTS))
def test_there_are_the_latest_of_different_names_each_in_a_slot_of_its_own(taken: list[str], keep: int) -> None:
    there: dict[int, str] = {}
    for name in taken:
        slot, gone = place_snapshot(name, there, keep, SLOTS)
        there = {other: called for other, called in there.items() if other not in gone}
        assert slot not in there
        there[slot] = name
    latest = list(dict.fromkeys(reversed(taken)))[:keep]
    assert list(there.values()) == latest[::-1]


@given(st.lists(NAMES, min_size=SLOTS, max_size=SLOTS, unique=True), NAMES, st.integers(1, SLOTS))
def test_so_many_are_left_when_fewer_are_to_be_kept(names: list[str], name: str, keep: int) -> None:
    there = dict(enumerate(names))
    slot, gone = place_snapshot(name, there, keep, SLOTS)
    left = [other for number, other in there.items() if number not in gone]
    assert left == [other for other in names if other != name][len(names) - (name in names) - keep + 1 :]
    assert slot in gone
