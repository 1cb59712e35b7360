"""Find which tensors of a group hold which column. Only the names of the tensors matter, so groups share the answer."""

import reprlib
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from app.api.codec.json_reader import Path
from lachesis.wire.columns import COMPACT, DETAILS, FORMS, LENGTHS, MEASURES, NATIVE_COLUMNS, Column, lengths_name
from lachesis.wire.errors import InvalidField

MAX_TENSORS = 256
"""Most tensors in a group. Every reader reads the header of each."""

_MAX_NAME = 256
_LENGTHS = {
    lengths_name(column.name, level): (column.name, level < column.depth - 1)
    for column in NATIVE_COLUMNS
    for level in range(len(LENGTHS))
}
_NAMES = {DETAILS, *_LENGTHS, *COMPACT, *(column.name for column in NATIVE_COLUMNS)}


class ColumnPlace(NamedTuple):
    """Where a column is.

    Attributes:
        column: The column.
        tensor: The name of the tensor that holds it.
        compact: Whether that is a compact tensor.
        lengths: The names of the tensors with the lengths of its rows, the outermost first.
    """

    column: Column
    tensor: str
    compact: bool
    lengths: tuple[str, ...]


@lru_cache(maxsize=64)
def layout_of(names: tuple[str, ...]) -> tuple[ColumnPlace, ...]:
    """Return the places of the columns of a group with tensors of these names, in the order of `NATIVE_COLUMNS`.

    Raises:
        InvalidField: There are too many tensors, a name is invalid, two tensors stand for one column, or a tensor that
            is needed is missing. The location begins inside the group.
    """
    check_names(names, ())
    compact = {}
    for name in names:
        if name in _LENGTHS:
            _check_own_lengths(name, names)
        elif name in COMPACT:
            _check_alone(name, names)
            compact[COMPACT[name]] = name
    places = []
    for column in NATIVE_COLUMNS:
        if column.name in names:
            lengths = tuple([_lengths_of(column.name, level, names) for level in range(column.depth - 1)])
            places.append(ColumnPlace(column, column.name, compact=False, lengths=lengths))
        elif column.name in compact:
            places.append(
                ColumnPlace(column, compact[column.name], compact=True, lengths=(_lengths_of("tokens", 0, names),))
            )
        elif column.required:
            raise InvalidField("is required", (column.name,))
    return tuple(places)


def check_names(names: Collection[str], path: Path) -> None:
    """Check how many tensors there are, and their names.

    Raises:
        InvalidField: There are too many, or a name is invalid.
    """
    if len(names) > MAX_TENSORS:
        raise InvalidField(f"{len(names)} tensors; the limit is {MAX_TENSORS}", path)
    for name in names:
        if name not in _NAMES:
            check_name(name, path)


def check_name(name: str, path: Path) -> None:
    """Check the name of a tensor.

    Raises:
        InvalidField: It is empty, too long or not printable.
    """
    if not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
        shown = reprlib.repr(name)
        raise InvalidField(f"invalid name {shown}: use 1 to {_MAX_NAME} printable characters", path)


def _check_own_lengths(name: str, names: tuple[str, ...]) -> None:
    column, has_such = _LENGTHS[name]
    if column not in names:
        raise InvalidField(f"has the lengths of {column}, which is missing", (name,))
    if not has_such:
        raise InvalidField(f"{column} has no lengths at this level", (name,))


def _check_alone(name: str, names: tuple[str, ...]) -> None:
    """Check that nothing else stands for the column of a compact tensor."""
    column = COMPACT[name]
    others = [other for other in (column, *FORMS[column]) if other != name and other in names]
    if others:
        raise InvalidField(f"stands for {column}, as does {others[0]}: send one of them", (name,))


def _lengths_of(column: str, level: int, names: tuple[str, ...]) -> str:
    own = lengths_name(column, level)
    name = own if own in names else lengths_name(MEASURES[level], level)
    if name not in names:
        raise InvalidField(f"needs {own}", (column,))
    return name
