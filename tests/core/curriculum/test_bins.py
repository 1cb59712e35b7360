"""Bins are ranges of ranks, equal within one; the distribution over them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.curriculum.bins import bin_at, bin_distribution, bin_of, bin_sizes, middle, ranks_of
from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent
from tests.properties import examples


@examples(400)
@given(st.integers(0, 300), st.integers(1, 100))
def test_bins_are_equal_within_one_and_the_easiest_is_bin_0(seen: int, n_bins: int) -> None:
    bins = [ranks_of(each, seen, n_bins) for each in range(n_bins)]
    assert [rank for each in reversed(bins) for rank in each] == list(range(seen))
    assert max(map(len, bins)) - min(map(len, bins)) <= 1
    for each, ranks in enumerate(bins):
        assert {bin_of(rank, seen, n_bins) for rank in ranks} <= {each}


def test_a_million_items_are_in_their_bins() -> None:
    for rank in (0, 199_999, 200_000, 500_000, 999_999):
        assert rank in ranks_of(bin_of(rank, 10**6, 5), 10**6, 5)
    assert [bin_of(rank, 10**6, 5) for rank in (0, 199_999, 200_000, 999_999)] == [4, 4, 3, 0]


def test_unknown_items_belong_to_the_middle_bin() -> None:
    assert [middle(each) for each in (1, 2, 5, 6)] == [0, 1, 2, 3]
    assert bin_sizes(ItemCounts({ItemIndex.MEAN_REWARD: 7, ItemIndex.UNSEEN: 40}), 5) == [1, 1, 42, 1, 2]


def test_items_without_a_rank_are_in_the_middle_bin_and_late_ones_count() -> None:
    assert [bin_at(rank, 10, 5) for rank in range(-1, 12)] == [2, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0, 0, 0]
    assert bin_at(-1, 0, 5) == 2
    assert bin_at(0, 0, 5) == bin_of(0, 1, 5)


def test_a_law_over_ease_is_a_law_over_bins() -> None:
    counts = ItemCounts({ItemIndex.MEAN_REWARD: 10, ItemIndex.UNSEEN: 3})
    mixture = [
        MixtureComponent(ItemIndex.MEAN_REWARD, 3, 5, 0.5, ""),
        MixtureComponent(ItemIndex.MEAN_REWARD, 9, 1, 0.3, ""),
        MixtureComponent(ItemIndex.UNSEEN, 0, 3, 0.2, ""),
    ]
    assert bin_distribution(mixture, counts, 5) == pytest.approx([0.3, 0.2, 0.2 + 0.2, 0.1, 0])
    assert bin_distribution(mixture, counts, 1) == [pytest.approx(1)]


def test_places_of_other_orders_must_be_looked_up() -> None:
    counts = ItemCounts({ItemIndex.MEAN_REWARD: 10, ItemIndex.SIGNAL: 10})
    mixture = [
        MixtureComponent(ItemIndex.MEAN_REWARD, 8, 2, 0.5, ""),
        MixtureComponent(ItemIndex.SIGNAL, 0, 10, 0.5, ""),
    ]
    with pytest.raises(ValueError, match="looked up"):
        bin_distribution(mixture, counts, 5)
    assert bin_distribution(mixture, counts, 5, looked_up=[4, 4, 0, 1]) == pytest.approx([0.625, 0.125, 0, 0, 0.25])
