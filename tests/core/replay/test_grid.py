"""A grid has each chunk once, in the cell of its age and uses."""

import sys
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from app.core.replay.grid import MOST_AGES, MOST_USES, Spot, grid, spread_ranks

numbers = st.integers(0, 40) | st.integers(0, 10**9)
chunks = st.lists(st.tuples(numbers, numbers, st.floats(0, 1e6)), max_size=40)
VERSION = 10**9


@given(chunks)
def test_each_chunk_is_in_the_cell_whose_bounds_it_is_between(values: list[tuple[int, int, float]]) -> None:
    found = grid([Spot(VERSION - age, uses, priority) for age, uses, priority in values], VERSION)
    if not values:
        assert (found.age_edges, found.counts, found.mean_priorities) == ([], [], [])
        return
    assert len(found.age_edges) - 1 <= MOST_AGES
    assert len(found.uses_edges) - 1 <= MOST_USES
    cells = Counter[tuple[int, int]]()
    sums = Counter[tuple[int, int]]()
    for age, uses, priority in values:
        (column,) = (n for n in range(len(found.age_edges) - 1) if found.age_edges[n] <= age < found.age_edges[n + 1])
        (row,) = (n for n in range(len(found.uses_edges) - 1) if found.uses_edges[n] <= uses < found.uses_edges[n + 1])
        cells[row, column] += 1
        sums[row, column] += priority
    for row, counts in enumerate(found.counts):
        for column, count in enumerate(counts):
            assert count == cells[row, column]
            mean = found.mean_priorities[row][column]
            if count == 0:
                assert mean is None
            else:
                assert mean is not None
                assert abs(mean * count - sums[row, column]) <= 1e-6 * max(1.0, sums[row, column])


def test_the_mean_of_the_largest_priorities_is_finite() -> None:
    largest = sys.float_info.max
    assert grid([Spot(5, 0, largest), Spot(5, 0, largest)], 5).mean_priorities[0][0] == largest


@given(st.integers(0, 5000), st.integers(1, 300))
def test_ranks_are_spread_over_all_places(size: int, most: int) -> None:
    ranks = spread_ranks(size, most)
    assert ranks == sorted(set(ranks))
    assert len(ranks) <= most
    if size <= most:
        assert ranks == list(range(size))
        return
    part = size / most
    gaps = [after - before for before, after in zip([-1, *ranks], [*ranks, size], strict=True)]
    assert max(gaps) <= 2 * part + 2
    assert len(ranks) >= most / 2


def test_a_buffer_of_a_million_is_sampled_without_a_period() -> None:
    """Chunks of every n-th worker are found as often as they are there."""
    ranks = spread_ranks(1_000_000, 2000)
    for period in (2, 6, 64, 500, 1000):
        found = Counter(rank % period * 2 // period for rank in ranks)
        assert abs(found[0] - found[1]) < 0.1 * len(ranks), period
