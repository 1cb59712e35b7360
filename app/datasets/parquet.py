"""Read Parquet files with a row for each episode. Only the needed columns are read."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.datasets.episodes import (
    UNLIKE_IDS,
    Ids,
    Progress,
    Slice,
    WantedColumns,
    check_costs,
    check_count,
    check_lengths,
    shown,
)
from app.datasets.files import Folder, in_parallel
from lachesis.wire.errors import InvalidDataset

SUFFIXES = (".parquet",)


def read_parquet(folder: Folder, files: list[str], wanted: WantedColumns, progress: Progress) -> list[Slice]:
    """Read files with one row per episode, several at a time.

    Raises:
        InvalidDataset: pyarrow is not installed; or a file is damaged, lacks a column, or has a wrong type or value.
    """
    _pyarrow()
    return in_parallel(lambda file: _part(folder, file, wanted), files, [1] * len(files), progress)


def _pyarrow() -> Any:
    """Return the pyarrow module. It is imported late, because it is large and used only here."""
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise InvalidDataset(
            "Parquet is read with pyarrow, which is not installed: python -m pip install pyarrow (the extra `shards`)"
        ) from None
    return pyarrow


def _part(folder: Folder, file: str, wanted: WantedColumns) -> Slice:
    pyarrow = _pyarrow()
    source = folder.called(file)
    try:
        with (
            folder.opened(file) as descriptor,
            open(descriptor, "rb", closefd=False) as stream,
            pyarrow.parquet.ParquetFile(stream) as parquet,
        ):
            check_count(parquet.metadata.num_rows, source)
            schema = parquet.schema_arrow
            ids = wanted.id_column(schema.names)
            tasks = "tasks" if wanted.tasks and "tasks" in schema.names else None
            needed = [name for name in (wanted.length_column, wanted.cost, ids, tasks) if name is not None]
            for name in needed:
                _check_column(schema, name, source)
            table = parquet.read(needed)
    except (pyarrow.ArrowException, OSError) as error:
        raise InvalidDataset(f"{source} is not a Parquet file that can be read: {shown(str(error))}") from None

    def place(row: int) -> str:
        return f"{source}, row {row}"

    return Slice(
        source,
        _lengths(pyarrow, table, wanted.length_column, place),
        ids=None if ids is None else _ids(pyarrow, table, ids, place),
        costs=None if wanted.cost is None else _costs(pyarrow, table, wanted.cost, place),
        tasks=Counter() if tasks is None else _tasks(pyarrow, table.column(tasks), source),
    )


def _check_column(schema: Any, name: str, source: str) -> None:
    places = schema.get_all_field_indices(name)
    if not places:
        raise InvalidDataset(f"{source}: no column {name!r}; there are {shown(schema.names)}")
    if len(places) > 1:
        raise InvalidDataset(f"{source}: {len(places)} columns have the name {name!r}")


def _lengths(pyarrow: Any, table: Any, name: str, place: Callable[[int], str]) -> NDArray[np.int64]:
    column = _present(table, name, place)
    if not pyarrow.types.is_integer(column.type):
        raise InvalidDataset(f"{place(0)}: column {name!r} holds {column.type}, not whole numbers")
    lengths: NDArray[np.int64] = column.to_numpy().astype(np.int64)  # larger values become negative and are refused
    check_lengths(lengths, place, name)
    return lengths


def _costs(pyarrow: Any, table: Any, name: str, place: Callable[[int], str]) -> NDArray[np.float64]:
    column = _present(table, name, place)
    if not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)):
        raise InvalidDataset(f"{place(0)}: column {name!r} holds {column.type}, not numbers")
    costs: NDArray[np.float64] = column.to_numpy().astype(np.float64)
    check_costs(costs, place, name)
    return costs


def _present(table: Any, name: str, place: Callable[[int], str]) -> Any:
    """Return a column, after a check that no value is missing."""
    column = table.column(name)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InvalidDataset(f"{place(row)}: no {name}")
    return column


def _ids(pyarrow: Any, table: Any, name: str, place: Callable[[int], str]) -> Ids:
    column = _present(table, name, place)
    if pyarrow.types.is_integer(column.type):
        given = column.to_numpy()
        numbers: NDArray[np.int64] = given.astype(np.int64)
        if (wrong := np.flatnonzero((numbers < 0) & (given > 0))).size:  # unsigned ones of 64 bits may be larger
            at = int(wrong[0])
            raise InvalidDataset(f"{place(at)}: {name} is {given[at]}; {UNLIKE_IDS}")
        return numbers
    if not (pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)):
        raise InvalidDataset(f"{place(0)}: column {name!r} holds {column.type}; ids are whole numbers or texts")
    return _texts(pyarrow, column, name, place)


def _texts(pyarrow: Any, column: Any, name: str, place: Callable[[int], str]) -> list[str]:
    try:
        texts: list[str] = column.to_pylist()
    except UnicodeDecodeError as error:
        row = column.cast(pyarrow.large_binary()).to_pylist().index(error.object)
        raise InvalidDataset(f"{place(row)}: {name} is not UTF-8") from None
    return texts


def _tasks(pyarrow: Any, column: Any, source: str) -> Counter[str]:
    kind = column.type
    if not (pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)) or not (
        pyarrow.types.is_string(kind.value_type) or pyarrow.types.is_large_string(kind.value_type)
    ):
        raise InvalidDataset(f"{source}: column 'tasks' holds {kind}, not lists of texts")
    try:
        counted = pyarrow.compute.value_counts(pyarrow.compute.list_flatten(column)).to_pylist()
    except UnicodeDecodeError:
        raise InvalidDataset(f"{source}: a task is not UTF-8") from None
    return Counter({entry["values"]: entry["counts"] for entry in counted if entry["values"] is not None})
