"""Bodies of requests, checked before they are sent: what is wrong is named as the service would name it."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lachesis.errors import InvalidField
from lachesis.wire.problems import format_validation_error, most_telling, wrong_value

M = TypeVar("M", bound=BaseModel)

_MOST_VALUE = 80

_SAYS_ALL = {"missing", "too_long", "too_short"}
"""Errors whose messages need no value: it is that of the object around a missing field, or a list by its length."""

Path = tuple[str | int, ...]


def checked(model: type[M], **values: Any) -> M:
    """Make the body of a request.

    Raises:
        InvalidField: A value is wrong, or there is no such field; ``errors`` says which.
    """
    try:
        return model(**values)
    except ValidationError as error:
        found = error.errors(include_url=False)
    first = most_telling(found)
    refused = InvalidField(_message_of(model, first), first["loc"])
    refused.errors = tuple(wrong_value(_message_of(model, item), item["loc"]) for item in found)
    raise refused


def differing(asked: M, there: M, named: Iterable[str]) -> dict[str, Any]:
    """Return the ``named`` fields whose values ``there`` differ from those ``asked`` for, with the values there."""
    return {name: getattr(there, name) for name in named if getattr(there, name) != getattr(asked, name)}


def _message_of(model: type[BaseModel], item: ErrorDetails) -> str:
    if item["type"] == "extra_forbidden":
        near = get_close_matches(str(item["loc"][-1]), model.model_fields, n=1)
        return "there is no such field" + "".join(f"; did you mean {name}?" for name in near)
    if not item["loc"] or item["type"] in _SAYS_ALL:  # an empty location: of the whole, which says what it needs
        return format_validation_error(item)
    return f"{format_validation_error(item)}, not {repr(item['input'])[:_MOST_VALUE]}"
