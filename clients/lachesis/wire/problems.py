"""The answer to a request that failed: problem details (RFC 9457), ``application/problem+json``."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import ErrorDetails

MAX_NAME = 80
"""Most characters of a name in a message: in a sentence, or in the place of a wrong value. Senders choose names."""

MAX_MESSAGE = 1000
"""Most characters of what is wrong with a value."""

MAX_DETAIL = 2 * MAX_MESSAGE
"""Most characters of what is wrong with a request, in a sentence: a place and a message, or some other text."""


class WrongValue(BaseModel):
    """A value that is wrong."""

    loc: list[str | int] = Field(
        description="Its place. In a body: the path from the root, as field names and positions from 0. The groups of "
        "a frame are in `groups`, as in JSON. For a parameter: `query` or `path`, and its name. Names of more than 80 "
        "characters are cut, and end with `...`.",
        examples=[["groups", 0, "environment"], ["query", "wait_s"]],
    )
    msg: str = Field(description="What is wrong with it.")


class Problem(BaseModel):
    """The reason why a request failed."""

    type: str = Field(description="Always `about:blank`; `code` names the error.", examples=["about:blank"])
    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.")
    code: str = Field(description="Stable name of what went wrong.", examples=["invalid_field"])
    detail: str = Field(description="What is wrong, with the values, for people.")
    remedy: str = Field(default="", description="What to do about it, for people.")
    errors: list[WrongValue] = Field(default=[], description="The wrong values, if these are the reason.")


def shortened(text: str, most: int) -> str:
    """Return a text with at most ``most`` characters. A longer one is cut and ends with ``...``."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def wrong_value(message: str, location: Sequence[str | int]) -> dict[str, Any]:
    """Return a `WrongValue` as JSON has it. Long texts are cut: no reply and no line of a log repeats a body."""
    parts = [shortened(part, MAX_NAME) if isinstance(part, str) else part for part in location]
    return {"loc": parts, "msg": shortened(message, MAX_MESSAGE)}


def place(location: Sequence[str | int]) -> str:
    """Write a location as people do: ``tokens[3][17]``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def meaning(error: type[Exception]) -> str:
    """Return what an error means, in a sentence or two: the first line of its docstring."""
    return (error.__doc__ or "").partition("\n")[0]


def format_validation_error(error: ErrorDetails) -> str:
    """Return the message of a validation error, without pydantic's names for Python types and its prefix."""
    if error["type"] == "model_type":
        return f"Input should be an object, with the fields of {error['ctx']['class_name']}"
    return error["msg"].removeprefix("Value error, ")


def most_telling(found: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the error to name first: an unknown field, which may be misspelt, before a missing one."""
    return next((error for error in found if error["type"] == "extra_forbidden"), found[0])
