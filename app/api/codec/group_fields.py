"""Take a group's JSON apart into its fields, with a shortcut for plain columns of numbers.

simdjson flattens an array of arrays of numbers into a buffer, without a Python object per number. The buffer does not
show arrays nested deeper than the column's: ``[[1, [2]]]`` flattens like ``[[1, 2]]``. So the shortcut counts the
arrays that it has seen. If the body has more, one is nested too deep, and all fields are read without the shortcut.
"""

import re
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.api.codec.json_reader import ARRAY_PROXIES, PROXIES, Path, check_structure, members
from lachesis.wire.columns import NATIVE_COLUMNS, Column, Ragged, narrowed

_COLUMNS = {column.name: column for column in NATIVE_COLUMNS}
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')  # a backslash escapes the character after it
_SLICE_BYTES = 1024 * 1024
_EXACT = 2.0**53  # integers below are the same as floats


@dataclass(slots=True)
class GroupFields:
    """The fields of one group, on their way from JSON to columns.

    Attributes:
        path: Where the group is in the body.
        values: The JSON value of each field that is there and not null.
        plain: Columns that the shortcut has read.
        texts: Minified JSON of fields, where the shortcut needed it.
        arrays: How many arrays the shortcut has seen in the group.
    """

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    plain: dict[str, Ragged] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    arrays: int = 0


def read_fields(group: Any, path: Path) -> GroupFields:
    """Return the fields of ``group``, a JSON object whose structure was checked."""
    fields = GroupFields(path)
    for name, value in members(group, path):
        _keep(fields, name, value)
    return fields


def read_fields_by_shortcut(group: Any, path: Path) -> GroupFields:
    """Return the fields of ``group``, a JSON object: plain columns as numbers, the others checked.

    The result is right only if `holds_only` says that no array was missed.

    Raises:
        MalformedBody, InvalidField: Like `check_structure`.
    """
    fields = GroupFields(path)
    for name, value in members(group, path):
        _keep(fields, name, value)
        column = _COLUMNS.get(name)
        plain = _plain(column, value) if column and isinstance(value, ARRAY_PROXIES) else None
        if plain is not None:
            fields.plain[name] = plain
            fields.arrays += 1 + sum(len(lengths) for lengths in plain.lengths)
        else:
            _check_other(fields, name, value)
    return fields


def holds_only(body: bytes, arrays: int) -> bool:
    """Return whether ``body``, valid JSON, has no more arrays than these, which were seen in it.

    Each array opens with a ``[`` and strings may hold more of them, so if there are as many ``[`` as arrays were seen,
    none was missed. Otherwise, which is rare, the strings are taken out and the rest is counted.
    """
    return count_byte(body, b"[") == arrays or count_arrays(body) == arrays


def count_arrays(text: bytes) -> int:
    """Count the arrays of valid JSON: each ``[`` outside a string opens one."""
    return _STRING.sub(b"", text).count(b"[")


def _keep(fields: GroupFields, name: str, value: Any) -> None:
    if value is not None:
        fields.values[name] = value


def _check_other(fields: GroupFields, name: str, value: Any) -> None:
    """Check a field that is not a plain column."""
    if isinstance(value, PROXIES):
        fields.arrays += check_structure(value, (*fields.path, name))
        if name not in _COLUMNS:
            fields.texts[name] = bytes(value.mini)


def _plain(column: Column, value: Any) -> Ragged | None:
    """Return the column as flat numbers, or None if it holds other types or has another shape."""
    lengths = _lengths(value, column.depth)
    if lengths is None:
        return None
    values = _integers(value) if column.kind == "int" else _flat(value, "d", np.float64)
    if values is None:
        return None
    if len(values) != (int(lengths[-1].sum(dtype=np.int64)) if lengths else len(value)):
        return None
    return Ragged(narrowed(values), lengths)


def _integers(value: Any) -> NDArray[Any] | None:
    """Return whole numbers, also those that are written like ``1.0``."""
    values = _flat(value, "i", np.int64)
    if values is not None:
        return values
    floats = _flat(value, "d", np.float64)
    if floats is None or not np.all((np.abs(floats) < _EXACT) & (np.trunc(floats) == floats)):
        return None
    return floats.astype(np.int64)


def _flat(value: Any, kind: str, dtype: Any) -> NDArray[Any] | None:
    """Return the numbers in an array of any depth; None if it holds strings, booleans, null or other numbers."""
    try:
        return np.frombuffer(value.as_buffer(of_type=kind), dtype)
    except (TypeError, ValueError):  # the latter beyond 64 bits
        return None


def _lengths(rows: Any, depth: int) -> tuple[NDArray[np.int32], ...] | None:
    """Return how many elements each row has, outermost level first, or None if an element is not a row.

    simdjson counts up to 0xFFFFFF. In a longer row the sum falls short of the values, so the column is not plain.
    """
    levels = tuple(array("i") for _ in range(depth - 1))
    for row in rows if levels else ():
        if not isinstance(row, ARRAY_PROXIES):
            return None
        levels[0].append(len(row))
        for place in row if depth == 3 else ():
            if not isinstance(place, ARRAY_PROXIES):
                return None
            levels[1].append(len(place))
    return tuple(np.frombuffer(level, np.int32) for level in levels)


def count_byte(body: bytes, byte: bytes) -> int:
    """Return ``body.count(byte)``. numpy takes a fifth of the time for 1 MB, in slices that fit a cache."""
    view = np.frombuffer(body, np.uint8)
    slices = range(0, len(view), _SLICE_BYTES)
    return sum(int(np.count_nonzero(view[start : start + _SLICE_BYTES] == ord(byte))) for start in slices)
