"""The settings of a run have one definition; here is what derives from it."""

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from app.core.runs.settings import Policy, RunConfig
from app.settings import ServiceSettings
from lachesis import Settings
from lachesis.wire.environments import EnvironmentChange, EnvironmentCreate
from lachesis.wire.replay import ReplayChange, ReplaySettings
from lachesis.wire.runs import AtroposSettings, Run, RunChange, RunCreate, RunSettings


def bounds(field: FieldInfo) -> tuple[str, str]:
    return repr(field.annotation), repr(field.metadata)


def test_a_run_is_created_changed_and_shown_with_the_same_settings() -> None:
    settings = RunSettings.model_fields.keys()
    assert RunCreate.model_fields.keys() - settings == {"name", "batch_size", "atropos"}
    assert RunChange.model_fields.keys() - settings == {"batch_size"}
    assert Run.model_fields.keys() - RunCreate.model_fields.keys() == {"step", "policy_version", "rewinds"}
    assert Policy.model_fields.keys() == settings
    assert AtroposSettings.model_fields.keys() | {"batch_size"} == RunConfig.model_fields.keys()


def test_a_run_of_atropos_differs_only_in_that_it_keeps_no_batches() -> None:
    others = {name for name, value in Policy() if value != getattr(RunSettings(), name)}
    assert others == {"keep_batches", "keep_bytes"}


@pytest.mark.parametrize("change", [RunChange, ReplayChange])
def test_a_change_shows_no_defaults_and_sets_only_what_it_names(change: type[BaseModel]) -> None:
    assert all("default" not in field for field in change.model_json_schema()["properties"].values())
    assert change.model_validate({"max_staleness": None}).model_dump(exclude_unset=True) == {"max_staleness": None}


@pytest.mark.parametrize(
    ("model", "field"),
    [(RunChange, "batch_size"), (RunChange, "max_age_s"), (ReplaySettings, "seed"), (ReplaySettings, "max_bytes")],
)
def test_a_boolean_is_no_number(model: type[BaseModel], field: str) -> None:
    with pytest.raises(ValidationError, match="should be a number, not true") as refused:
        model.model_validate({field: True})
    assert refused.value.errors()[0]["loc"] == (field,)


@pytest.mark.parametrize("name", sorted(EnvironmentChange.model_fields))
def test_a_setting_of_an_environment_has_the_same_bounds_wherever_it_is_given(name: str) -> None:
    assert EnvironmentChange.model_fields.keys() == EnvironmentCreate.model_fields.keys() - {
        "name",
        "member",
        "change_settings",
    }
    assert bounds(EnvironmentCreate.model_fields[name]) == bounds(EnvironmentChange.model_fields[name])


def test_no_variable_of_the_service_is_taken_for_a_misspelt_one_of_the_sdk(caplog: pytest.LogCaptureFixture) -> None:
    Settings.from_env({f"LACHESIS_{name.upper()}": "1" for name in ServiceSettings.model_fields})
    assert caplog.records == []
