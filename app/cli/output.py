"""Print the results of commands: lines of text, and tables by rich."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich is loaded by the commands that print tables
    from rich.table import Table

_UNLIMITED = 10_000  # columns of output that is not a terminal


def show(parts: Iterable["str | Table"]) -> None:
    """Print lines and tables to stdout. A table fits the terminal; in a file or pipe it is as wide as it needs."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNLIMITED
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> "Table":
    """Build a table without lines.

    Args:
        header: The names of the columns.
        rows: The cells. Characters that a terminal would interpret are replaced.
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


def printable(text: str) -> str:
    """Replace characters that could move a terminal's cursor. Environments and datasets choose their own names."""
    return "".join(character if character.isprintable() else "?" for character in text)
