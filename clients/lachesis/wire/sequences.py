"""Cut some sequences out of the blob of a group, for a rank that gets only a part of the group."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis.wire import blob
from lachesis.wire.columns import DETAILS, MEASURES, Ragged, are_lengths, lay_out, lengths_name, unpack

_PER_SEQUENCE = ("messages", "overrides", "images")


def take_sequences(payload: blob.Buffer, positions: Sequence[int]) -> bytes:
    """Return the blob of a group that holds only some of its sequences.

    It cuts everything that has a row per sequence: columns, lists among the details, and some of the sender's own
    tensors. These have lengths of their own (``NAME.lengths``), or a row per token, or a row per sequence. Each part
    gets a whole copy of everything else.

    Args:
        payload: A blob that was checked when it came in.
        positions: The sequences, 0-based, ascending.
    """
    group = unpack(payload)
    lengths = group.columns[MEASURES[0]].lengths[0]
    rows = np.asarray(positions, np.int64)
    columns = {
        name: _rows(column, rows) if _count(column) == len(lengths) else column
        for name, column in group.columns.items()
    }
    tensors = {name: _cut(name, array, group.tensors, lengths, rows) for name, array in group.tensors.items()}
    details = np.frombuffer(_cut_details(group.details, positions, len(lengths)), np.uint8)
    return blob.write({**tensors, **lay_out(columns), DETAILS: details}, group.metadata, group.dtypes)


def lengths_of(payload: blob.Buffer, header: blob.Header) -> NDArray[Any]:
    """Return the number of tokens of each sequence of a group: [sequences]. ``header`` is that of its blob."""
    return blob.tensor(payload, header.tensors[lengths_name(MEASURES[0])])


def _count(column: Ragged) -> int:
    return len(column.lengths[0] if column.lengths else column.values)


def _rows(ragged: Ragged, rows: NDArray[np.int64]) -> Ragged:
    if not ragged.lengths:
        return Ragged(ragged.values[rows])
    outer, *inner = ragged.lengths
    taken = _rows(Ragged(ragged.values, tuple(inner)), _spans(outer, rows))
    return Ragged(taken.values, (outer[rows], *taken.lengths))


def _spans(lengths: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the values of some rows, row after row."""
    ends = np.cumsum(lengths, dtype=np.int64)
    taken = lengths[rows].astype(np.int64)
    shift = (ends[rows] - taken) - (np.cumsum(taken) - taken)
    return np.repeat(shift, taken) + np.arange(int(taken.sum()), dtype=np.int64)


def _cut(
    name: str,
    array: NDArray[Any],
    tensors: Mapping[str, NDArray[Any]],
    tokens: NDArray[Any],
    rows: NDArray[np.int64],
) -> NDArray[Any]:
    """Cut one of the sender's own tensors, if it has one or more rows for each sequence."""
    if not array.ndim:
        return array
    count = array.shape[0]
    own = tensors.get(lengths_name(name))
    for lengths in (own, tokens):
        if lengths is not None and are_lengths(lengths, len(tokens), count):
            # Rows without values take no bytes, so there may be more of them than positions have room.
            return array[_spans(lengths, rows)] if array.size else array[: int(lengths[rows].sum(dtype=np.int64))]
    return array[rows] if count == len(tokens) else array


def _cut_details(text: bytes, positions: Sequence[int], sequences: int) -> bytes:
    details = json.loads(text)
    for name in _PER_SEQUENCE:
        rows = details.get(name)
        if isinstance(rows, list) and len(rows) == sequences:
            details[name] = [rows[position] for position in positions]
    return json.dumps(details, separators=(",", ":")).encode()
