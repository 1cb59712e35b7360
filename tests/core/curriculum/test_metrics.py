"""A curriculum's numbers for people."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.curriculum.indexes import ItemIndex, MixtureComponent
from app.core.curriculum.metrics import CurriculumTotals, entropy, metrics
from app.core.curriculum.sampling import probability_of
from app.core.curriculum.strategies.table import parts
from lachesis.wire.curricula import CurriculumSettings
from tests.core.curriculum.population import Population
from tests.core.curriculum.test_sampling import SHAPES, parts_of
from tests.core.curriculum.test_strategies import EXAMPLES, NAMES, known
from tests.properties import examples

PAGE = Path(__file__).parents[3] / "docs/how-to/curriculum.md"
ATROPOS = {
    *("items_tracked", "mean_difficulty", "min_difficulty", "max_difficulty", "total_updates"),
    *(f"bin_{each}_count" for each in range(5)),
}


@examples(200)
@given(SHAPES, st.sampled_from([1e-9, 1.0]))
def test_the_entropy_is_that_of_the_places(shapes: list[tuple[int, float, float]], flat: float) -> None:
    mixture = parts_of([(size, weight, exponent * flat) for size, weight, exponent in shapes])
    each = [probability_of(part, part.first + place) for part in mixture for place in range(part.size)]
    assert entropy(mixture) == pytest.approx(-sum(p * math.log(p) for p in each if p), abs=1e-6)


def test_a_million_items_alike_have_the_entropy_of_a_million() -> None:
    assert entropy([MixtureComponent(ItemIndex.MEAN_REWARD, 0, 10**6, 1.0, "")]) == pytest.approx(math.log(10**6))


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_there_is_what_atropos_shows_and_each_strategys_own(settings: CurriculumSettings) -> None:
    counts = known(settings).counts()
    totals = CurriculumTotals(reward_sum=2.6, reward_min=0.1, reward_max=0.9, updates=11, in_flight=2)
    shown = metrics(settings, counts, totals, parts(settings, counts, 0.5), 0.5)
    assert {f"curriculum/{name}" for name in ATROPOS} <= shown.keys() or settings.n_bins != 5
    assert shown["curriculum/items_tracked"] == 4
    assert [shown[f"curriculum/{name}"] for name in ("total_updates", "in_flight", "progress")] == [11, 2, 0.5]
    assert shown["curriculum/coverage"] == pytest.approx(4 / 6)
    assert shown["curriculum/mean_difficulty"] == pytest.approx(2.6 / 5)
    assert sum(value for name, value in shown.items() if name.startswith("curriculum/bin_") and "count" in name) == 6
    probabilities = [value for name, value in shown.items() if name.endswith("_probability")]
    assert not probabilities or sum(probabilities) == pytest.approx(1)
    own = {
        "competence_based": "competence" if "curriculum/competence" in shown else "frontier_bin",
        "difficulty_pools": "pool_normal_count",
        "bandit": "arm_bin:2" if settings.arms == "bins" else "arm_category:a",
    }
    assert f"curriculum/{own.get(settings.strategy, 'progress')}" in shown
    assert all(math.isfinite(value) for value in shown.values())


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_a_distribution_is_shown_where_there_is_one_and_its_bins_where_they_are_known(
    settings: CurriculumSettings,
) -> None:
    """Thompson sampling draws candidates with the same probability, which says nothing of the items it takes."""
    counts = known(settings).counts()
    mixture = parts(settings, counts, 0.5)
    shown = metrics(settings, counts, CurriculumTotals(), mixture, 0.5)
    of_all = {name: shown.get(f"curriculum/{name}") for name in ("entropy", "effective_items")}
    of_bins = {name for name in shown if name.endswith("_probability")}
    if settings.strategy == "thompson":
        assert of_all == {"entropy": None, "effective_items": None}
        assert not of_bins
        return
    assert of_all == {"entropy": entropy(mixture), "effective_items": math.exp(entropy(mixture))}
    are_known = {part.index for part in mixture} <= {ItemIndex.MEAN_REWARD, ItemIndex.UNSEEN}
    bins = {f"curriculum/bin_{each}_probability" for each in range(settings.n_bins)}
    assert of_bins == (bins if are_known else set())


@pytest.mark.parametrize(
    ("settings", "arms"),
    [
        (CurriculumSettings(strategy="bandit", n_bins=2), {"arm_bin:0"}),
        (CurriculumSettings(strategy="bandit", arms="categories"), {"arm_category:", "arm_category:math"}),
    ],
    ids=["fewer bins", "categories instead of bins"],
)
def test_arms_from_before_a_change_of_settings_are_not_shown(settings: CurriculumSettings, arms: set[str]) -> None:
    values = {"bin:0": 0.1, "bin:3": 0.2, "category:": 0.3, "category:math": 0.4}
    counts = replace(known(settings).counts(), arms=values)
    shown = metrics(settings, counts, CurriculumTotals(), parts(settings, counts, 0.5))
    assert {name.removeprefix("curriculum/") for name in shown if "/arm_" in name} == arms


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_the_page_on_curricula_names_each_metric(settings: CurriculumSettings) -> None:
    counts = known(settings).counts()
    shown = metrics(settings, counts, CurriculumTotals(), parts(settings, counts, 0.5))
    names = {re.sub(r"arm_.*", "arm_…", re.sub(r"bin_\d", "bin_0", name.removeprefix("curriculum/"))) for name in shown}
    assert names <= set(re.findall(r"`([\w…]+)`", PAGE.read_text()))


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_an_empty_curriculum_has_metrics_too(settings: CurriculumSettings) -> None:
    counts = Population.of(settings, 0).counts()
    shown = metrics(settings, counts, CurriculumTotals(), parts(settings, counts, 0.5))
    assert shown["curriculum/coverage"] == shown["curriculum/items"] == 0
    assert not {"curriculum/mean_difficulty", "curriculum/entropy"} & shown.keys()
