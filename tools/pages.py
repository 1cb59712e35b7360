"""What the writers of the reference pages share."""

from collections.abc import Iterator
from typing import get_args

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
