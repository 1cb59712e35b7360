"""What the writers of the reference pages share."""

from collections.abc import Iterator
from typing import get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def heading(title: str, source: str) -> str:
    """Return the first lines of a page that is written from a source: its title, and where to edit it."""
    return f"# {title}\n\n<!-- `make reference` writes this page. Edit {source} instead. -->\n"


def nested_models(field: FieldInfo) -> Iterator[type[BaseModel]]:
    """Yield the models in the type of a field: itself, an item of a list, or a member of a union."""
    for part in (field.annotation, *get_args(field.annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield part


def field_table(model: type[BaseModel]) -> list[str]:
    """Return a table of the fields of a model and of the models in it."""
    rows = [f"| `{path}` | {meaning} |" for path, meaning in _fields(model)]
    return ["| field | meaning |", "|---|---|", *rows, ""]


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every field by its path, such as ``leases[].step``, with its meaning: nested ones after the outer one."""
    for name, field in model.model_fields.items():
        yield prefix + name, field.description or ""
        many = "[]" if get_origin(field.annotation) is list else ""
        for nested in nested_models(field):
            yield from _fields(nested, f"{prefix}{name}{many}.")
