"""What a curriculum may not be set to, and progress."""

import math
import re
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from app.core.curriculum.checks import check_settings, check_total_steps, progress
from app.core.curriculum.strategies.table import needs_progress
from lachesis.wire.curricula import CurriculumSettings, CurriculumStrategy, Form
from lachesis.wire.errors import InvalidField


def test_the_defaults_are_those_of_atropos() -> None:
    settings = CurriculumSettings()
    check_settings(settings)
    assert (settings.n_bins, settings.temperature, settings.ema_alpha, settings.competence_threshold) == (
        5,
        1.0,
        0.3,
        0.5,
    )


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *[("n_bins", bad) for bad in (0, 101)],
        *[("temperature", bad) for bad in (0, -1, 1e-7, math.inf, math.nan)],
        *[("ema_alpha", bad) for bad in (0, 1.1, math.nan)],
        *[("competence_threshold", bad) for bad in (math.nan, math.inf)],
        ("total_steps", 0),
        *[("in_flight_ttl_s", bad) for bad in (-1, math.inf, math.nan)],
        *[("reward_min", bad) for bad in (math.nan, -math.inf)],
        *[("reward_max", bad) for bad in (math.inf, math.nan)],
        *[("forgetting", bad) for bad in (-0.1, 1, math.nan)],
        *[("prior_weight", bad) for bad in (-1, math.inf)],
        *[("seed", bad) for bad in (-1, 2**64)],
        *[("initial_competence", bad) for bad in (-0.1, 1.1, math.nan)],
        *[("frontier_width", bad) for bad in (0, math.inf, math.nan)],
        *[("target_pass_rate", bad) for bad in (-0.1, 1.1)],
        *[("candidates", bad) for bad in (0, 4097)],
        *[("score_temperature", bad) for bad in (0, 0.001, math.inf)],
        *[("staleness_share", bad) for bad in (-0.1, 1.1)],
        *[("unseen_share", bad) for bad in (-0.1, 1.1)],
        *[("hard_threshold", bad) for bad in (math.nan, -math.inf)],
        *[("easy_threshold", bad) for bad in (math.inf, math.nan)],
        *[(name, bad) for name in ("hard_weight", "normal_weight", "easy_weight") for bad in (-1, math.inf, math.nan)],
        *[("arm_alpha", bad) for bad in (0, 1.1)],
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_its_name(name: str, bad: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        CurriculumSettings(**{name: bad})
    assert [each["loc"] for each in refused.value.errors()] == [(name,)]


@pytest.mark.parametrize(
    ("name", "bad"), [("reward_max", 0), ("reward_max", -1), ("easy_threshold", 0.2), ("easy_threshold", 0.1)]
)
def test_settings_that_do_not_fit_together_are_refused_by_name(name: str, bad: float) -> None:
    with pytest.raises(InvalidField) as refused:
        check_settings(CurriculumSettings(**{name: bad}))  # type: ignore[arg-type]
    assert refused.value.location == (name,)
    assert name not in refused.value.message


def test_weights_that_are_all_0_are_refused() -> None:
    with pytest.raises(InvalidField, match=r"^normal_weight: is 0, as are hard_weight and easy_weight"):
        check_settings(CurriculumSettings(hard_weight=0, normal_weight=0, easy_weight=0))


def test_progress_ends_at_1_and_a_request_says_better_than_the_settings() -> None:
    settings = CurriculumSettings(strategy="easy_first", total_steps=10)
    assert [progress(settings, step) for step in (0, 5, 10, 11)] == [0, 0.5, 1, 1]
    assert progress(settings, 5, 20) == 0.25
    assert progress(CurriculumSettings(), 5) == 0


@pytest.mark.parametrize(
    ("settings", "step", "total_steps", "place"),
    [
        (CurriculumSettings(), -1, None, "step"),
        (CurriculumSettings(), 0, 0, "total_steps"),
        (CurriculumSettings(strategy="easy_first"), 5, None, "total_steps"),
        (CurriculumSettings(strategy="competence_based"), 5, None, "total_steps"),
    ],
)
def test_progress_is_never_guessed(
    settings: CurriculumSettings, step: int, total_steps: int | None, place: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        progress(settings, step, total_steps)
    assert refused.value.location == (place,)
    assert place not in refused.value.message


def test_the_description_of_total_steps_names_the_strategies_that_need_them() -> None:
    needing = {each for each in get_args(CurriculumStrategy) if needs_progress(CurriculumSettings(strategy=each))}
    words = re.findall(r"`(\w+)`", CurriculumSettings.model_fields["total_steps"].description or "")
    assert needing == set(words) & set(get_args(CurriculumStrategy))


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize("strategy", get_args(CurriculumStrategy))
def test_settings_that_pass_are_enough_to_tell_progress(strategy: CurriculumStrategy, form: Form) -> None:
    settings = CurriculumSettings(strategy=strategy, form=form)
    if needs_progress(settings):
        with pytest.raises(InvalidField) as refused:
            check_total_steps(settings)
        assert refused.value.location == ("total_steps",)
        settings = settings.model_copy(update={"total_steps": 10})
    check_total_steps(settings)
    assert progress(settings, 5) == (0.5 if settings.total_steps else 0)
