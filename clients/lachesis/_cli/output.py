"""Print results for people and for programs. Names and reasons of others are escaped: a terminal interprets none."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from lachesis.wire.batches import Explanation, LastSubmission
from lachesis.wire.events import RunEvent
from lachesis.wire.printable import counted, printable

_T = TypeVar("_T")
Columns = Mapping[str, Callable[[_T], str]]
"""The columns of a table: what each shows, by its title."""

_UNLIMITED = 10_000  # columns of output that is not a terminal
_MOST_CHARACTERS = 200
_THOUSANDS = ("k", "M", "G", "T")
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the command end as all do (`lachesis._cli.usage`), instead of with 1."""
        raise  # noqa: PLE0704 - rich calls this while it handles the error


def console(*, stderr: bool = False) -> Console:
    """Return a console that interprets nothing in texts."""
    made = _Console(highlight=False, markup=False, emoji=False, stderr=stderr)
    if not made.is_terminal:
        made.width = _UNLIMITED
    return made


def show(console: Console, shown: RenderableType) -> None:
    """Print lines that fit the terminal. Into a file or a pipe, print them as long as they are."""
    console.print(shown, soft_wrap=not console.is_terminal)


def as_json(value: BaseModel | Mapping[str, Any]) -> str:
    """Return JSON in one line of ASCII."""
    return json.dumps(value.model_dump(mode="json") if isinstance(value, BaseModel) else value)


def explanation(found: Explanation) -> RenderableType:
    """Show whether a batch would form, and why not."""
    lines = ["a batch is ready" if found.ready else f"no batch: {found.reason}: {found.detail}"]
    if found.expected_s is not None:
        lines.append(f"expected in {found.expected_s:.0f} s at the present rates")
    if found.relaxes_s is not None:
        lines.append(f"minimums are relaxed in {found.relaxes_s:.0f} s")
    known = {one.environment: one for one in found.environments}
    for key, count in found.missing_by_environment.items():
        lines.append(f"environment {key} lacks {counted(count, 'sequence')}{_whose(known.get(key))}")
    if found.filtered_groups:
        filtered = ", ".join(f"{count} by {name}" for name, count in found.filtered_groups.items())
        lines.append(f"filtered groups: {filtered}, of {found.arrived_groups} lately")
    if found.alert is not None:
        lines.append(f"alert: {found.alert.detail}")
    lines += [f"warning: {warning.detail}" for warning in found.warnings]
    return Group(*map(line, lines))


def _whose(one: LastSubmission | None) -> str:
    """Say which environment that is, and when it was heard last."""
    if one is None:
        return ""
    sent = "no group yet" if one.last_group_age_s is None else f"last group {span(one.last_group_age_s)} ago"
    return f": {cut(one.name)}, heard {span(one.last_seen_age_s)} ago, {sent}"


def event(one: RunEvent) -> RenderableType:
    """Show an event in a line: its time in UTC, its kind, its fields."""
    at = datetime.fromtimestamp(one.time_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    fields = {name: value for name, value in one.model_dump().items() if name not in ("id", "time_s", "kind")}
    return line(f"{at} {one.kind} {' '.join(f'{name}={_value(value)}' for name, value in fields.items())}".rstrip())


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value and " " not in value else json.dumps(value, ensure_ascii=False)


def line(text: str) -> Text:
    """Return a line that others may have written, with its control characters escaped."""
    return Text(printable(text))


def table(header: Iterable[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """Build a table without lines. Its first ``left`` columns are aligned to the left. Cells are escaped."""
    built = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for place, name in enumerate(header):
        justify: JustifyMethod = "left" if place < left else "right"
        built.add_column(Text(name), justify=justify, no_wrap=True, overflow="ellipsis", min_width=len(name))
    for row in rows:
        built.add_row(*(Text(printable(cut(cell))) for cell in row))
    return built


def row(columns: Columns[_T], shown: _T) -> list[str]:
    """Return a cell for each column."""
    return [cell(shown) for cell in columns.values()]


def cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Shorten a text that somebody else chose."""
    return text if len(text) <= most else text[: most - 1] + "…"


def span(seconds: float) -> str:
    """Show a time, such as ``12 s`` or ``3 h``."""
    unit, length = next((one for one in _UNITS if seconds >= one[1]), _UNITS[-1])
    return f"{seconds / length:.0f} {unit}"


def short(count: int) -> str:
    """Show a large count in a few characters, such as ``1.2M``."""
    shown, size, rest = str(count), float(count), iter(_THOUSANDS)
    while size >= 999.5 and (unit := next(rest, None)):
        size /= 1000
        shown = f"{size:.1f}{unit}" if size < 9.95 else f"{size:.0f}{unit}"
    return shown
