"""Check settings against the bounds of the definition that the service, the SDK and the documents share."""

from collections.abc import Collection
from dataclasses import fields
from typing import Any

from pydantic import BaseModel, ValidationError

from app.core.errors import InvalidField
from lachesis.wire.problems import format_validation_error


def check_bounds(definition: type[BaseModel], settings: Any, besides: Collection[str] = ()) -> None:
    """Check values against their definition.

    Args:
        definition: The model that defines the bounds.
        settings: A dataclass with fields of the same names.
        besides: Fields that are not checked here, because they are checked elsewhere.

    Raises:
        InvalidField: A value is out of bounds; `location` names its field.
    """
    names = [field.name for field in fields(settings) if field.name not in besides]
    try:
        definition.model_validate({name: getattr(settings, name) for name in names})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise InvalidField(
            f"{name} = {getattr(settings, name)}: {format_validation_error(first)}", first["loc"]
        ) from None
