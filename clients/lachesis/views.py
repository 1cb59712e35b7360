"""The columns of a batch as numpy arrays, of all its sequences or of a group: views of the bytes they came in."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis._torch import shared
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.batches import BatchGroup, BatchInfo, ReplayedGroup
from lachesis.wire.columns import DETAILS, LENGTHS, MEASURES, NATIVE_COLUMNS

_INT32_MOST = 2**31 - 1
_SUFFIX = f".{LENGTHS[0]}"
_DEPTHS = {column.name: column.depth for column in NATIVE_COLUMNS}


class GroupView:
    """A group of a batch. Its columns are read-only views; nothing is copied.

    Attributes:
        info: What the service says of it: id, environment, size, policy version, staleness, age.
    """

    def __init__(self, info: BatchGroup, file: BatchFile, position: int) -> None:
        self.info = info
        self._file = file
        self._position = position

    @property
    def labels(self) -> Mapping[str, str]:
        """The strings in its blob's metadata, as they came."""
        return self._file.labels[self._position]

    @property
    def id(self) -> str:
        """Its id."""
        return self.info.id

    @property
    def environment(self) -> int | None:
        """The environment it counts for, or None."""
        return self.info.environment

    @property
    def staleness(self) -> int | None:
        """Policy versions since it was sampled, when it was handed out; None if it did not say."""
        return self.info.staleness

    @property
    def loss_weight(self) -> float:
        """What its loss is to be multiplied by: 1, unless a filter of the run found it that keeps such groups."""
        return self.info.loss_weight

    @property
    def replayed(self) -> ReplayedGroup | None:
        """How it came into the batch from the replay buffer; None if it is from the queue."""
        return self.info.replayed

    @property
    def item(self) -> str | None:
        """The dataset entry it comes from, if it said so."""
        return self.labels.get("item")

    @property
    def cost(self) -> float | None:
        """What it costs to train on, in its producer's units, if it said so."""
        return float(self.labels["cost"]) if "cost" in self.labels else None

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The object its producer attached, or an empty one."""
        attached: dict[str, Any] = json.loads(self.labels.get("metadata", "{}"))
        return attached

    @cached_property
    def details(self) -> dict[str, Any]:
        """What is not numbers: messages, generation_params, overrides, group_overrides, images; where it has them."""
        if self._dtype(DETAILS) is None:
            return {}
        given = json.loads(self.column(DETAILS).tobytes())
        return {name: value for name, value in given.items() if value is not None}

    @property
    def names(self) -> list[str]:
        """The columns it has, without those that are lengths; see `lengths`."""
        held = self._file.names_of(self._position)
        return [name for name in held if name != DETAILS and not name.endswith(_SUFFIX)]

    def dtype(self, name: str) -> str:
        """Return a column's dtype as safetensors names it: ``BF16`` where numpy can only show its bits."""
        return self._known(name)[1]

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as a read-only view; bf16 and f8 as their bits.

        The ``.lengths`` and ``.inner_lengths`` of a column that has none of its own are those that hold for it.

        Raises:
            KeyError: It has no such column; the message lists those it has.
        """
        return self._file.of_group(self._position, self._known(name)[0])

    def lengths(self, name: str = "tokens") -> NDArray[Any]:
        """Return how many values of a column each sequence has. A column without lengths of its own has tokens'."""
        return self.column((name if self.has_lengths(name) else "tokens") + _SUFFIX)

    def has_lengths(self, name: str) -> bool:
        """Whether a column has lengths of its own."""
        return self._dtype(name + _SUFFIX) is not None

    def __contains__(self, name: str) -> bool:
        return name != DETAILS and self._found(name) is not None

    def missing(self, name: str) -> KeyError:
        """Build the error that says that it has no such column, and which it has."""
        return KeyError(f"group {self.id} has no column {name!r}; it has {', '.join(sorted(self.names))}")

    def _dtype(self, name: str) -> str | None:
        return self._file.dtype(self._position, name)

    def _known(self, name: str) -> tuple[str, str]:
        found = self._found(name)
        if found is None:
            raise self.missing(name)
        return found

    def _found(self, name: str) -> tuple[str, str] | None:
        """Find under which name a column is held, and its dtype.

        Lengths that are its measure's are held once, under the measure's name.
        """
        if (dtype := self._dtype(name)) is not None:
            return name, dtype
        column, _, suffix = name.rpartition(".")
        if suffix not in LENGTHS or _DEPTHS.get(column, 0) <= LENGTHS.index(suffix) + 1 or self._dtype(column) is None:
            return None
        measured = f"{MEASURES[LENGTHS.index(suffix)]}.{suffix}"
        dtype = self._dtype(measured)
        return None if dtype is None else (measured, dtype)


class Columns:
    """All sequences of a batch, in training order.

    ``column`` lays the values of all groups end to end (packed), ``padded`` gives each sequence a row. What is
    per token is cut by `lengths` or `cu_seqlens`, unless it has lengths of its own.

    Attributes:
        info: What the service says of the batch: id, step, lease, groups.
        groups: Its groups.
        file: The reply it came in.
    """

    def __init__(self, info: BatchInfo, file: BatchFile) -> None:
        self.info = info
        self.groups = [GroupView(group, file, position) for position, group in enumerate(info.groups)]
        self.file = file
        self._flat: dict[str, NDArray[Any]] = {}

    @property
    def step(self) -> int:
        """The run's step that this batch is."""
        return self.info.step

    @cached_property
    def names(self) -> list[str]:
        """The columns that all its groups have, without those that are lengths; of a shard without groups, none."""
        if not self.groups:
            return []
        return [
            name
            for name in self.groups[0].names
            if self.file.whole(name) is not None or all(name in group for group in self.groups)
        ]

    @property
    def tokens(self) -> NDArray[Any]:
        """Token ids of all sequences, end to end: [tokens]."""
        return self.column("tokens")

    @property
    def masks(self) -> NDArray[Any]:
        """Labels, -100 where the loss is masked: [tokens]."""
        return self.column("masks")

    @property
    def scores(self) -> NDArray[Any]:
        """One score per sequence: [sequences]."""
        return self.column("scores")

    @cached_property
    def lengths(self) -> NDArray[Any]:
        """Tokens in each sequence: [sequences]."""
        return self.lengths_of("tokens")

    @cached_property
    def group_lengths(self) -> NDArray[np.int32]:
        """Sequences in each group: [groups]."""
        return np.array([group.info.size for group in self.groups], np.int32)

    @property
    def loss_weights(self) -> NDArray[np.float64]:
        """What each sequence's loss is to be multiplied by, as filters of the run say: [sequences]."""
        return np.repeat([group.loss_weight for group in self.groups], self.group_lengths).astype(np.float64)

    @cached_property
    def cu_seqlens(self) -> NDArray[np.int32]:
        """Where each sequence begins in `tokens`, and where the last ends: [sequences + 1]."""
        return cumulated(self.lengths)

    @property
    def micro_batches(self) -> list[NDArray[np.int64]]:
        """The sequences of each micro-batch, as rows of `padded`; one of all where none were asked for."""
        packing = None if self.info.shard is None else self.info.shard.packing
        if packing is None:
            return [np.arange(len(self.lengths))]
        return [np.array(rows, np.int64) for rows in packing.micro_batches]

    def column(self, name: str) -> NDArray[Any]:
        """Return a column of all sequences, end to end, as one array.

        It is the memory that the batch came in, unless groups hold the column in different widths: then it has the
        widest, and is made at the first call. bf16 and f8 come as their bits.

        Raises:
            KeyError: Some group has no such column; the message names the first.
            ValueError: The groups' columns do not fit together: bits of different dtypes, or other shapes.
        """
        if name not in self._flat:
            self._flat[name] = self._joined(name)
        return self._flat[name]

    def lengths_of(self, name: str) -> NDArray[Any]:
        """Return how many values of a column each sequence has: [sequences]."""
        own = any(group.has_lengths(name) for group in self.groups)
        whole = self.file.whole((name if own else "tokens") + _SUFFIX)
        if whole is not None:
            return whole
        return np.concatenate([group.lengths(name) for group in self.groups] or [np.empty(0, np.int32)])

    def padded(self, name: str, fill: float) -> NDArray[Any]:
        """Return a row of a column for each sequence, filled up at its end: [sequences, longest].

        Raises:
            KeyError: Some group has no such column.
            ValueError: It does not hold a value per token, nor lengths of its own.
        """
        flat, lengths = self.column(name), self.lengths_of(name)
        if flat.ndim != 1 or len(flat) != lengths.sum(dtype=np.int64):
            raise ValueError(f"{name}: its values, of shape {flat.shape}, are not rows of the lengths of the sequences")
        rows = np.full((len(lengths), int(lengths.max(initial=0))), fill, flat.dtype)
        end = 0
        for row, length in zip(rows, lengths.tolist(), strict=True):
            row[:length] = flat[end : end + length]
            end += length
        return rows

    def tokens_padded(self, pad_id: int) -> NDArray[Any]:
        """Return the token ids of each sequence, filled up with ``pad_id``: [sequences, longest]."""
        return self.padded("tokens", pad_id)

    def to_torch(self) -> dict[str, Any]:
        """Return the columns that all groups have, packed, as tensors that share memory with `column`.

        ``lengths``, ``group_lengths`` and ``cu_seqlens`` are there, too, and ``NAME.lengths`` of columns that have
        their own; bf16 and f8 have their own dtype again.

        Raises:
            ModuleNotFoundError: PyTorch is not installed.
        """
        tensors = {name: shared(self.column(name), self.groups[0].dtype(name)) for name in self.names}
        for name in self.names:
            if name != "tokens" and any(group.has_lengths(name) for group in self.groups):
                tensors[name + _SUFFIX] = shared(self.lengths_of(name))
        for name in ("lengths", "group_lengths", "cu_seqlens"):
            tensors[name] = shared(getattr(self, name))
        return tensors

    def _joined(self, name: str) -> NDArray[Any]:
        if not self.groups:
            raise KeyError(f"a shard without groups has no column {name!r}")
        if name != DETAILS and (whole := self.file.whole(name)) is not None:
            return whole
        for group in self.groups:
            if name not in group:
                raise group.missing(name)
        if len(dtypes := {group.dtype(name) for group in self.groups}) > 1 and any(map(_is_bits, dtypes)):
            raise ValueError(f"{name}: {' and '.join(sorted(dtypes))} cannot be joined")
        return np.concatenate([group.column(name) for group in self.groups])


def cumulated(lengths: NDArray[Any]) -> NDArray[np.int32]:
    """Turn lengths into boundaries, from 0 on: one more than there are lengths.

    Raises:
        OverflowError: They sum to more than an int32 holds, which kernels expect.
    """
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    if bounds[-1] > _INT32_MOST:
        raise OverflowError(f"{bounds[-1]} tokens are more than cu_seqlens can count")
    return bounds.astype(np.int32)


def _is_bits(dtype: str) -> bool:
    return dtype.startswith(("BF", "F8"))
