"""Flatten nested rows of numbers into one array, and the lengths that split it."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis._transport.bodies import Path
from lachesis.errors import InvalidField
from lachesis.wire.columns import Column, Ragged, place_of


def ragged(rows: Any, column: Column) -> Ragged:
    """Flatten the rows of a column.

    Args:
        rows: Lists, arrays, or lists of arrays, nested as deep as the column says.
        column: What they are.

    Raises:
        InvalidField: They are nested in another way, or hold values of another kind.
    """
    flattening = _Flattening(column)
    flattening.add(rows, 0, (column.name,))
    pieces = flattening.pieces
    values = pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [_nothing(column)])
    flat = Ragged(values, tuple(np.array(level, np.int64) for level in flattening.lengths))
    if column.kind == "float":
        _check_finite(flat, (column.name,))
    return flat


class _Flattening:
    """Collects the values of a column as arrays, and the lengths of its rows at each level of nesting."""

    def __init__(self, column: Column) -> None:
        self.pieces: list[NDArray[Any]] = []
        self.lengths: list[list[int]] = [[] for _ in range(column.depth - 1)]
        self._column = column

    def add(self, rows: Any, level: int, path: Path) -> int:
        """Add what lies at ``level`` of nesting; returns how many elements it has."""
        innermost = level == len(self.lengths)
        if isinstance(rows, str | bytes):
            numbers = "whole numbers" if self._column.kind == "int" else "numbers"
            raise InvalidField(f"is text where {'lists of ' * (len(self.lengths) - level)}{numbers} belong", path)
        array = as_array(rows, path) if innermost or hasattr(rows, "__array__") else None
        if array is not None and (innermost or array.dtype != object):
            return self._add_array(array, level, path)
        try:
            elements = list(rows)
        except TypeError:
            raise InvalidField(f"should be an array, not {type(rows).__name__}", path) from None
        for position, row in enumerate(elements):
            self.lengths[level].append(self.add(row, level + 1, (*path, position)))
        return len(elements)

    def _add_array(self, array: NDArray[Any], level: int, path: Path) -> int:
        inner = len(self.lengths) - level
        if array.ndim != inner + 1:
            raise InvalidField(f"has {array.ndim} dimensions where {inner + 1} belong", path)
        rows = 1
        for below in range(inner):
            rows *= array.shape[below]
            self.lengths[level + below] += [array.shape[below + 1]] * rows
        self.pieces.append(_numbers(array.reshape(-1), self._column, path))
        return len(array)


def _check_finite(flat: Ragged, path: Path) -> None:
    finite = np.isfinite(flat.values)
    if not finite.all():
        raise InvalidField("not a finite number", (*path, *place_of(flat, int(np.argmin(finite)))))


def as_array(value: Any, path: Path, read: Callable[[Any], NDArray[Any]] = np.asarray) -> NDArray[Any]:
    """Return a value as an array.

    Raises:
        InvalidField: It cannot be read.
    """
    try:
        return read(value)
    except ValueError:  # rows of unequal lengths
        raise InvalidField("is nested deeper than it should be", path) from None
    except (TypeError, RuntimeError) as error:  # a tensor on a GPU, or one that requires gradients
        raise InvalidField(f"cannot be read as an array: {error}", path) from None


def _numbers(array: NDArray[Any], column: Column, path: Path) -> NDArray[Any]:
    """Return the values in a width that is stored: 4 or 8 bytes."""
    if not array.size:
        return _nothing(column)
    if array.dtype.kind not in ("iu" if column.kind == "int" else "fiu"):
        wanted = "integers of 64 bits at most" if column.kind == "int" else "numbers"
        raise InvalidField(f"should hold {wanted}, not {array.dtype}", path)
    if array.dtype == np.uint64 and column.kind == "int" and array.max() > np.iinfo(np.int64).max:
        raise InvalidField("should hold integers of 64 bits at most, with their sign", path)
    if column.kind == "int":
        return array if array.dtype in (np.int32, np.int64) else array.astype(np.int64)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _nothing(column: Column) -> NDArray[Any]:
    return np.empty(0, np.int32 if column.kind == "int" else np.float32)
