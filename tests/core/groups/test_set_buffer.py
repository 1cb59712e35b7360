"""Groups of other sizes than declared wait until they add up to a set."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.groups.set_buffer import completed_set
from tests.core.batches.oracle import Group, arrivals, lanes_of, oldest_batch
from tests.properties import examples


def test_groups_that_add_up_to_the_declared_size_are_released_oldest_first() -> None:
    buffered = [Group(1, 3), Group(1, 2), Group(1, 3), Group(1, 5)]
    assert arrivals(completed_set(8, lanes_of(buffered, 8))) == (0, 1, 2)


def test_groups_that_do_not_add_up_stay() -> None:
    assert completed_set(8, lanes_of([Group(1, 3), Group(1, 3)], 8)) == ()
    assert completed_set(8, []) == ()


@examples(300)
@given(st.lists(st.integers(1, 7), max_size=9), st.integers(1, 8))
def test_the_oldest_set_is_found_whenever_one_exists(sizes: list[int], group_size: int) -> None:
    buffered = [Group(1, size) for size in sizes]
    assert arrivals(completed_set(group_size, lanes_of(buffered, group_size))) == (
        oldest_batch(buffered, group_size, {}) or ()
    )
