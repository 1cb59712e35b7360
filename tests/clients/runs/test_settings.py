"""The settings of a run have one definition; here is what derives from it."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from app.core.runs.settings import Policy, RunConfig
from app.settings import ServiceSettings
from lachesis import Settings, wire
from lachesis.wire.body import Body
from lachesis.wire.environments import EnvironmentChange, EnvironmentCreate
from lachesis.wire.replay import ReplayChange
from lachesis.wire.runs import AtroposSettings, Run, RunChange, RunCreate, RunSettings

MODULES = [import_module(f"lachesis.wire.{module.name}") for module in iter_modules(wire.__path__)]
CLASSES = {cls for module in MODULES for cls in vars(module).values() if isinstance(cls, type)}
BODIES = sorted((cls for cls in CLASSES if issubclass(cls, Body)), key=lambda cls: cls.__name__)


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
    assert others == {"keep_batches"}


@pytest.mark.parametrize("change", [RunChange, ReplayChange])
def test_a_change_shows_no_defaults_and_sets_only_what_it_names(change: type[BaseModel]) -> None:
    assert all("default" not in field for field in change.model_json_schema()["properties"].values())
    assert change.model_validate({"max_staleness": None}).model_dump(exclude_unset=True) == {"max_staleness": None}


def takes_number(schema: dict[str, Any]) -> bool:
    return not {one.get("type") for one in schema.get("anyOf", [schema])}.isdisjoint({"integer", "number"})


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_boolean_is_no_number(body: type[Body]) -> None:
    """Also where the number may be null, such as `lease_s` of a request for a batch."""
    for name, schema in body.model_json_schema()["properties"].items():
        if takes_number(schema):
            with pytest.raises(ValidationError) as refused:
                body.model_validate({name: True})
            told = {error["loc"]: error["msg"] for error in refused.value.errors()}
            assert told[(name,)] == "Value error, should be a number, not true", name


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
