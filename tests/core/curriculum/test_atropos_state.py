"""The state of Atropos's CurriculumScheduler can be loaded, and its faults, by name, are not ours."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.core.curriculum.atropos_state import load_atropos
from app.core.curriculum.bins import ranks_of
from app.core.curriculum.estimates import Estimate, posterior
from app.core.curriculum.indexes import ItemIndex
from app.core.curriculum.state import CurriculumHeader
from app.core.curriculum.strategies.competence import frontier
from app.core.curriculum.strategies.table import needs_progress, parts, spans
from app.core.curriculum.strategies.thompson import best_probabilities
from lachesis.wire.curricula import CurriculumSettings
from lachesis.wire.errors import InvalidField
from tests.core.curriculum.population import Population
from tests.core.curriculum.test_strategies import EXAMPLES, NAMES, distribution_by_parts

STATE: dict[str, Any] = {
    "strategy": "competence_based",
    "n_bins": 4,
    "temperature": 0.5,
    "ema_alpha": 0.2,
    "competence_threshold": 0.7,
    "item_scores": {"easy": [0.9, 12], "hard": [0.1, 3], "never": [0.0, 0]},
    "bin_boundaries": [0.2, 0.5, 0.8],
    "last_rebin_count": 10,
}
FRONTIER = CurriculumSettings(strategy="competence_based", form="frontier")


def test_the_state_of_atropos_can_be_loaded() -> None:
    header, items = load_atropos(STATE)
    expected = CurriculumSettings(
        strategy="competence_based",
        n_bins=4,
        temperature=0.5,
        ema_alpha=0.2,
        competence_threshold=0.7,
        form="frontier",
    )
    assert header == CurriculumHeader(expected, updates=15)
    assert (items["easy"].ema, items["easy"].count, items["easy"].last) == (0.9, 12, 0.9)
    assert items["never"] == Estimate()
    assert posterior(expected, items["hard"]) == pytest.approx((1.271, 3.439))
    assert items["hard"].signal == pytest.approx(2 * 0.1 * 0.9)
    population = Population(header, list(items.values()))
    assert sorted(population.sample(3)) == [0, 1, 2]


def test_evidence_from_atropos_is_forgotten_as_ours_is() -> None:
    _, items = load_atropos(STATE)
    assert items["easy"].passed + items["easy"].failed == pytest.approx(sum(0.9**age for age in range(12)))


@pytest.mark.parametrize(
    ("change", "location"),
    [
        ({"strategy": "hard_first"}, ("strategy",)),
        ({"n_bins": 0}, ("n_bins",)),
        ({"items": {}}, ("items",)),
        ({"item_scores": [1]}, ("item_scores",)),
        ({"item_scores": {"a": 0.5}}, ("item_scores", "a")),
        ({"item_scores": {"a": [0.5]}}, ("item_scores", "a")),
        ({"item_scores": {"a": [float("nan"), 1]}}, ("item_scores", "a", 0)),
        ({"item_scores": {"a": [1.001e6, 1]}}, ("item_scores", "a", 0)),
        ({"item_scores": {"a": [1e8, 1]}}, ("item_scores", "a", 0)),
        ({"item_scores": {"a": [0.5, 2**53], "b": [0.5, 1]}}, ("item_scores",)),
        ({"item_scores": {"a": [0.5, 1.5]}}, ("item_scores", "a", 1)),
    ],
)
def test_what_is_not_its_state_is_refused_with_its_place(
    change: dict[str, Any], location: tuple[str | int, ...]
) -> None:
    with pytest.raises(InvalidField) as refused:
        load_atropos(STATE | change)
    assert refused.value.location == location
    assert str(location[0]) not in refused.value.message


def test_fault_bin_0_held_only_ties_with_the_best_item() -> None:
    """There, five bins of a thousand items held 1, 200, 200, 200 and 399 of them."""
    scores = np.random.default_rng(1).random(1000)
    for emas in (scores, np.round(scores, 1), np.ones(1000)):
        population = Population(CurriculumHeader(), [Estimate(each, 1) for each in emas.tolist()])
        assert np.bincount([population.bin(item) for item in range(1000)]).tolist() == [200] * 5
        easiest = population.standing(ItemIndex.MEAN_REWARD)[ranks_of(0, 1000, 5)]
        assert emas[easiest].min() >= np.delete(emas, easiest).max()


def test_fault_the_competence_threshold_was_never_used() -> None:
    """Here it is the reward level that marks the frontier."""
    items = [Estimate(each / 100, 1) for each in range(100)]
    bins = {
        threshold: frontier(settings, Population(CurriculumHeader(settings), items).counts())
        for threshold in (-1, 0.05, 0.5, 0.75, 2)
        for settings in [FRONTIER.model_copy(update={"competence_threshold": threshold})]
    }
    assert bins == {-1: 4, 0.05: 4, 0.5: 2, 0.75: 1, 2: 0}


def test_fault_competence_was_the_progress_of_steps() -> None:
    """Here a learner that gets better moves the frontier, and steps do not."""
    assert not needs_progress(FRONTIER)
    frontiers = []
    for skill in (0.0, 0.3, 0.6, 0.9):
        items = [Estimate(min(1.0, skill + each / 100), 1) for each in range(100)]
        counts = Population(CurriculumHeader(FRONTIER), items).counts()
        assert parts(FRONTIER, counts, 0.0) == parts(FRONTIER, counts, 1.0)
        frontiers.append(frontier(FRONTIER, counts))
    assert frontiers == [2, 4, 4, 4]


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_fault_an_update_took_time_in_proportion_to_the_items(settings: CurriculumSettings) -> None:
    """Here no rule ever sees an item but the one observed; what must be counted and drawn from does not grow."""
    sizes = []
    for items in (1_000, 100_000):
        halves = dict.fromkeys(ItemIndex, items) | {ItemIndex.PRIOR_ONLY: 0}
        counted = Population.of(settings, 0).counts()
        asked = spans(settings, 500)
        mixture = parts(
            settings,
            replace(counted, lengths=halves, spans=(items // 200,) * len(asked), categories={"a": items}, samples=500),
            0.5,
        )
        sizes.append((len(asked), len(mixture)))
    assert sizes[0] == sizes[1]
    assert sizes[0][0] <= 160


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_fault_the_generator_was_global_and_not_in_the_state(settings: CurriculumSettings) -> None:
    """Here another's use of numpy's generator changes nothing, nor is it used; test_restoring.py has the rest."""
    taken = []
    for disturbed in (False, True):
        np.random.seed(7 if disturbed else 8)
        before = np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
        population = Population.of(settings, 50)
        taken.append([population.sample(5, 0.5) for _ in range(3)])
        assert np.random.get_state()[1].tolist() == before  # type: ignore[index,union-attr]
    assert taken[0] == taken[1]


@pytest.mark.parametrize(
    "settings",
    [each for each in EXAMPLES if each.strategy != "uniform"],
    ids=lambda each: each.strategy,
)
def test_fault_nothing_ever_called_update_or_sample(settings: CurriculumSettings) -> None:
    """Here what is observed changes what is sampled: the same groups, of other items."""
    distributions = []
    for shift in (0, 3):
        population = Population.of(settings, 8, ["a", "b"] * 4)
        for item in range(8):
            passed = 8 - (item + shift) % 8
            population.observe(item, [1.0] * passed + [0.0] * (8 - passed))
        if settings.strategy == "thompson":
            distributions.append(best_probabilities(settings, population.estimates))
        else:
            distributions.append(distribution_by_parts(population, 0.1))
    assert distributions[0] != pytest.approx(distributions[1])
