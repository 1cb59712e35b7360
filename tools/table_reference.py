"""The reference pages that are one table each: metrics, fields of the status, events of the log, the command line."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_args, get_origin

import click
import typer
from pydantic import BaseModel

from app import events
from app.cli.main import cli
from app.settings import Settings
from app.telemetry import METRICS
from lachesis.wire.status import RunStatus

_NOTICE = "<!-- `make reference` writes this page. Edit `{source}` instead. -->\n"


def metrics_page() -> str:
    """Return the page of metrics: one row each, in the order in which they are declared."""
    rows = [
        f"| `{one.name}` | {one.kind.value} | {', '.join(f'`{label}`' for label in one.labels)} | {one.meaning} |"
        for one in METRICS
    ]
    return "\n".join(
        [
            "# Metrics",
            "",
            _NOTICE.format(source="app/telemetry.py"),
            "`GET /metrics` answers in the text format of Prometheus.",
            "[Operate](../operate/index.md#monitor) says how to scrape it, and what to alert on.",
            "",
            "| metric | kind | labels | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def status_page() -> str:
    """Return the page of the fields of `GET /status`."""
    return "\n".join(
        [
            "# Status",
            "",
            _NOTICE.format(source="clients/lachesis/wire/status.py"),
            "The fields of `GET /status` and `GET /v1/runs/{run}/status`. Lists are marked by `[]`.",
            "",
            "| field | meaning |",
            "|---|---|",
            *(f"| `{path}` | {meaning} |" for path, meaning in _fields(RunStatus)),
            "",
        ]
    )


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every field by its path, such as ``leases[].step``, with its meaning: nested ones after the outer one."""
    for name, field in model.model_fields.items():
        yield prefix + name, field.description or ""
        many = "[]" if get_origin(field.annotation) is list else ""
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _fields(part, f"{prefix}{name}{many}.")


def log_page() -> str:
    """Return the page of events: one row each, in the order in which they are declared."""
    kinds = [one for one in vars(events).values() if isinstance(one, type) and issubclass(one, events.Event)]
    rows = [
        f"| `{_message(kind)}` | {_level(kind)} | {(kind.__doc__ or '').partition(chr(10))[0].replace('``', '`')} "
        f"| {', '.join(f'`{field.name}`' for field in fields(kind))} |"
        for kind in kinds
        if kind is not events.Event
    ]
    return "\n".join(
        [
            "# Log",
            "",
            _NOTICE.format(source="app/events.py"),
            "The logger `lachesis.events` writes one line for each of these events.",
            "Polls and submissions are not logged.",
            "[Operate](../operate/index.md#read-the-log) shows the format of a line.",
            "",
            "| message | level | when | fields |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _message(kind: type[events.Event]) -> str:
    named: Any = object.__new__(kind)
    return str(kind.message.__get__(named))


def _level(kind: type[events.Event]) -> str:
    return {10: "debug", 20: "info", 30: "warning", 40: "error"}[kind.level]


def command_line_page() -> str:
    """Return the page of the command line: every command with its options."""
    parts = [
        "# Command line",
        "",
        _NOTICE.format(source="app/cli"),
        "In a clone, `.venv/bin/python -m app COMMAND`. The SDK has one command of its own:",
        "`python -m lachesis ping [URL] [--run NAME]` checks whether a service answers.",
        "",
    ]
    root = typer.main.get_command(cli)
    for path, command in _commands(root, "python -m app"):
        parts += [f"## `{path}`", "", (command.help or "").replace("\b", "").strip(), ""]
        rows = [
            f"| `{'`, `'.join(one.opts)}` | {_default(one)} | {' '.join((getattr(one, 'help', '') or '').split())} |"
            for one in command.params
            if "--help" not in one.opts
        ]
        if rows:
            parts += ["| option | default | meaning |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield path, command
        return
    for name in commands:
        yield from _commands(commands[name], f"{path} {name}")


def _default(parameter: click.Parameter) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value in (None, False, True, "", ()) or callable(value) else f"`{value}`"


def service_settings_page() -> str:
    """Return the page of the service's settings."""
    rows = [
        f"| `LACHESIS_{name.upper()}` | {_shown(field.default)} | {' '.join((field.description or '').split())} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(
        [
            "# Settings of the service",
            "",
            _NOTICE.format(source="app/settings.py"),
            "Environment variables, or lines of a `.env` file in the working directory. The environment wins.",
            "The SDK has [settings of its own](../how-to/python-sdk.md#settings).",
            "",
            "| variable | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _shown(default: object) -> str:
    return "" if default in (None, "") else f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
