"""Thompson sampling against its definition."""

import numpy as np
import pytest

from app.core.curriculum.estimates import Estimate, Evidence
from app.core.curriculum.state import CurriculumHeader
from app.core.curriculum.strategies.thompson import best, best_probabilities, candidate_ranges, candidates_for
from lachesis.wire.curricula import CurriculumSettings
from tests.core.curriculum.population import Population
from tests.core.numeric.chi_square import fits

POLICY = CurriculumSettings(strategy="thompson")
CANDIDATES = [
    Estimate(0.5, 4, 8.0, 8.0),
    Estimate(0.9, 4, 14.0, 2.0),
    Estimate(),
    Estimate(0.2, prior=0.2),
    Estimate(0.4, 1, 1.0, 2.0),
]


@pytest.mark.parametrize(
    ("winner", "target", "expected"),
    [(Estimate(1, 1, 1, 0), 1.0, 2 / 3), (Estimate(0, 1, 0, 1), 1.0, 1 / 3), (Estimate(1, 1, 4, 0), 1.0, 5 / 6)],
)
def test_against_an_item_unknown_the_chance_is_the_posteriors_mean(
    winner: Estimate, target: float, expected: float
) -> None:
    """P(X > U) = E[X] for U uniform."""
    settings = CurriculumSettings(strategy="thompson", target_pass_rate=target)
    assert best_probabilities(settings, [winner, Estimate()]) == pytest.approx([expected, 1 - expected], abs=2e-3)


@pytest.mark.parametrize("target", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 5.0])
def test_the_best_are_as_often_the_best_as_their_posteriors_say(target: float, temperature: float) -> None:
    settings = CurriculumSettings(strategy="thompson", target_pass_rate=target, temperature=temperature)
    distribution = best_probabilities(settings, CANDIDATES)
    firsts = [best(settings, Evidence.of(CANDIDATES), 1, counter)[0] for counter in range(1000)]
    fits(np.bincount(firsts, minlength=len(CANDIDATES)), distribution)


def test_rare_winners_are_distinguished_from_rarer_ones() -> None:
    """On the grid's own scale: who is in the same cell wins half the time."""
    settings = CurriculumSettings(strategy="thompson", target_pass_rate=1.0)
    distribution = best_probabilities(settings, [Estimate(1, 9, 999, 0), Estimate()])
    assert distribution[1] == pytest.approx(1 / 1001, rel=0.1)


def test_items_known_all_too_well_share_the_first_place_if_they_are_alike() -> None:
    """Their densities are narrower than the grid."""
    middling, hard = Estimate(0.5, 9, 1e8, 1e8), Estimate(0.25, 9, 1e8, 3e8)
    assert best_probabilities(POLICY, [middling, hard, middling]) == pytest.approx([0.5, 0, 0.5])


def test_temperature_divides_the_evidence() -> None:
    half = [Estimate(each.ema, each.count, each.passed / 2, each.failed / 2) for each in CANDIDATES if each.count]
    whole = [each for each in CANDIDATES if each.count]
    warm = CurriculumSettings(strategy="thompson", temperature=2)
    assert best_probabilities(warm, whole) == pytest.approx(best_probabilities(POLICY, half))


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
def test_extremes_overflow_nothing(temperature: float) -> None:
    settings = CurriculumSettings(strategy="thompson", temperature=temperature)
    candidates = [*CANDIDATES, Estimate(1, 10**6, 1e9, 1.0)]
    assert sum(best_probabilities(settings, candidates)) == pytest.approx(1)
    assert sorted(best(settings, Evidence.of(candidates), 1, 1)) == list(range(6))
    assert best_probabilities(settings, []) == best(settings, Evidence.of([]), 1, 1) == []


def test_all_items_that_can_be_had_are_compared_up_to_the_number_of_candidates() -> None:
    """Then it is Thompson sampling itself: each item is as often the first as the distribution over all says."""
    seen = [0] * len(CANDIDATES)
    for counter in range(600):
        population = Population(CurriculumHeader(POLICY, counter=counter), CANDIDATES)
        seen[population.sample(1)[0]] += 1
    fits(seen, best_probabilities(POLICY, CANDIDATES))
    assert candidates_for(POLICY, 5) == 1024
    assert candidates_for(POLICY, 2000) == 2000


@pytest.mark.parametrize(("items", "most"), [(0, 1), (1, 1), (9, 9), (1000, 1000), (1023, 1024), (1025, 1024), (9, 4)])
def test_a_sample_compares_different_items_and_all_of_them_if_they_are_few(items: int, most: int) -> None:
    ranges = candidate_ranges(most, items, 1, 2)
    ranks = [rank for first, last in ranges for rank in range(first, min(last + 1, items))]
    assert len(ranks) == len(set(ranks)) <= most
    assert items > most or sorted(ranks) == list(range(items))


@pytest.mark.parametrize(("items", "most"), [(20, 3), (1037, 512), (2051, 1024)])
def test_every_item_is_a_candidate_with_the_same_probability(items: int, most: int) -> None:
    """The last range is shorter."""
    seen = np.zeros(items + 8, int)
    for counter in range(2000):
        for first, last in candidate_ranges(most, items, 3, counter):
            seen[first : last + 1] += 1
    size = max(1, most // 128)  # counts of the ranges: of all items in one, they are the same
    of_ranges = seen[:items:size]
    fits(of_ranges, np.full(len(of_ranges), 1 / len(of_ranges)))


def test_a_tournament_still_prefers_the_uncertain_and_the_middling() -> None:
    """With fewer candidates than items."""
    settings = CurriculumSettings(strategy="thompson", candidates=8)
    items = [Estimate(each, 9, 1 + 20 * each, 1 + 20 * (1 - each)) for each in np.linspace(0, 1, 101).tolist()]
    population = Population(CurriculumHeader(settings), items)
    taken = []
    for _ in range(60):
        (item,) = population.sample(1)
        taken.append(item)
        population.in_flight[:] = False
    assert 40 < np.mean(taken) < 60
    assert np.mean(np.abs(np.array(taken) - 50)) < 15
