"""Print the results of commands: lines of text, and tables by rich."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

import typer

from app.events import MOST_CHARACTERS
from lachesis.wire.printable import printable

if TYPE_CHECKING:  # rich is loaded by the commands that print tables
    from rich.table import Table


class NotWritten(Exception):
    """Nothing was written. The message says why, and what to do."""


_UNLIMITED = 10_000  # columns of output that is not a terminal


def show(parts: Iterable["str | Table"]) -> None:
    """Print lines and tables to stdout. A table fits the terminal; in a file or pipe it is as wide as it needs.

    In lines, too, characters that a terminal would interpret are escaped: environments and datasets choose their names.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNLIMITED
    for part in parts:
        if isinstance(part, str):
            console.print(printable(part), soft_wrap=True)
        else:
            console.print(part)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> "Table":
    """Build a table without lines.

    Args:
        header: The names of the columns.
        rows: The cells. Characters that a terminal would interpret are escaped.
        left: How many columns, from the first, are aligned to the left. The others are aligned to the right.
    """
    from rich.table import Table
    from rich.text import Text

    built = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for place, name in enumerate(header):
        built.add_column(Text(name), justify="left" if place < left else "right", no_wrap=True)
    for row in rows:
        built.add_row(*(Text(printable(cell)) for cell in row))
    return built


def cut(text: str) -> str:
    """Shorten a name that somebody else chose, for a table."""
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"


def show_json(text: str) -> None:
    """Print JSON to stdout. Characters that a terminal would interpret are escaped as JSON has it."""
    typer.echo("".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text))


def fail(message: str, code: int = 1) -> NoReturn:
    """Print one line to stderr, and exit."""
    typer.echo(f"lachesis: {printable(' '.join(message.split()))}", err=True)
    sys.exit(code)
