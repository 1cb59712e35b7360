"""Core values have the fields and defaults of the definitions that they are checked against."""

from dataclasses import asdict, fields
from typing import Any

import pytest
from pydantic import BaseModel

from app.core.bounds import check_bounds
from app.core.curriculum.settings import CurriculumPolicy
from app.core.errors import InvalidField
from app.core.replay.buffer import ReplayPolicy
from app.core.replay.rate_limiter import LimiterSettings
from app.core.replay.sampling import SamplingSettings
from lachesis.wire import replay
from lachesis.wire.curricula import CurriculumSettings


@pytest.mark.parametrize(
    ("value", "definition"),
    [
        (ReplayPolicy(), replay.ReplaySettings()),
        (SamplingSettings(), replay.Sampling()),
        (CurriculumPolicy(), CurriculumSettings()),
    ],
    ids=["replay buffer", "sampling", "curriculum"],
)
def test_a_core_value_has_the_fields_and_defaults_of_its_definition(value: Any, definition: BaseModel) -> None:
    assert asdict(value) == definition.model_dump()


def test_the_limiter_has_the_fields_of_its_definition() -> None:
    assert [field.name for field in fields(LimiterSettings)] == list(replay.RateLimiter.model_fields)


def test_a_value_out_of_bounds_is_named() -> None:
    with pytest.raises(InvalidField, match=r"candidates = 4097: .*less than or equal to 4096") as refused:
        check_bounds(CurriculumSettings, CurriculumPolicy(candidates=4097))
    assert refused.value.location == ("candidates",)
