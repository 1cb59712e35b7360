"""The bounded Zipf distribution against its definition."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from app.core.numeric.zipf import zipf_ranks, zipf_total, zipf_without_replacement
from tests.core.numeric.chi_square import fits

EXPONENTS = [0.0, 0.3, 0.6, 1.0, 1.0 + 1e-9, 1.0 - 1e-7, 2.0, 4.0]


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("ranks", [1, 2, 7, 100])
def test_ranks_are_drawn_as_often_as_the_law_says(exponent: float, ranks: int) -> None:
    drawn = zipf_ranks(exponent, ranks, 40_000, np.random.Generator(np.random.Philox(key=7)))
    terms = np.arange(1, ranks + 1) ** -exponent
    fits(np.bincount(drawn - 1, minlength=ranks), terms / terms.sum())


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_million_ranks_are_drawn_as_the_law_says(exponent: float) -> None:
    """By sixths of a decade, whose probabilities are differences of the sum that the next test checks."""
    drawn = zipf_ranks(exponent, 10**6, 40_000, np.random.Generator(np.random.Philox(key=8)))
    assert drawn.min() >= 1
    assert drawn.max() <= 10**6
    edges = np.unique(np.logspace(0, 6, 37).astype(int))
    upto = np.array([zipf_total(exponent, int(edge)) for edge in edges]) / zipf_total(exponent, 10**6)
    fits(np.bincount(np.searchsorted(edges, drawn), minlength=len(edges)), np.diff(upto, prepend=0.0))


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("ranks", [1, 31, 32, 33, 1000, 300_000])
def test_the_total_is_the_sum(exponent: float, ranks: int) -> None:
    terms = np.arange(1, ranks + 1, dtype=np.float64) ** -exponent
    assert zipf_total(exponent, ranks) == pytest.approx(float(terms[::-1].sum()), rel=1e-13)


@pytest.mark.parametrize("exponent", [0.0, 0.6, 2.0, 64.0])
def test_ranks_from_a_first_one_on_keep_their_shares(exponent: float) -> None:
    drawn = zipf_ranks(exponent, 60, 40_000, np.random.Generator(np.random.Philox(key=9)), first=50)
    terms = (np.arange(50, 61) / 50) ** -exponent
    fits(np.bincount(drawn - 50, minlength=11), terms / terms.sum())


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0, 4.0])
def test_different_ranks_come_in_the_order_of_draws_without_replacement(exponent: float) -> None:
    """Against every ordered sample of 3 of 4 ranks, each with its probability."""
    generator = np.random.Generator(np.random.Philox(key=10))
    terms = np.arange(1, 5.0) ** -exponent
    expected = {
        order: float(np.prod([terms[n] / (terms.sum() - terms[list(order[:i])].sum()) for i, n in enumerate(order)]))
        for order in permutations(range(4), 3)
    }
    seen = Counter(tuple((zipf_without_replacement(exponent, 4, 3, generator) - 1).tolist()) for _ in range(20_000))
    fits([seen[order] for order in expected], np.array(list(expected.values())))


@pytest.mark.parametrize("exponent", [0.1, 1.0, 64.0])
def test_all_ranks_can_be_drawn_each_once(exponent: float) -> None:
    drawn = zipf_without_replacement(exponent, 500, 500, np.random.Generator(np.random.Philox(key=11)))
    assert sorted(drawn.tolist()) == list(range(1, 501))
