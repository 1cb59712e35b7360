"""A run's settings are written down where they are made, changed, kept and typed: a new one must be in all of them."""

from dataclasses import fields
from typing import get_type_hints

import pytest
from pydantic.fields import FieldInfo

from app.core.model import RunConfig
from app.core.runs.settings import Policy
from app.settings import Settings as ServiceSettings
from lachesis import Settings
from lachesis.runs.trainer import NewRun, RunChanges, RunLimits
from lachesis.wire.environments import EnvironmentChange, EnvironmentCreate
from lachesis.wire.runs import AtroposSettings, Run, RunChange, RunCreate

CREATED, CHANGED = RunCreate.model_fields, RunChange.model_fields
POLICY = {field.name: field.default for field in fields(Policy)}
LIMITS = POLICY.keys() - {"archived"}
ONLY_NATIVE = {"keep_batches", "keep_bytes"}
"""What a run that nobody made under `/v1` does otherwise: `app.core.runs.settings.Policy` says so."""


def test_every_setting_is_in_each_list() -> None:
    assert CREATED.keys() - {"name", "batch_size", "atropos"} == LIMITS
    assert CHANGED.keys() - {"batch_size"} == LIMITS | {"archived"}
    assert Run.model_fields.keys() == CREATED.keys() | {"archived", "step", "policy_version", "rewinds"}
    assert RunLimits.__annotations__.keys() == LIMITS
    assert get_type_hints(NewRun).keys() == CREATED.keys() - {"name", "batch_size"}
    assert get_type_hints(RunChanges).keys() == CHANGED.keys()
    assert AtroposSettings.model_fields.keys() | {"batch_size"} == {field.name for field in fields(RunConfig)}


def bounds(field: FieldInfo) -> tuple[str, str]:
    return repr(field.annotation), repr(field.metadata)


@pytest.mark.parametrize("name", sorted(LIMITS | {"batch_size"}))
def test_a_setting_has_the_same_bounds_wherever_it_is_given(name: str) -> None:
    assert bounds(CREATED[name]) == bounds(CHANGED[name]) == bounds(Run.model_fields[name])


@pytest.mark.parametrize("name", sorted(EnvironmentChange.model_fields))
def test_a_setting_of_an_environment_has_the_same_bounds_wherever_it_is_given(name: str) -> None:
    assert EnvironmentChange.model_fields.keys() == EnvironmentCreate.model_fields.keys() - {
        "name",
        "member",
        "change_settings",
    }
    assert bounds(EnvironmentCreate.model_fields[name]) == bounds(EnvironmentChange.model_fields[name])


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_a_setting_has_the_same_default_wherever_it_has_one(name: str) -> None:
    assert CREATED[name].default == CHANGED[name].default
    if name not in ONLY_NATIVE:
        assert CREATED[name].default == POLICY[name]


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_the_sdk_gives_a_setting_the_type_that_the_service_takes(name: str) -> None:
    assert get_type_hints(RunLimits)[name] == CREATED[name].annotation


def test_no_variable_of_the_service_is_taken_for_a_misspelt_one_of_the_sdk(caplog: pytest.LogCaptureFixture) -> None:
    Settings.from_env({f"LACHESIS_{name.upper()}": "1" for name in ServiceSettings.model_fields})
    assert caplog.records == []
