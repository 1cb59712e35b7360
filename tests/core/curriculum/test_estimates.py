"""Estimates against what they stand for: moving averages, and a posterior of evidence that is forgotten."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.curriculum.estimates import Estimate, Evidence, observed, pass_share, posterior, posteriors, unseen
from app.core.curriculum.state import CurriculumHeader
from lachesis.wire.curricula import MAX_REWARD, CurriculumSettings
from lachesis.wire.errors import InvalidField
from tests.core.curriculum.population import Population
from tests.core.curriculum.updates import after
from tests.properties import examples

REWARDS = st.lists(st.floats(-2, 3), min_size=1, max_size=5)
POLICIES = st.builds(
    CurriculumSettings,
    ema_alpha=st.floats(0.01, 1),
    forgetting=st.floats(0, 0.99),
    reward_min=st.floats(-3, 0),
    reward_max=st.floats(0.5, 3),
)


@examples(300)
@given(POLICIES, st.lists(REWARDS, min_size=1, max_size=6), st.none() | st.floats(-1, 2))
def test_estimates_are_what_their_histories_say(
    settings: CurriculumSettings, groups: list[list[float]], prior: float | None
) -> None:
    estimate = unseen(prior)
    for rewards in groups:
        estimate = after(estimate, observed(settings, rewards))
    means = [sum(rewards) / len(rewards) for rewards in groups]
    ema = means[0]
    for mean in means[1:]:
        ema += settings.ema_alpha * (mean - ema)
    span = settings.reward_max - settings.reward_min
    passed = failed = 0.0
    for age, rewards in enumerate(reversed(groups)):
        shares = [min(1.0, max(0.0, (reward - settings.reward_min) / span)) for reward in rewards]
        passed += sum(shares) * (1 - settings.forgetting) ** age
        failed += (len(shares) - sum(shares)) * (1 - settings.forgetting) ** age
    expected = {"ema": ema, "count": len(groups), "last": means[-1], "passed": passed, "failed": failed}
    assert {name: getattr(estimate, name) for name in expected} == pytest.approx(expected, abs=1e-9)
    assert estimate.signal == pytest.approx(sum(abs(r - means[-1]) for r in groups[-1]) / len(groups[-1]), abs=1e-9)
    assert (estimate.prior, estimate.drawn) == (prior, 0)
    assert posterior(settings, estimate).mean == pytest.approx((1 + passed) / (2 + passed + failed))


def test_the_tests_population_carries_out_what_observations_say() -> None:
    settings, groups = CurriculumSettings(), [[0.0, 1.0, 1.0], [0.5], [1.0, 0.0]]
    population, estimate = Population(CurriculumHeader(settings), [unseen(), unseen(0.25)]), unseen(0.25)
    for rewards in groups:
        population.observe(1, rewards)
        estimate = after(estimate, observed(settings, rewards))
    assert population.estimates == [unseen(), estimate]


def test_the_first_score_initialises_and_a_group_counts_as_its_mean() -> None:
    """As in Atropos: alpha 0.3."""
    settings = CurriculumSettings()
    first = after(unseen(), observed(settings, [1, 1, 0, 0, 0, 0, 0, 0]))
    assert first.ema == 0.25
    assert after(first, observed(settings, [1])).ema == pytest.approx(0.7 * 0.25 + 0.3)


def test_a_prior_is_evidence_until_the_first_observation() -> None:
    settings = CurriculumSettings(prior_weight=6)
    assert posterior(settings, unseen(0.5)) == (4, 4)
    assert posterior(settings, unseen(2.0)) == (7, 1)
    assert posterior(settings, unseen()) == (1, 1)
    assert posterior(settings, after(unseen(0.9), observed(settings, [0, 0]))) == (1, 3)
    assert after(unseen(0.9), observed(settings, [0, 0])).ema == 0


@given(st.floats(-MAX_REWARD, MAX_REWARD), st.integers(1, 20))
def test_equal_rewards_have_no_signal_whatever_is_rounded(reward: float, size: int) -> None:
    change = observed(CurriculumSettings(), [reward] * size)
    assert (change.signal.gain, change.last.gain) == (0, reward)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.001 * MAX_REWARD])
def test_what_is_not_finite_is_refused_with_its_place(bad: float) -> None:
    with pytest.raises(InvalidField) as refused:
        observed(CurriculumSettings(), [0.0, 1.0, bad])
    assert str(refused.value) == f"rewards[2]: is {bad}, not a number from -1e+06 to 1e+06"
    with pytest.raises(InvalidField) as refused:
        unseen(bad)
    assert str(refused.value) == f"prior: is {bad}, not a number from -1e+06 to 1e+06"


def test_an_observation_has_a_reward() -> None:
    with pytest.raises(InvalidField) as refused:
        observed(CurriculumSettings(), [])
    assert str(refused.value) == "rewards: is empty: an observation has at least one"


@given(st.lists(st.floats(-MAX_REWARD, MAX_REWARD), min_size=1, max_size=8))
def test_the_largest_rewards_overflow_nothing(rewards: list[float]) -> None:
    estimate = after(Estimate(), observed(CurriculumSettings(), rewards))
    assert all(math.isfinite(getattr(estimate, name)) for name in ("ema", "passed", "failed", "signal", "last"))


@given(POLICIES, st.floats(-5, 5))
def test_a_reward_is_a_pass_by_its_place_between_the_ends(settings: CurriculumSettings, reward: float) -> None:
    share = pass_share(settings, reward)
    assert 0 <= share <= 1
    assert pass_share(settings, settings.reward_max) == 1
    assert pass_share(settings, settings.reward_min) == 0


@examples(100)
@given(POLICIES, st.lists(st.tuples(st.none() | st.floats(-4, 4), st.lists(REWARDS, max_size=3)), max_size=5))
def test_the_posteriors_of_several_items_are_those_of_each(
    settings: CurriculumSettings, items: list[tuple[float | None, list[list[float]]]]
) -> None:
    estimates = []
    for prior, groups in items:
        estimate = unseen(prior)
        for rewards in groups:
            estimate = after(estimate, observed(settings, rewards))
        estimates.append(estimate)
    alphas, betas = posteriors(settings, Evidence.of(estimates))
    expected = [posterior(settings, estimate) for estimate in estimates]
    assert alphas.tolist() == pytest.approx([one.alpha for one in expected])
    assert betas.tolist() == pytest.approx([one.beta for one in expected])
