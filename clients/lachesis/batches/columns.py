"""The columns of a batch as numpy arrays over all its sequences: views of the reply, or new arrays if compact."""

from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis._torch import shared
from lachesis.groups.packed import PackedColumns
from lachesis.groups.views import GroupView, SequenceView
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.batches import BatchInfo
from lachesis.wire.columns import DETAILS, NATIVE_COLUMNS, lengths_name

_EMPTY: dict[str, np.dtype[Any]] = {
    **{column.name: np.dtype(np.int32 if column.kind == "int" else np.float32) for column in NATIVE_COLUMNS},
    **{
        lengths_name(column.name, level): np.dtype(np.int32)
        for column in NATIVE_COLUMNS
        for level in range(column.depth - 1)
    },
}
"""The columns of a shard without groups, and their dtypes. They let its rank run the same code as the others."""


_EXACT = 2**53  # f64 has every integer up to here


class Columns(PackedColumns):
    """All sequences of a batch, in training order.

    `column` returns the values of all groups end to end (packed); `padded` returns a row per sequence. `lengths` and
    `cu_seqlens` split per-token columns, unless a column has its own lengths.

    Attributes:
        info: The service's description of the batch: id, step, lease, groups.
        groups: The groups of the batch.
        file: The reply that holds the columns.
    """

    def __init__(self, info: BatchInfo, file: BatchFile) -> None:
        self.info = info
        self.groups = [GroupView(group, file, position) for position, group in enumerate(info.groups)]
        self.file = file
        self._flat: dict[str, NDArray[Any]] = {}

    @property
    def step(self) -> int:
        """The step of the batch."""
        return self.info.step

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns that all groups have, without columns of lengths.

        A shard without groups has each column that an environment may submit, without values.
        """
        if not self.groups:
            return [column.name for column in NATIVE_COLUMNS]
        return [
            name
            for name in self.groups[0].names
            if self.file.whole(name) is not None or all(name in group for group in self.groups)
        ]

    @cached_property
    def group_lengths(self) -> NDArray[np.int32]:
        """Sequences in each group: [groups]."""
        return np.array([group.info.size for group in self.groups], np.int32)

    @property
    def loss_weights(self) -> NDArray[np.float64]:
        """Factor for the loss of each sequence, from the filters of the run: f64 [sequences]."""
        return np.repeat([group.loss_weight for group in self.groups], self.group_lengths).astype(np.float64)

    @property
    def micro_batches(self) -> list[NDArray[np.int64]]:
        """The sequences of each micro-batch, as rows of `padded`. Without micro-batches: one with all sequences."""
        packing = None if self.info.shard is None else self.info.shard.packing
        if packing is None:
            return [np.arange(len(self.lengths))]
        return [np.array(rows, np.int64) for rows in packing.micro_batches]

    def column(self, name: str) -> NDArray[Any]:
        """Return a column of all sequences, end to end, as one array.

        The first call makes the array, and later calls return the same array. Usually it is a view of the reply. Then
        values that you write to it show in the groups. Compact columns are new arrays in full. If groups store a column
        in different widths, the array is a copy in the largest width. Integers and floats are joined as f64 if that
        keeps every integer. bf16 and f8 come as their bits.

        In a shard without groups, the columns of `names` and their lengths are empty arrays.

        Raises:
            KeyError: A group has no such column; the message names the first one. Or there are no groups, and it is
                not one of `names`.
            ValueError: The columns of the groups cannot be joined: their dtypes or shapes differ.
        """
        if name not in self._flat:
            self._flat[name] = self._joined(name)
        return self._flat[name]

    def lengths_of(self, name: str) -> NDArray[Any]:
        """Return how many values of a column each sequence has: [sequences]."""
        own = any(group.has_lengths(name) for group in self.groups)
        whole = self.file.whole(lengths_name(name if own else "tokens"))
        if whole is not None:
            return whole
        return np.concatenate([group.lengths_of(name) for group in self.groups] or [np.empty(0, np.int32)])

    def sequences(self) -> list[SequenceView]:
        """Return all sequences, in the order of the rows of `padded`."""
        return [sequence for group in self.groups for sequence in group.sequences()]

    def to_torch(self) -> dict[str, Any]:
        """Return the columns that all groups have, packed, as tensors that share memory with `column`.

        ``lengths``, ``group_lengths`` and ``cu_seqlens`` are included, and ``NAME.lengths`` of columns with their own
        lengths. ``NAME.inner_lengths`` is included for columns with several values per token. bf16 and f8 have their
        real dtype. A shard without groups has the columns of `names` and their lengths, without values.

        Columns that cannot be joined are left out: single numbers, and the sender's own tensors whose dtypes or shapes
        differ. Read them from `groups`.

        Raises:
            ModuleNotFoundError: PyTorch is not installed.
        """
        tensors = self._tensors() if self.groups else {name: shared(self.column(name)) for name in _EMPTY}
        for name in ("lengths", "group_lengths", "cu_seqlens"):
            tensors[name] = shared(getattr(self, name))
        return tensors

    def _tensors(self) -> dict[str, Any]:
        tensors: dict[str, Any] = {}
        for name in self.names:
            with suppress(ValueError):  # it cannot be joined
                found = {name: shared(self.column(name), self.groups[0].dtype(name))}
                if name != "tokens" and any(group.has_lengths(name) for group in self.groups):
                    found[lengths_name(name)] = shared(self.lengths_of(name))
                if all((inner := lengths_name(name, 1)) in group for group in self.groups):
                    found[inner] = shared(self.column(inner))
                tensors |= found
        return tensors

    def _facts(self) -> dict[str, object]:
        return {
            "step": self.step,
            "batch": self.info.batch,
            "groups": len(self.groups),
            "sequences": len(self.lengths),
            "tokens": int(self.lengths.sum(dtype=np.int64)),
        }

    def _joined(self, name: str) -> NDArray[Any]:
        if not self.groups:
            if name not in _EMPTY:
                raise KeyError(f"a shard without groups has no column {name!r}; it has {', '.join(self.names)}")
            return np.empty(0, _EMPTY[name])
        if name != DETAILS and (whole := self.file.whole(name)) is not None:
            return whole
        for group in self.groups:
            if name not in group:
                raise group.missing(name)
        if len(dtypes := {group.dtype(name) for group in self.groups}) > 1 and any(map(_is_bits, dtypes)):
            raise ValueError(f"{name}: {' and '.join(sorted(dtypes))} cannot be joined")
        arrays = [group.column(name) for group in self.groups]
        joined = np.concatenate(arrays)
        if joined.dtype.kind == "f" and any(map(_rounds, arrays)):
            mixed = " and ".join(sorted(dtypes))
            raise ValueError(f"{name}: {mixed} cannot be joined: integers beyond 2**53 would change")
        return joined


def _rounds(array: NDArray[Any]) -> bool:
    """Return whether f64 cannot be relied on to keep these values: integers beyond 2**53."""
    return array.dtype.kind in "iu" and array.size > 0 and not -_EXACT <= array.min() <= array.max() <= _EXACT


def _is_bits(dtype: str) -> bool:
    return dtype.startswith(("BF", "F8"))
