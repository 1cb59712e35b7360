"""Read JSON lines: an object for each episode, or only its length."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import orjson

from app.datasets.episodes import (
    UNLIKE_IDS,
    Ids,
    Progress,
    Slice,
    WantedColumns,
    check_costs,
    check_count,
    shown,
    whole_numbers,
)
from app.datasets.files import Folder
from lachesis.wire.errors import InvalidDataset

SUFFIXES = (".jsonl", ".ndjson")

_BLOCK_BYTES = 4 * 1024 * 1024
_MOST_ID = 2**63 - 1


def read_jsonl(folder: Folder, file: str, wanted: WantedColumns, progress: Progress) -> list[Slice]:
    """Read a file with one JSON value per line: an object with a length, or a number, which is the length.

    Raises:
        InvalidDataset: A line is not JSON, lacks a column, or has a wrong value. The message names the line.
    """
    parts: list[Slice] = []
    line = 1
    with folder.opened(file) as descriptor, open(descriptor, "rb", closefd=False) as stream:
        size = os.fstat(descriptor).st_size
        for block in _blocks(stream, folder.called(file)):
            parts.append(_part(block, _LinePlaces(folder.called(file), line), wanted))
            line += len(block)
            check_count(line - 1, folder.called(file))
            progress(stream.tell(), size)
    return parts


class _LinePlaces:
    """The lines of the episodes of a block."""

    def __init__(self, source: str, first: int) -> None:
        self.source = source
        self.first = first

    def __call__(self, position: int) -> str:
        return f"{self.source}, line {self.first + position}"


def _blocks(stream: BinaryIO, source: str) -> Iterator[list[bytes]]:
    """Yield the lines of a file, some megabytes at a time. No line may be larger than a block."""
    rest = b""
    lines = 0
    while block := stream.read(_BLOCK_BYTES):
        *whole, rest = (rest + block).split(b"\n")
        if len(rest) > _BLOCK_BYTES:
            raise InvalidDataset(f"{source}, line {lines + len(whole) + 1}: longer than {_BLOCK_BYTES} bytes")
        lines += len(whole)
        if whole:
            yield whole
    if rest:
        yield [rest]


def _part(lines: list[bytes], place: _LinePlaces, wanted: WantedColumns) -> Slice:
    rows = _parsed(lines, place)
    column = wanted.length_column
    if {*map(type, rows)} <= {int}:
        if wanted.cost is not None:
            raise InvalidDataset(f"{place(0)}: a length alone has no column {wanted.cost!r}")
        return _of_file(place, whole_numbers(rows, place, column))
    lengths = whole_numbers(_column(rows, column, place), place, column)
    ids = wanted.id_column(rows[0])
    return _of_file(
        place,
        lengths,
        ids=None if ids is None else _ids(_column(rows, ids, place), place, ids),
        costs=None if wanted.cost is None else _costs(_column(rows, wanted.cost, place), place, wanted.cost),
        tasks=_tasks(rows, place) if wanted.tasks and "tasks" in rows[0] else Counter(),
    )


def _of_file(place: _LinePlaces, lengths: Any, **more: Any) -> Slice:
    return Slice(place.source, lengths, **more, row_name="line", first_row=place.first)


def _parsed(lines: list[bytes], place: _LinePlaces) -> list[Any]:
    try:
        return [*map(orjson.loads, lines)]
    except orjson.JSONDecodeError:
        pass
    for position, line in enumerate(lines):
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError as error:
            reason = error.msg if line.strip() else "the line is empty"
            raise InvalidDataset(f"{place(position)}: not JSON: {reason}") from None
    raise AssertionError("one of the lines was not JSON")


def _column(rows: Sequence[Any], name: str, place: Callable[[int], str]) -> list[Any]:
    try:
        return [row[name] for row in rows]
    except (KeyError, TypeError):
        at = next(n for n, row in enumerate(rows) if type(row) is not dict or name not in row)
    if type(rows[at]) is dict:
        raise InvalidDataset(f"{place(at)}: no column {name!r}; there are {shown(list(rows[at]))}")
    raise InvalidDataset(f"{place(at)}: not an object but {shown(rows[at])}")


def _ids(values: list[Any], place: Callable[[int], str], column: str) -> Ids:
    kinds = {*map(type, values)}
    if kinds <= {int} and max(values) <= _MOST_ID:
        return np.array(values, np.int64)
    if kinds <= {str}:
        return values
    at = next(n for n, value in enumerate(values) if type(value) is not type(values[0]) or not _is_id(value))
    raise InvalidDataset(f"{place(at)}: {column} is {shown(values[at])}; {UNLIKE_IDS}")


def _is_id(value: Any) -> bool:
    return type(value) is str or (type(value) is int and value <= _MOST_ID)


def _costs(values: list[Any], place: Callable[[int], str], column: str) -> Any:
    if not {*map(type, values)} <= {int, float}:
        at = next(n for n, value in enumerate(values) if type(value) not in (int, float))
        raise InvalidDataset(f"{place(at)}: {column} is {shown(values[at])}, not a number")
    costs = np.array(values, np.float64)
    check_costs(costs, place, column)
    return costs


def _tasks(rows: list[Any], place: Callable[[int], str]) -> Counter[str]:
    lists = _column(rows, "tasks", place)
    try:
        counted = Counter(chain.from_iterable(lists))
    except TypeError:
        counted = Counter({None: 1})
    if {*map(type, lists)} <= {list} and {*map(type, counted)} <= {str}:
        return counted
    at = next(n for n, tasks in enumerate(lists) if type(tasks) is not list or any(type(t) is not str for t in tasks))
    raise InvalidDataset(f"{place(at)}: tasks is {shown(lists[at])}, not a list of texts")
