"""The set of keys against Python's own."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.curriculum.key_set import KeySet
from tests.properties import examples

KEYS = st.lists(st.lists(st.text(max_size=2) | st.integers(0, 40).map(str), max_size=12), max_size=40)


@examples(300)
@given(KEYS)
def test_each_key_is_new_once(parts: list[list[str]]) -> None:
    tested, known = KeySet(), set[str]()
    for part in parts:
        expected = []
        for key in part:
            expected.append(key not in known)
            known.add(key)
        assert tested.add(part) == expected


def test_many_keys_take_little_memory() -> None:
    tested = KeySet()
    for first in range(0, 100_000, 500):
        assert all(tested.add([f"key {n}" for n in range(first, first + 500)]))
    assert sum(each.nbytes for each in tested._sorted) == 16 * 100_000
    assert len(tested._sorted) < 20
    assert not any(tested.add([f"key {n}" for n in range(0, 100_000, 99)]))
