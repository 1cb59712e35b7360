"""Read columns of numbers value by value, coerced like pydantic's lax mode. Each error has its place."""

from array import array
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from app.api.codec.json_reader import Path, as_array, described
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.columns import Column, Ragged, narrowed
from lachesis.wire.errors import InvalidField

_INT: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=-(2**63), lt=2**63)])
_FLOAT: TypeAdapter[float] = TypeAdapter(Annotated[float, Field(allow_inf_nan=False)])
_ENVIRONMENT: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=0, le=MAX_INTEGER)])


def read_column(column: Column, value: Any, path: Path) -> Ragged:
    """Read a column from any JSON value, a number at a time.

    Takes eight bytes of memory a number, also if ``value`` is a proxy for an array of millions.

    Args:
        column: What to read.
        value: A JSON value without infinities (`check_structure`).
        path: Where it is in the body.

    Raises:
        InvalidField: An element is not an array, or not a number of 64 bits.
    """
    reader = _ColumnReader(column)
    reader.read(value, 0, path)
    dtype = np.int64 if column.kind == "int" else np.float64
    lengths = tuple(narrowed(np.frombuffer(own, np.int64)) for own in reader.lengths)
    return Ragged(narrowed(np.frombuffer(reader.values, dtype)), lengths)


def read_environment(value: Any, path: Path) -> int:
    """Read an environment id.

    Raises:
        InvalidField: It is not an integer from 0 to 2**53 - 1.
    """
    environment: int = _coerced(_ENVIRONMENT, value, path)
    return environment


class _ColumnReader:
    """Collects the values of a column, and the lengths of its rows at each level of nesting."""

    def __init__(self, column: Column) -> None:
        integers = column.kind == "int"
        self.values: array[Any] = array("q" if integers else "d")
        self.lengths = [array("q") for _ in range(column.depth - 1)]
        self._adapter: TypeAdapter[Any] = _INT if integers else _FLOAT

    def read(self, rows: Any, level: int, path: Path) -> int:
        """Read the rows at ``level`` of nesting; return how many elements there are."""
        as_array(rows, path)
        if level == len(self.lengths):
            return self._read_values(rows, path)
        before = len(self.lengths[level])
        for position, row in enumerate(rows):
            self.lengths[level].append(self.read(row, level + 1, (*path, position)))
        return len(self.lengths[level]) - before

    def _read_values(self, row: Any, path: Path) -> int:
        if isinstance(row, list) and self._took_all(row):
            return len(row)
        before = len(self.values)
        for position, value in enumerate(row):
            try:
                self.values.append(value)
            except (TypeError, OverflowError):
                self.values.append(_coerced(self._adapter, value, (*path, position)))
        return len(self.values) - before

    def _took_all(self, row: list[Any]) -> bool:
        """Read a whole row, or nothing if a value needs coercion."""
        try:
            self.values.fromlist(row)
        except (TypeError, OverflowError):
            return False
        return True


def _coerced(adapter: TypeAdapter[Any], value: Any, path: Path) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidField(f"{reason}, not {described(value)}", path) from error
