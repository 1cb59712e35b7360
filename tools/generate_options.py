"""Write the types of the settings that methods of the SDK take by name, from the models: `make sync`.

PEP 692 needs a `TypedDict`, and type checkers cannot derive one from a model.
"""

import subprocess
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lachesis.wire.criteria import GroupCriteria
from lachesis.wire.curricula import CurriculumSettings
from lachesis.wire.curriculum_items import ItemChange, SampleItems
from lachesis.wire.replay import ReplaySettings
from lachesis.wire.runs import RunChange, RunCreate
from lachesis.wire.samples import TakeSample

TARGET = Path(__file__).parents[1] / "clients" / "lachesis" / "wire" / "options.py"
_REQUEST = frozenset({"bins_only", "n", "num_chunks", "num_fragments", "request_id", "trainer"})
"""Fields that methods of the SDK take or fill in themselves."""

_OPTIONS: tuple[tuple[str, str, type[BaseModel], frozenset[str]], ...] = (
    ("NewRun", "Settings of a run that can be given when it is made", RunCreate, frozenset({"name", "batch_size"})),
    ("RunChanges", "Settings of a run that can be changed while it runs", RunChange, frozenset()),
    ("ReplayOptions", "Settings of a replay buffer", ReplaySettings, frozenset()),
    ("CurriculumOptions", "Settings of a curriculum", CurriculumSettings, frozenset()),
    ("ItemOptions", "Settings of an item", ItemChange, frozenset()),
    ("HowSampled", "Settings of a sample of items", SampleItems, _REQUEST),
    ("CriteriaOptions", "Criteria of groups", GroupCriteria, frozenset()),
    ("HowDrawn", "Settings of a sample", TakeSample, _REQUEST),
)


def options_module() -> str:
    """Return the module: one `TypedDict` for each of the models."""
    models: dict[str, str] = {}
    classes = [_class(*each, models) for each in _OPTIONS]
    imports = [f"from {module} import {name}" for name, module in sorted(models.items(), key=lambda item: item[::-1])]
    source = "\n".join(
        [
            '"""Settings by name, as the models describe them. `make sync` writes this module from the models."""',
            "",
            "from typing import Any, Literal, TypedDict",
            "",
            *imports,
            "",
            *classes,
        ]
    )
    for step in (["check", "--fix", "--quiet", "--select", "I"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *step, "--stdin-filename", str(TARGET), "-"]
        source = subprocess.run(command, input=source, text=True, capture_output=True, check=True).stdout
    return source


def _class(name: str, meaning: str, model: type[BaseModel], without: frozenset[str], models: dict[str, str]) -> str:
    lines = [
        f"    {name}: {_field(field, models)}" for name, field in model.model_fields.items() if name not in without
    ]
    said = f'    """{meaning}, as `{model.__module__}.{model.__name__}` describes them."""'
    return "\n".join(["", f"class {name}(TypedDict, total=False):", said, "", *lines, ""])


def _field(field: FieldInfo, models: dict[str, str]) -> str:
    takes_numbers = any(getattr(constraint, "coerce_numbers_to_str", False) for constraint in field.metadata)
    return f"{'int | ' if takes_numbers else ''}{_text(field.annotation, models)}"


def _text(annotation: Any, models: dict[str, str]) -> str:
    """Write a type as source; notes in ``models`` what must be imported from where."""
    if get_origin(annotation) is Annotated:
        return _text(get_args(annotation)[0], models)
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(_text(part, models) for part in get_args(annotation))
    if get_origin(annotation) is Literal:
        return f"Literal[{', '.join(map(_quoted, get_args(annotation)))}]"
    if get_origin(annotation) is dict:
        return f"dict[{', '.join(_text(part, models) for part in get_args(annotation))}]"
    if annotation is NoneType:
        return "None"
    if issubclass(annotation, BaseModel):
        models[annotation.__name__] = annotation.__module__
    return str(annotation.__name__)


def _quoted(value: str) -> str:
    return f'"{value}"'


if __name__ == "__main__":
    TARGET.write_text(options_module())
