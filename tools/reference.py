"""Write the reference pages that the code defines: `make reference`. A test compares them with the code."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lachesis import errors
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.curricula import CurriculumSettings
from lachesis.wire.problems import meaning
from lachesis.wire.replay import ReplaySettings
from lachesis.wire.runs import YEAR_S, RunCreate
from tools import http_reference, sdk_reference, table_reference
from tools.pages import heading, nested_models

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


def errors_page() -> str:
    """Return the page of errors: one row for each code."""
    rows = sorted(errors.BY_CODE.values(), key=lambda cls: (cls.status, cls.code))
    return "\n".join(
        [
            heading("Errors", "the classes in `clients/lachesis/wire/errors`"),
            "The service answers an error as problem details (RFC 9457, `application/problem+json`).",
            "`code` names the error, `detail` says what is wrong, and `remedy` says what to do.",
            "For a wrong value, `errors` has its place (`loc`) and what is wrong with it (`msg`).",
            f"Replies with status {_repeated()} have a `Retry-After` header: seconds after which to try again.",
            f"The exception is {_not_repeated()}: the SDK does not repeat such a request.",
            "",
            "The SDK raises the class named here. All classes are in `lachesis.errors`.",
            "",
            "| Status | `code` | Class | Meaning | What to do |",
            "|---|---|---|---|---|",
            *map(_error_row, rows),
            "",
            "## The tree of classes",
            "",
            "Catch a class to catch all below it. A code that the SDK does not know is a plain `ServiceError`.",
            "",
            "```text",
            *_tree(errors.LachesisError),
            "```",
            "",
        ]
    )


def _repeated() -> str:
    """Return the statuses that come with a time for the next attempt, such as ``429, 503 and 507``."""
    *most, last = sorted(_statuses_to_repeat())
    return f"{', '.join(map(str, most))} and {last}"


def _not_repeated() -> str:
    """Return the codes with one of these statuses, and without a time for the next attempt."""
    statuses = _statuses_to_repeat()
    found = [one for one in errors.BY_CODE.values() if one.status in statuses and one.retry_after_s is None]
    return ", ".join(f"`{one.code}`" for one in found)


def _statuses_to_repeat() -> set[int]:
    return {cls.status for cls in errors.BY_CODE.values() if cls.retry_after_s is not None}


def _error_row(cls: type[errors.ServiceError]) -> str:
    return f"| {cls.status} | `{cls.code}` | `{cls.__name__}` | {meaning(cls)} | {cls.remedy} |"


def _tree(cls: type[Exception], indent: str = "") -> Iterator[str]:
    yield f"{indent}{cls.__name__}"
    for sub in cls.__subclasses__():
        yield from _tree(sub, f"{indent}    ")


def settings_page() -> str:
    """Return the page of settings: a table for each model."""
    parts = [
        heading("Settings", "the models in `clients/lachesis/wire`"),
        "The settings of runs, replay buffers and curricula, with their bounds and defaults.",
        "A setting in `_s` is in seconds, one in `_bytes` in bytes. `null` is None in Python.",
        "The settings of the service itself are on [another page](service-settings.md).",
        "",
    ]
    for title, introduction, model in _SETTINGS:
        parts += [f"## {title}", "", introduction, "", *_settings_table(model)]
        for name, field in model.model_fields.items():
            for nested in nested_models(field):
                parts += [f"### `{name}`", "", str(nested.__doc__).partition("\n")[0], "", *_settings_table(nested)]
    return "\n".join(parts)


_SETTINGS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    (
        "Runs",
        "`POST /v1/runs` takes all of these, and `PATCH /v1/runs/{run}` changes all but `name` and `atropos`.\n"
        "SDK: `Trainer.create_run` and `Trainer.change_run`.",
        RunCreate,
    ),
    (
        "Replay buffers",
        "`PUT /v1/runs/{run}/replay` takes these, and `PATCH` changes them.\nSDK: `Replay.set_up` and `Replay.change`.",
        ReplaySettings,
    ),
    (
        "Curricula",
        "`PUT /v1/runs/{run}/curricula/{curriculum}` takes these, and `PATCH` changes them.\n"
        "SDK: `Curriculum.set_up` and `Curriculum.change`.",
        CurriculumSettings,
    ),
)


def _settings_table(model: type[BaseModel]) -> list[str]:
    rows = [_setting_row(name, field) for name, field in model.model_fields.items()]
    return ["| Setting | Values | Default | Meaning |", "|---|---|---|---|", *rows, ""]


_COMPARISONS = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))


def _setting_row(name: str, field: FieldInfo) -> str:
    values = [_kind(field.annotation)]
    for attribute, words in _COMPARISONS:
        bounds = [getattr(each, attribute) for each in field.metadata if hasattr(each, attribute)]
        values += [f"{words} {_number(bound)}" for bound in bounds]
    default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
    return f"| `{name}` | {', '.join(values)} | {default} | {field.description} |"


def _kind(annotation: Any) -> str:
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_kind(part) for part in get_args(annotation))
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    return _KINDS.get(annotation, "object: see below")


_KINDS = {int: "integer", float: "number", str: "text", bool: "`true`, `false`", NoneType: "`null`"}


def _number(value: float) -> str:
    if value == YEAR_S:
        return "a year"
    return "2^53 - 1" if value == MAX_INTEGER else "-(2^53 - 1)" if value == -MAX_INTEGER else f"{value:,.12g}"


def _default(value: object) -> str:
    if isinstance(value, BaseModel):
        return "its defaults"
    return '""' if value == "" else f"`{json.dumps(value)}`"


PAGES: Mapping[str, Callable[[], str]] = {
    "command-line.md": table_reference.command_line_page,
    "errors.md": errors_page,
    "http-api.md": http_reference.index_page,
    **{f"http/{noun}.md": partial(http_reference.noun_page, noun) for noun in http_reference.NOUNS},
    "log.md": table_reference.log_page,
    "metrics.md": table_reference.metrics_page,
    "sdk.md": sdk_reference.sdk_page,
    "settings.md": settings_page,
    "service-settings.md": table_reference.service_settings_page,
    "status.md": table_reference.status_page,
}


if __name__ == "__main__":
    (FOLDER / "http").mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
