"""A curriculum as a document: restored, it continues the same samples; what cannot be one is refused with its place."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from app.core.curriculum.estimates import Estimate
from app.core.curriculum.state import (
    CurriculumHeader,
    estimate_dict,
    load_estimate_dict,
    load_settings,
    load_state_dict,
    state_dict,
)
from lachesis.wire.curricula import CurriculumSettings
from lachesis.wire.errors import InvalidField
from tests.core.curriculum.population import Population
from tests.core.curriculum.test_strategies import EXAMPLES, NAMES, POLICIES, estimates

CATEGORIES = ["a", "b", ""] * 20


def train(population: Population, steps: range) -> list[list[int]]:
    """Sample and observe: items are solved by their number's parity and the step."""
    taken = []
    for step in steps:
        items = population.sample(4, progress=step / 20)
        taken.append(items)
        for item in items:
            population.observe(item, [float((item + step + each) % 3 == 0) for each in range(4)])
    return taken


def restored(population: Population) -> Population:
    """Through JSON and back."""
    header = json.loads(json.dumps(state_dict(population.header), allow_nan=False))
    items = [json.loads(json.dumps(estimate_dict(each), allow_nan=False)) for each in population.estimates]
    return Population(load_state_dict(header), [load_estimate_dict(each) for each in items], population.categories)


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_restored_it_continues_the_same_samples(settings: CurriculumSettings) -> None:
    whole = Population.of(settings.model_copy(update={"seed": 17}), 60, CATEGORIES)
    expected = train(whole, range(20))
    halted = Population.of(settings.model_copy(update={"seed": 17}), 60, CATEGORIES)
    head = train(halted, range(9))
    again = restored(halted)
    assert head + train(again, range(9, 20)) == expected
    assert (again.header, again.estimates) == (whole.header, whole.estimates)


@pytest.mark.parametrize("settings", EXAMPLES, ids=NAMES)
def test_a_sample_with_its_own_seed_leaves_the_generator_alone(settings: CurriculumSettings) -> None:
    population = Population.of(settings, 60)
    counter = population.header.counter
    first = population.sample(4, 0.5, own_seed=5)
    population.in_flight[:] = False
    assert population.header.counter == counter
    assert Population.of(settings, 60).sample(4, 0.5, own_seed=5) == first
    assert Population.of(settings, 60).sample(4, 0.5, own_seed=6) != first or settings.form == "cdf"


def test_a_strategy_switched_while_running_finds_the_estimates_as_they_were() -> None:
    population = Population.of(CurriculumSettings(strategy="learnability"), 60)
    train(population, range(9))
    before = list(population.estimates)
    population.header = replace(population.header, settings=CurriculumSettings(strategy="bandit", arms="bins"))
    population.counts()
    assert population.estimates == before
    train(population, range(9, 12))


@given(POLICIES)
def test_settings_survive_as_json(settings: CurriculumSettings) -> None:
    assert load_settings(json.loads(json.dumps(settings.model_dump()))) == settings


@given(estimates())
def test_estimates_survive_as_json(estimate: Estimate) -> None:
    assert load_estimate_dict(json.loads(json.dumps(estimate_dict(estimate)))) == estimate


HEADER = state_dict(CurriculumHeader(CurriculumSettings(), 3, 4, 5, {"bin:1": 0.5}))


@pytest.mark.parametrize(
    ("change", "location"),
    [
        ({"format": "other"}, ("format",)),
        ({"version": 2}, ("version",)),
        ({"generator": "PCG64"}, ("generator",)),
        ({"counter": -1}, ("counter",)),
        ({"counter": True}, ("counter",)),
        ({"samples": 1.5}, ("samples",)),
        ({"samples": None}, ("samples",)),
        ({"updates": 2**54}, ("updates",)),
        ({"arms": []}, ("arms",)),
        ({"arms": {"bin:0": float("nan")}}, ("arms", "bin:0")),
        ({"arms": {"bin:0": "1"}}, ("arms", "bin:0")),
        ({"policy": None}, ("policy",)),
        ({"policy": {"n_bins": 0}}, ("policy", "n_bins")),
        ({"policy": {"n_bins": 5.0}}, ("policy", "n_bins")),
        ({"policy": {"n_bins": True}}, ("policy", "n_bins")),
        ({"policy": {"strategy": "best"}}, ("policy", "strategy")),
        ({"policy": {"strategy": ["plr"]}}, ("policy", "strategy")),
        ({"policy": {"temperature": float("inf")}}, ("policy", "temperature")),
        ({"policy": {"temperature": 10**400}}, ("policy", "temperature")),
        ({"policy": {"temperature": "1"}}, ("policy", "temperature")),
        ({"policy": {"total_steps": 0}}, ("policy", "total_steps")),
        ({"policy": {"nbins": 5}}, ("policy", "nbins")),
        ({"policy": {"reward_min": 1.0, "reward_max": 0.5}}, ("policy", "reward_max")),
        ({"more": 1}, ("more",)),
    ],
)
def test_a_header_that_is_none_is_refused_with_its_place(change: dict[str, Any], location: tuple[str, ...]) -> None:
    with pytest.raises(InvalidField) as refused:
        load_state_dict(HEADER | change)
    assert refused.value.location == location
    assert location[-1] not in refused.value.message


@pytest.mark.parametrize("missing", sorted(HEADER))
def test_a_header_is_whole(missing: str) -> None:
    with pytest.raises(InvalidField) as refused:
        load_state_dict({name: value for name, value in HEADER.items() if name != missing})
    assert str(refused.value) == f"{missing}: is required"


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"ema": float("nan"), "count": 1}, "ema"),
        ({"ema": None, "count": 1}, "ema"),
        ({"count": -1}, "count"),
        ({"count": 1, "passed": -0.5}, "passed"),
        ({"count": 1, "ema": 1e15}, "ema"),
        ({"count": 1, "signal": 1e7}, "signal"),
        ({"count": 1, "failed": 1e200}, "failed"),
        ({"count": 1, "drawn": 0.5}, "drawn"),
        ({"prior": float("inf")}, "prior"),
        ({"passed": 1.0}, "count"),
        ({"ema": 0.5}, "ema"),
        ({"ema": 0.5, "prior": 0.25}, "ema"),
        ({"score": 1}, "score"),
    ],
)
def test_an_estimate_that_is_none_is_refused_with_its_place(document: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidField) as refused:
        load_estimate_dict(document)
    assert refused.value.location == (place,)
    assert place not in refused.value.message


@pytest.mark.parametrize(
    "estimate",
    [Estimate(drawn=7), Estimate(0.25, drawn=7, prior=0.25), Estimate(count=10**9, passed=1e12, failed=1e12)],
    ids=["handed out", "handed out, with a prior", "observed for long"],
)
def test_an_item_that_only_was_handed_out_or_had_many_rewards_is_restored(estimate: Estimate) -> None:
    assert load_estimate_dict(estimate_dict(estimate)) == estimate


def test_an_unknown_setting_is_not_taken_for_one_out_of_bounds() -> None:
    for document, is_unknown in (({"nbins": 5}, True), ({"n_bins": 0}, False)):
        with pytest.raises(InvalidField) as refused:
            load_settings(document)
        assert (refused.value.message == "is unknown") == is_unknown


def test_numbers_are_kept_to_the_last_bit() -> None:
    numbers = np.random.default_rng(3).random(5).tolist()
    estimate = Estimate(numbers[0], 3, *numbers[1:], drawn=7)
    assert load_estimate_dict(json.loads(json.dumps(estimate_dict(estimate)))) == estimate
