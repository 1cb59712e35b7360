"""Draws from parts: places that are there, none twice, as many as asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.curriculum.indexes import ItemIndex, MixtureComponent
from app.core.curriculum.sampling import (
    ATTEMPTS,
    ItemProbabilities,
    choose,
    draws_for,
    generator,
    independent,
    probability_of,
)
from tests.core.numeric.chi_square import fits
from tests.properties import examples

SHAPES = st.lists(
    st.tuples(st.integers(1, 60), st.floats(1e-12, 1), st.sampled_from([0.0, 0.5, 10.0, 64.0])), min_size=1, max_size=5
)


def parts_of(shapes: list[tuple[int, float, float]]) -> list[MixtureComponent]:
    total, first, found = sum(weight for _, weight, _ in shapes), 0, []
    for size, weight, exponent in shapes:
        found.append(MixtureComponent(ItemIndex.SIGNAL, first, size, weight / total, "", exponent=exponent))
        first += size
    return found


@examples(300)
@given(SHAPES, st.integers(0, 200), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_draws_are_different_places_of_their_parts(
    shapes: list[tuple[int, float, float]], n: int, seed: int, counter: int
) -> None:
    parts = parts_of(shapes)
    draws = choose(parts, n, seed, counter)
    assert (
        len({(each.component.index, each.rank) for each in draws})
        == len(draws)
        == min(n, sum(part.size for part in parts))
    )
    for each in draws:
        assert each.component in parts
        assert each.component.first <= each.rank < each.component.first + each.component.size
    assert choose(parts, n, seed, counter) == draws


@examples(200)
@given(SHAPES)
def test_the_places_of_all_parts_have_probabilities_that_sum_to_1(shapes: list[tuple[int, float, float]]) -> None:
    parts = parts_of(shapes)
    places = range(-1, sum(part.size for part in parts) + 1)
    probabilities = [ItemProbabilities(parts).of({ItemIndex.SIGNAL: place}) for place in places]
    assert sum(probabilities) == pytest.approx(1)
    assert probabilities[0] == probabilities[-1] == 0


def test_the_highest_score_is_rank_1_of_zipf() -> None:
    part = MixtureComponent(ItemIndex.SIGNAL, 5, 3, 0.5, "", exponent=2.0)
    total = 1 + 1 / 4 + 1 / 9
    expected = [0.5 / 9 / total, 0.5 / 4 / total, 0.5 / total]
    assert [probability_of(part, rank) for rank in (5, 6, 7)] == pytest.approx(expected)
    assert [probability_of(part, rank) for rank in (4, 8)] == [0, 0]
    firsts = [choose([part], 1, 1, counter)[0].rank for counter in range(1000)]
    fits([firsts.count(rank) for rank in (5, 6, 7)], np.array(expected) * 2)


def test_independent_draws_follow_the_distribution_however_few_places_there_are() -> None:
    """Of what they say of bins, too: an item that is nearly always chosen decides."""
    mixture = [
        MixtureComponent(ItemIndex.SIGNAL, 0, 3, 0.8, "", exponent=2.0),
        MixtureComponent(ItemIndex.SIGNAL, 3, 2, 0.2, ""),
    ]
    ranks = [each.rank for each in independent(mixture, 2000, seed=1, counter=1)]
    fits(
        np.bincount(ranks, minlength=5), [ItemProbabilities(mixture).of({ItemIndex.SIGNAL: rank}) for rank in range(5)]
    )
    assert independent([], 5, 1, 1) == independent(mixture, 0, 1, 1) == []


def test_items_of_other_categories_have_no_part_in_one() -> None:
    parts = [
        MixtureComponent(ItemIndex.CATEGORY, 0, 4, 0.25, "", category="a"),
        MixtureComponent(ItemIndex.CATEGORY, 0, 3, 0.75, "", category=""),
    ]
    assert ItemProbabilities(parts).of({ItemIndex.CATEGORY: 1}, "a") == 0.25 / 4
    assert ItemProbabilities(parts).of({ItemIndex.CATEGORY: 1}) == 0.25


def test_a_law_that_hardly_ever_leaves_its_first_places_still_names_others() -> None:
    """Each next one is the best that is left, while the next is so much less likely."""
    steep = MixtureComponent(ItemIndex.SIGNAL, 0, 100_000, 1.0, "", exponent=64.0)
    ranks = [each.rank for each in choose([steep], 50, 1, 1)]
    assert ranks[:8] == list(range(99_999, 99_991, -1))
    assert min(ranks) > 99_900


def test_counters_seeds_and_streams_share_no_randomness() -> None:
    firsts = {
        tuple(generator(seed, counter, stream).random(4))
        for seed in (0, 1, 2**64 - 1)
        for counter in (0, 1, 2, 2**32)
        for stream in (0, 1)
    }
    assert len(firsts) == 24


@examples(300)
@given(st.integers(0, 2000), st.integers(0, 10**6), st.floats(0, 1), st.integers(0, ATTEMPTS - 1))
def test_more_are_drawn_than_wanted_but_not_without_end(wanted: int, items: int, share: float, attempt: int) -> None:
    in_flight = int(items * share)
    draws = draws_for(wanted, items, in_flight, attempt)
    assert wanted <= draws <= 2 * wanted + 20_000
    if attempt:
        assert draws >= draws_for(wanted, items, in_flight, attempt - 1)


def test_a_steep_law_whose_best_are_all_in_flight_gets_its_next_best() -> None:
    """The last attempt names all that is in flight, twice, and then some."""
    steep = MixtureComponent(ItemIndex.SIGNAL, 0, 100_000, 1.0, "", exponent=10.0)
    best = set(range(100_000 - 4096, 100_000))
    draws = choose([steep], draws_for(64, 100_000, 4096, ATTEMPTS - 1), 1, 1)
    assert sum(each.rank not in best for each in draws) >= 64
