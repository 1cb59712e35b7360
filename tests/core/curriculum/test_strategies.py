"""Each strategy's parts against its definition, item by item, and draws from them against the distribution."""

from collections import Counter
from dataclasses import replace
from itertools import permutations
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.curriculum.checks import check_settings
from app.core.curriculum.estimates import Estimate, unseen
from app.core.curriculum.indexes import ItemCounts, ItemIndex
from app.core.curriculum.sampling import ItemProbabilities, choose
from app.core.curriculum.state import CurriculumHeader
from app.core.curriculum.strategies.table import needs_progress, parts
from lachesis.wire.curricula import Arms, CurriculumSettings, CurriculumStrategy, Form
from tests.core.curriculum.definitions import distribution_of, kinds_of, next_free
from tests.core.curriculum.population import Population
from tests.core.numeric.chi_square import fits
from tests.properties import examples

EXAMPLES = [
    CurriculumSettings(),
    CurriculumSettings(strategy="easy_first"),
    CurriculumSettings(strategy="easy_first", temperature=0.5, n_bins=3),
    CurriculumSettings(strategy="competence_based", initial_competence=0.2),
    CurriculumSettings(strategy="competence_based", form="frontier"),
    CurriculumSettings(strategy="learnability"),
    CurriculumSettings(strategy="learnability", temperature=0.3),
    CurriculumSettings(strategy="thompson"),
    CurriculumSettings(strategy="plr", score_temperature=1, staleness_share=0.3),
    CurriculumSettings(strategy="plr", unseen_share=0.1, temperature=2),
    CurriculumSettings(strategy="difficulty_pools", easy_weight=0.5),
    CurriculumSettings(strategy="bandit", temperature=0.1),
    CurriculumSettings(strategy="bandit", arms="categories", temperature=0.1),
]
NAMES = [f"{number}-{each.strategy}" for number, each in enumerate(EXAMPLES)]
ARMS = {"bin:0": 0.1, "bin:2": 0.3, "bin:4": 0.2, "category:a": 0.4, "category:b": 0.3}
KNOWN = [
    Estimate(0.9, 3, 2.5, 0.4, 0.1, 1.0, drawn=4),
    Estimate(0.5, 2, 0.9, 0.8, 0.5, 0.5, drawn=2),
    Estimate(0.1, 5, 0.3, 2.9, 0.3, 0.125, drawn=5),
    Estimate(0.4, 1, 1.0, 1.0, 0.2, 0.4),
    Estimate(0.7, prior=0.7),
    Estimate(),
]


def known(settings: CurriculumSettings) -> Population:
    return Population(CurriculumHeader(settings, samples=5, arms=ARMS), KNOWN, ["a", "b", "a", "", "b", "a"])


def distribution_by_parts(population: Population, progress: float) -> list[float]:
    found = parts(population.settings, population.counts(), progress)
    return [
        ItemProbabilities(found).of(population.ranks(item), population.categories[item])
        for item in range(len(population.estimates))
    ]


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    """Scores from few values, so that there are ties."""
    score = st.sampled_from([0.0, 0.125, 0.2, 0.5, 0.8, 1.0])
    if draw(st.integers(0, 3)) == 0:
        prior = draw(st.none() | score)
        return Estimate(prior or 0.0, prior=prior)
    count, drawn = draw(st.integers(1, 5)), draw(st.integers(0, 9))
    passed, failed = draw(score) * count, draw(score) * count
    return Estimate(draw(score), count, passed, failed, draw(score), draw(score), drawn)


POLICIES = st.builds(
    CurriculumSettings,
    strategy=st.sampled_from(get_args(CurriculumStrategy)),
    n_bins=st.integers(1, 7),
    temperature=st.sampled_from([0.3, 1.0, 3.0]),
    competence_threshold=st.sampled_from([-1.0, 0.2, 0.5, 2.0]),
    form=st.sampled_from(get_args(Form)),
    arms=st.sampled_from(get_args(Arms)),
    initial_competence=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    frontier_width=st.sampled_from([0.5, 1.0, 3.0]),
    score_temperature=st.sampled_from([0.1, 1.0]),
    staleness_share=st.sampled_from([0.0, 0.1, 1.0]),
    unseen_share=st.sampled_from([0.0, 0.5, 1.0]),
    reward_min=st.sampled_from([-1.0, 0.0]),
    reward_max=st.sampled_from([0.5, 1.0]),
    prior_weight=st.sampled_from([0.0, 8.0]),
    hard_threshold=st.sampled_from([0.125, 0.2]),
    easy_threshold=st.sampled_from([0.5, 0.8]),
    hard_weight=st.sampled_from([0.2, 0.7]),
    easy_weight=st.sampled_from([0.2, 1.5]),
)


@examples(300)
@given(
    POLICIES,
    st.lists(st.tuples(estimates(), st.sampled_from(["", "a", "b"])), min_size=1, max_size=14),
    st.sampled_from([0.0, 0.25, 1.0]),
)
@example(
    CurriculumSettings(strategy="learnability", reward_min=-1.0, reward_max=2.0),
    [(unseen(prior), "") for prior in (-2.0, -0.9, 0.1, 0.5, 1.1, 1.9, 3.0)],
    0.0,
)
def test_items_are_as_likely_as_their_strategys_definition_says(
    settings: CurriculumSettings, items: list[tuple[Estimate, str]], progress: float
) -> None:
    header = CurriculumHeader(settings, samples=9, arms=ARMS)
    population = Population(header, [each for each, _ in items], [category for _, category in items])
    by_parts = distribution_by_parts(population, progress)
    assert by_parts == pytest.approx(distribution_of(population, progress), abs=1e-12)
    assert sum(by_parts) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_pairs_are_drawn_as_often_as_sampling_without_replacement_says(settings: CurriculumSettings) -> None:
    population = known(settings)
    kinds, found = kinds_of(population, 0.5), parts(settings, population.counts(), 0.5)
    at = {(index, rank): item for item in range(len(KNOWN)) for index, rank in population.ranks(item).items()}
    seen = Counter[tuple[int, ...]]()
    for counter in range(1000):
        draws = choose(found, 2 * len(KNOWN), seed=3, counter=counter)
        items = dict.fromkeys(
            population.at(each) if each.component.category else at[each.component.index, each.rank] for each in draws
        )
        seen[tuple(items)[:2]] += 1
    pairs = dict.fromkeys(permutations(range(len(KNOWN)), 2), 0.0)
    for number, distribution in enumerate(kinds):
        for one, probability in enumerate(distribution):
            if probability:
                second = next_free(kinds, {one}, frozenset({(number, one)}))
                for other in set(range(len(KNOWN))) - {one}:
                    pairs[one, other] += probability * second[other]
    fits([seen[pair] for pair in pairs], list(pairs.values()))


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 3, 5, 8, 12])
def test_what_is_in_flight_comes_to_nobody_and_the_rest_by_its_distribution(number: int) -> None:
    """A sample is drawn again until it is full; each item by the distribution restricted to those that can be had."""
    population, busy = known(EXAMPLES[number]), [0, 4]
    free = next_free(kinds_of(population, 0.5), set(busy), frozenset())
    seen = Counter[int]()
    for counter in range(600):
        population = known(EXAMPLES[number])
        population.header = replace(population.header, counter=counter)
        population.in_flight[busy] = True
        seen.update(population.sample(1, progress=0.5))
    assert seen.total() == 600
    fits([seen[item] for item in range(len(KNOWN))], free)


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
@pytest.mark.parametrize("temperature", [1e-6, 1e6])
def test_extreme_temperatures_overflow_nothing(settings: CurriculumSettings, temperature: float) -> None:
    extreme = settings.model_copy(update={"temperature": temperature})
    check_settings(extreme)
    distribution = distribution_by_parts(known(extreme), 0.5)
    assert sum(distribution) == pytest.approx(1)
    if settings.strategy in ("learnability", "easy_first"):
        flat = distribution_by_parts(known(settings.model_copy(update={"temperature": 1.0})), 0.5)
        assert (max(distribution) > max(flat)) == (temperature < 1)
    draws = choose(parts(extreme, known(extreme).counts(), 0.5), 100, seed=1, counter=1)
    assert len(set(draws)) == len(draws)


def test_the_lowest_temperature_chooses_the_likeliest() -> None:
    cold = distribution_by_parts(known(CurriculumSettings(strategy="learnability", temperature=1e-6)), 0.0)
    assert max(cold) == cold[5] == 1
    warm = distribution_by_parts(known(CurriculumSettings(strategy="learnability", temperature=1e6)), 0.0)
    assert warm == pytest.approx([1 / 6] * 6, abs=1e-5)


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_without_items_there_is_nothing_to_draw(settings: CurriculumSettings) -> None:
    empty = Population.of(settings, 0)
    assert parts(settings, empty.counts(), 0.5) == ()
    assert empty.sample(3, 0.5) == []


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
@pytest.mark.parametrize("estimate", [Estimate(), Estimate(0.5, prior=0.5), KNOWN[0]])
def test_one_item_is_certain(settings: CurriculumSettings, estimate: Estimate) -> None:
    population = Population(CurriculumHeader(settings, samples=4), [estimate])
    assert distribution_by_parts(population, 0.0) == [pytest.approx(1)]
    assert population.sample(5) == [0]
    assert population.sample(5) == []


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
@pytest.mark.parametrize("estimate", [Estimate(), KNOWN[1]], ids=["all-unseen", "all-ties"])
def test_items_that_are_alike_are_handed_out_once_each(settings: CurriculumSettings, estimate: Estimate) -> None:
    population = Population(CurriculumHeader(settings, samples=4), [estimate] * 40)
    narrow = settings.strategy == "competence_based" and settings.form == "cdf"
    taken = population.sample(100, progress=1.0 if narrow else 0.3)
    assert sorted(taken) == list(range(40))


def test_pools_of_weight_0_are_left_alone_even_if_there_is_no_other() -> None:
    settings = CurriculumSettings(strategy="difficulty_pools", normal_weight=0)
    assert distribution_by_parts(Population(CurriculumHeader(settings), KNOWN), 0)[1] == 0
    assert Population(CurriculumHeader(settings), [KNOWN[1]] * 3).sample(2) == []


def test_competence_begins_with_one_item_and_ends_with_all_of_them() -> None:
    def allowed(initial: float, progress: float, items: int = 1000) -> int:
        settings = CurriculumSettings(strategy="competence_based", initial_competence=initial)
        counts = ItemCounts({ItemIndex.MEAN_REWARD: items - items // 3, ItemIndex.UNSEEN: items // 3})
        return sum(part.size for part in parts(settings, counts, progress))

    assert [allowed(0.0, 0), allowed(0.01, 0), allowed(0.1, 0.25), allowed(0.01, 1), allowed(1, 0)] == [
        *[1, 10, 507, 1000, 1000]
    ]
    assert [allowed(each / 100, 0, items=100) for each in range(1, 101)] == list(range(1, 101))


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize("strategy", get_args(CurriculumStrategy))
def test_a_strategy_needs_progress_exactly_if_its_distribution_changes_with_it(
    strategy: CurriculumStrategy, form: Form
) -> None:
    settings = CurriculumSettings(strategy=strategy, form=form)
    counts = known(settings).counts()
    assert needs_progress(settings) == (parts(settings, counts, 0.1) != parts(settings, counts, 0.9))


def test_what_is_unknown_comes_behind_the_easier_half() -> None:
    settings = CurriculumSettings(strategy="competence_based", initial_competence=0.0)
    counts = ItemCounts({ItemIndex.MEAN_REWARD: 5, ItemIndex.UNSEEN: 4})
    allowed = [
        [(each.index, each.first, each.size) for each in parts(settings, counts, (n / 9) ** 2 + 1e-9)]
        for n in (3, 5, 8)
    ]
    assert allowed == [
        [(ItemIndex.MEAN_REWARD, 2, 3)],
        [(ItemIndex.MEAN_REWARD, 2, 3), (ItemIndex.UNSEEN, 0, 2)],
        [(ItemIndex.MEAN_REWARD, 1, 4), (ItemIndex.UNSEEN, 0, 4)],
    ]


@pytest.mark.parametrize("arms", get_args(Arms))
def test_an_arms_value_follows_the_signals_of_its_items_from_0(arms: Arms) -> None:
    """Q <- Q + alpha (signal - Q), as published; the arm is that of the bin the item had before."""
    settings = CurriculumSettings(strategy="bandit", arms=arms, arm_alpha=0.25)
    population = Population.of(settings, 4, ["a", "b", "a", "a"])
    for item, rewards in ((0, [1.0, 0.0]), (1, [1.0, 1.0]), (2, [3.0, 1.0])):
        population.observe(item, rewards)
    value = 0.25 * 0.5
    categories = {"category:a": value + 0.25 * (1 - value), "category:b": 0.0}
    bins = {"bin:2": 0.75 * value + 0.25 * (1 - 0.75 * value)}
    assert population.header.arms == pytest.approx(categories if arms == "categories" else bins)


def test_plr_keeps_its_shares_however_many_items_are_asked_for() -> None:
    """Its score insists on the first ranks; in one distribution, staleness would have all but the first few."""
    settings = CurriculumSettings(strategy="plr", staleness_share=0.25)
    items = [Estimate(0.5, 1, signal=each / 1000) for each in range(1000)] + [Estimate()] * 1000
    draws = choose(parts(settings, Population(CurriculumHeader(settings), items).counts(), 0.0), 400, seed=2, counter=0)
    kinds = Counter(each.component.kind for each in draws)
    fits([kinds["score"], kinds["staleness"], kinds["unseen"]], [0.375, 0.125, 0.5])
    assert {each.rank for each in draws if each.component.kind == "score"} > set(range(960, 1000))
    everything = choose(
        parts(settings, Population(CurriculumHeader(settings), items).counts(), 0.0), 9999, seed=2, counter=0
    )
    assert len(set(everything)) == len(everything) == 3000


def test_learnability_is_rounded_by_less_than_four_thousandths() -> None:
    rates = np.linspace(0, 1, 10_001)
    rounded = (np.minimum(127, np.floor(rates * 128)) + 0.5) / 128
    assert np.abs(rounded * (1 - rounded) - rates * (1 - rates)).max() < 0.004
