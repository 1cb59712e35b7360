"""Read the file of rules that map the claims of a JWT or the names of a certificate to a role and limits."""

import re
import tomllib
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import Field, ValidationError

from app.core.access.claims import PLACEHOLDER, ClaimRule
from app.core.access.rate_limits import limits_of
from lachesis.wire.access import ALL_RUNS, MAX_PATTERNS, LimitedScope
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings
from lachesis.wire.problems import format_validation_error, most_telling, place

MAX_RULES = 100
MAX_FILE_BYTES = 16 * 1024

_RunTemplate = Annotated[str, Field(pattern=r"^[A-Za-z0-9._*-]*(\{[^{}]+\})?[A-Za-z0-9._*-]*$", min_length=1)]
_Name = Annotated[str, Field(min_length=1, max_length=512)]


class InvalidRules(ValueError):
    """The rules cannot be used. The message names the line, the rule and the field."""


class _RuleTable(LimitedScope):
    """A `[[rule]]` of the file."""

    claim: _Name
    value: _Name
    runs: tuple[_RunTemplate, ...] = Field(default=(), max_length=MAX_PATTERNS)


_LIMITS = (*RateLimitSettings.model_fields, *QueueLimitSettings.model_fields)
_SAID = {
    "model_type": "it is not a table: write [[rule]]",
    "extra_forbidden": "unknown field; a rule has claim, value, role, runs, environment, contents and limits: "
    + ", ".join(_LIMITS),
    "string_pattern_mismatch": "a run has letters, digits, '.', '_', '-', '*' and at most one {claim}",
}


def parse_rules(text: str) -> tuple[ClaimRule, ...]:
    """Read rules, in their order, from a TOML text of ``[[rule]]`` tables.

    Raises:
        InvalidRules: The text is not TOML, or a field is missing, unknown or wrong.
    """
    if len(text.encode()) > MAX_FILE_BYTES:
        raise InvalidRules(f"the file is over {MAX_FILE_BYTES} bytes")
    document = _document(text)
    for name in document:
        if name != "rule":
            raise InvalidRules(f"line {_line(text, partial(_names, name))}: {name}: the file has only [[rule]] tables")
    tables = document.get("rule", [])
    if not isinstance(tables, list) or not 1 <= len(tables) <= MAX_RULES:
        raise InvalidRules(f"the file needs 1 to {MAX_RULES} [[rule]] tables")
    return tuple(_rule(text, number, table) for number, table in enumerate(tables))


def _document(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRules(str(error)) from error
    except RecursionError as error:
        raise InvalidRules("a value is nested too deeply") from error


def _rule(text: str, number: int, table: dict[str, Any]) -> ClaimRule:
    try:
        read = _RuleTable.model_validate(table)
    except ValidationError as error:
        wrong = most_telling(error.errors(include_url=False))
        where = wrong["loc"]
        known = bool(where) and where[0] in table
        line = _line(text, lambda found: _has(found, number, where[0] if known else None))
        said = _SAID.get(wrong["type"]) or format_validation_error(wrong)
        field = f"{place(where)}: " if where else ""
        raise InvalidRules(f"line {line}: rule {number + 1}: {field}{said}") from error
    if read.environment is not None and len(PLACEHOLDER.findall(read.environment)) > 1:
        line = _line(text, lambda found: _has(found, number, "environment"))
        raise InvalidRules(f"line {line}: rule {number + 1}: environment: more than one {{claim}}")
    return ClaimRule(
        claim=read.claim,
        value=read.value,
        role=read.role,
        runs=read.runs or (ALL_RUNS,),
        environment=read.environment,
        contents=read.contents,
        limits=limits_of(RateLimitSettings, read),
        queue_limits=limits_of(QueueLimitSettings, read),
    )


def _names(name: str, document: dict[str, Any]) -> bool:
    return name in document


def _has(document: dict[str, Any], number: int, field: str | int | None) -> bool:
    tables = document.get("rule", [])
    return len(tables) > number and (field is None or field in tables[number])


def _line(text: str, found: Callable[[dict[str, Any]], bool]) -> int:
    """Return the line where something first appears in the document. The parser does not give the lines of values."""
    lines = re.split(r"(?<=\n)", text)
    for count in range(1, len(lines)):
        try:
            if found(_document("".join(lines[:count]))):
                return count
        except InvalidRules:  # in the middle of a value
            continue
    return len(lines)
