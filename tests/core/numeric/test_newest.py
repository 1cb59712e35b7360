"""Which values are kept within a number and a size, such as delivered batches for a rewind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.numeric.newest import oldest_beyond

sizes = st.lists(st.integers(0, 9), max_size=8)


def most_that_fit(sizes_bytes: list[int], keep_batches: int, keep_bytes: int) -> list[int]:
    """The longest run of newest batches within both limits, tried one by one."""
    suffixes = [sizes_bytes[gone:] for gone in range(len(sizes_bytes) + 1)]
    return next(kept for kept in suffixes if len(kept) <= keep_batches and sum(kept) <= keep_bytes)


@given(sizes, st.integers(0, 9), st.integers(0, 40))
def test_as_many_of_the_newest_batches_are_kept_as_fit(
    sizes_bytes: list[int], keep_batches: int, keep_bytes: int
) -> None:
    gone = oldest_beyond(sizes_bytes, keep_batches, keep_bytes)
    assert sizes_bytes[gone:] == most_that_fit(sizes_bytes, keep_batches, keep_bytes)


@given(sizes, st.integers(0, 9), st.integers(0, 40))
def test_what_is_kept_is_within_the_limits_and_nothing_of_it_need_go(
    sizes_bytes: list[int], keep_batches: int, keep_bytes: int
) -> None:
    kept = sizes_bytes[oldest_beyond(sizes_bytes, keep_batches, keep_bytes) :]
    assert len(kept) <= keep_batches
    assert sum(kept) <= keep_bytes
    assert oldest_beyond(kept, keep_batches, keep_bytes) == 0


@pytest.mark.parametrize(
    ("sizes_bytes", "keep_batches", "keep_bytes", "gone"),
    [
        ([5, 5, 5], 2, 100, 1),
        ([5, 5, 5], 9, 10, 1),
        ([5, 5, 5], 0, 100, 3),
        ([5, 5, 5], 9, 0, 3),
        ([1, 20, 1], 9, 10, 2),  # one too large takes those before it along: a rewind cannot skip it
        ([1, 1, 20], 9, 10, 3),
    ],
)
def test_no_batch_is_kept_before_one_that_is_not(
    sizes_bytes: list[int], keep_batches: int, keep_bytes: int, gone: int
) -> None:
    assert oldest_beyond(sizes_bytes, keep_batches, keep_bytes) == gone
