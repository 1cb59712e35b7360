"""The reference pages that are one table each: metrics, fields of the status, events of the log, the command line."""

from collections.abc import Iterator
from typing import Any

import click
import typer

from app import events
from app.cli.main import cli
from app.settings import ServiceSettings
from app.telemetry import METRICS
from lachesis._cli.commands import COMMANDS
from lachesis._cli.commands import cli as sdk_cli
from lachesis.wire.status import RunStatus
from tools.pages import field_table, heading


def metrics_page() -> str:
    """Return the page of metrics: one row each, in the order in which they are declared."""
    rows = [
        f"| `{one.name}` | {one.kind.value} | {', '.join(f'`{label}`' for label in one.labels)} | {one.meaning} |"
        for one in METRICS
    ]
    return "\n".join(
        [
            heading("Metrics", "`app/telemetry.py`"),
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
            heading("Status", "`clients/lachesis/wire/status.py`"),
            "The fields of `GET /status` and `GET /v1/runs/{run}/status`. Lists are marked by `[]`.",
            "",
            *field_table(RunStatus),
        ]
    )


def log_page() -> str:
    """Return the page of events: one row each, in the order in which they are declared."""
    kinds = [one for one in vars(events).values() if isinstance(one, type) and issubclass(one, events.Event)]
    rows = [
        f"| `{_message(kind)}` | {_level(kind)} | {(kind.__doc__ or '').partition(chr(10))[0].replace('``', '`')} "
        f"| {', '.join(f'`{name}`' for name in kind.names())} |"
        for kind in kinds
        if kind is not events.Event
    ]
    return "\n".join(
        [
            heading("Events and log", "`app/events.py`"),
            "The logger `lachesis.events` writes one line for each of these events that has a level.",
            "Those who [follow a run](../how-to/follow-a-run.md) get all of them but `run warned`.",
            "Polls and submissions are no events.",
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
    if not kind.is_logged:
        return "-"
    return {10: "debug", 20: "info", 30: "warning", 40: "error"}[kind.level]


def command_line_page() -> str:
    """Return the page of the command line: every command with its options."""
    parts = [
        heading("Command line", "`app/cli` and `clients/lachesis/_cli`"),
        "On the server, in a clone: `.venv/bin/python -m app COMMAND`.",
        "On any machine with the SDK: `python -m lachesis COMMAND`, with the extra `cli`.",
        "",
        "The commands of `python -m lachesis`, except `doctor` and `ping`, are in `python -m app`, too. There, the",
        "default of `--url` is the service of the settings (`LACHESIS_HOST`, `LACHESIS_PORT`, `LACHESIS_TLS_CERT`).",
        "They read `LACHESIS_URL`, `LACHESIS_RUN`, `LACHESIS_TOKEN` and `LACHESIS_TOKEN_FILE`, as the SDK does. All",
        "other commands of `python -m app` exit with 0 (done), 1 (not done, or a problem was found) or 2 (wrong use).",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | All is well. |",
        "| 1 | The answer is no, or the run needs attention. |",
        "| 2 | Wrong use. |",
        "| 3 | The service does not answer. |",
        "| 4 | Not allowed. |",
        "| 130 | Ctrl+C ended the command before it was done. |",
        "| 141 | The program that read the output ended first, as `head` does. |",
        "",
        "`python -m lachesis ping [URL] [--run NAME] [--json]` checks whether a service answers, and needs no extra.",
        "`python -m lachesis --version` prints the version of the SDK.",
        "",
    ]
    shared = {f"python -m app {name}" for name in COMMANDS if name != "doctor"}
    own = _commands(typer.main.get_command(cli), "python -m app")
    commands = [(path, command) for path, command in own if path not in shared]
    commands += _commands(typer.main.get_command(sdk_cli), "python -m lachesis")
    for path, command in commands:
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
        for name, field in ServiceSettings.model_fields.items()
    ]
    return "\n".join(
        [
            heading("Settings of the service", "`app/settings.py`"),
            "Environment variables, or lines of a `.env` file in the working directory. The environment wins, also",
            "with an empty value, which means the default.",
            "The SDK has [settings of its own](../how-to/python-sdk.md#settings).",
            "",
            "| variable | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _shown(default: object) -> str:
    """Write a default as in a `.env` file."""
    if default is None or default == "":
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
