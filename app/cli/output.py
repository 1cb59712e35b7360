"""Print the results of commands: lines of text, and tables by rich."""

import json
import sys
from collections.abc import Iterable
from typing import NoReturn

import typer
from rich.table import Table

from lachesis._cli.output import console
from lachesis._cli.session import note
from lachesis.wire.printable import printable


class NotWritten(Exception):
    """Nothing was written. The message says why, and what to do."""


def show(parts: Iterable[str | Table]) -> None:
    """Print lines and tables to stdout. A table fits the terminal; in a file or pipe it is as wide as it needs.

    In lines, too, characters that a terminal would interpret are escaped: environments and datasets choose their names.
    """
    shown = console()
    for part in parts:
        if isinstance(part, str):
            shown.print(printable(part), soft_wrap=True)
        else:
            shown.print(part)


def show_json(text: str) -> None:
    """Print JSON to stdout. Characters that a terminal would interpret are escaped as JSON has it."""
    typer.echo("".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text))


def fail(message: str, code: int = 1) -> NoReturn:
    """Print one line to stderr, and exit."""
    note(message)
    sys.exit(code)
