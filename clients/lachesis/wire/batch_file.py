"""A batch in binary: one safetensors file, in which each column of all its groups lies end to end.

    NAME            the tensors NAME of all groups, in training order, joined along the first axis
    GROUP/NAME      the tensor NAME of one group. GROUP counts from 0. The file has such tensors if the tensors NAME
                    cannot be joined: a group has no tensor NAME, or dtypes or inner shapes differ
    group_lengths   i32 [groups]: sequences of each group
    group_rows      i64 [names, groups]: the length of each NAME's first axis in each group; names sorted
    labels          bytes of a JSON list: the metadata of each group's blob; missing if no blob has metadata

Any safetensors reader reads a batch as a few arrays. Tensors of lengths cut the arrays into rows, as in a group
(`lachesis.wire.columns`). A reader that knows compact columns (`lachesis.wire.compact`) can ask for compact columns:
``Accept: …; columns=compact``. `BatchFile` reads the groups one by one, and expands compact columns. A sender may give
a tensor one of the names above. Such a tensor is stored under GROUP/NAME.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json, to_json

from lachesis.wire import blob
from lachesis.wire.blob import ITEM_BYTES, Buffer, DamagedBlob, Header, TensorInfo
from lachesis.wire.columns import COMPACT, form_of
from lachesis.wire.compact import TRAINED, expanded
from lachesis.wire.frame import FORMAT

KIND = "batch"
"""Value of `lachesis.wire.frame.FORMAT` in the metadata of such a file."""

GROUP_LENGTHS, GROUP_ROWS, LABELS = "group_lengths", "group_rows", "labels"

_OURS = frozenset((GROUP_LENGTHS, GROUP_ROWS, LABELS))
_TOKENS_LENGTHS = "tokens.lengths"
_APART = re.compile(r"([0-9]+)/(.*)", re.DOTALL)


class _Tensor(NamedTuple):
    """A tensor of the file, and the pieces that it consists of."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Sequence[memoryview]


def parts_of(
    payloads: Sequence[Buffer], sizes: Sequence[int], metadata: Mapping[str, str], *, compact: bool = True
) -> list[Buffer]:
    """Return the parts of the file of a batch, in order. Parts of columns are views of ``payloads``.

    Args:
        payloads: The blob of each group, which was checked on arrival.
        sizes: Sequences of each group.
        metadata: Further metadata of the file.
        compact: Whether compact columns stay compact. If not, they are expanded.
    """
    headers = [blob.stored_header(payload) for payload in payloads]
    if not compact:
        in_full = [_in_full(payload, header) for payload, header in zip(payloads, headers, strict=True)]
        payloads, headers = [payload for payload, _ in in_full], [header for _, header in in_full]
    views = [memoryview(payload) for payload in payloads]
    joined, apart = _sorted_out(headers)
    tensors = [_joined(name, infos, views) for name, infos in joined.items()]
    tensors += [
        _Tensor(f"{position}/{name}", info.dtype, info.shape, [views[position][info.start : info.end]])
        for position, name, info in apart
    ]
    rows = np.array([[info.shape[0] for info in infos] for infos in joined.values()], np.int64)
    tensors += [
        _own(GROUP_ROWS, "I64", rows.reshape(len(joined), len(payloads))),
        _own(GROUP_LENGTHS, "I32", np.array(sizes, np.int32)),
    ]
    if any(header.metadata for header in headers):
        labels = to_json([header.metadata for header in headers])
        tensors.append(_own(LABELS, "U8", np.frombuffer(labels, np.uint8)))
    tensors.sort(key=lambda tensor: -ITEM_BYTES[tensor.dtype])  # so that all are aligned
    head = blob.header_of(
        ((tensor.name, tensor.dtype, tensor.shape, sum(map(len, tensor.pieces))) for tensor in tensors),
        {FORMAT: KIND, **metadata},
    )
    return [head, *chain.from_iterable(tensor.pieces for tensor in tensors)]


class BatchFile:
    """A batch in binary. Columns of the batch or of a group are views of the bytes. Compact columns are new arrays.

    Attributes:
        metadata: The metadata of the file.
        group_count: Number of groups.
    """

    def __init__(self, body: Buffer) -> None:
        """Read the header and the lengths, without the columns.

        Raises:
            DamagedBlob: ``body`` is not a batch file, or is not complete.
        """
        header = blob.read_header(body, len(body))
        if header.metadata.get(FORMAT) != KIND or GROUP_ROWS not in header.tensors:
            raise DamagedBlob(f"this is not a batch: it needs a tensor {GROUP_ROWS}, and metadata {FORMAT!r}: {KIND!r}")
        self.metadata = header.metadata
        self._body = body
        self._tensors = header.tensors
        rows = blob.tensor(body, header.tensors[GROUP_ROWS])
        if rows.dtype != np.int64 or rows.ndim != 2 or (rows < 0).any():
            raise DamagedBlob(f"{GROUP_ROWS} is not a table of lengths: it should be i64 [names, groups], each >= 0")
        self.group_count = rows.shape[1]
        self._apart: list[dict[str, TensorInfo]] = [{} for _ in range(self.group_count)]
        joined = {}
        for name, info in header.tensors.items():
            if (match := _APART.fullmatch(name)) is None:
                joined[name] = info
            elif int(match[1]) < self.group_count:
                self._apart[int(match[1])][match[2]] = info
            else:
                raise DamagedBlob(
                    f"tensor {name!r} names a group that does not exist: the batch has {self.group_count}"
                )
        names = sorted(joined.keys() - _OURS)
        if [joined[name].shape[:1] for name in names] != [(length,) for length in rows.sum(axis=1).tolist()]:
            raise DamagedBlob(f"{GROUP_ROWS} does not match the lengths of the joined tensors")
        ends = np.cumsum(rows, axis=1).tolist()
        self._bounds = {name: [0, *ends_of_it] for name, ends_of_it in zip(names, ends, strict=True)}
        self._whole: dict[str, NDArray[Any]] = {}  # compact columns of all groups, expanded
        self._of_group: dict[tuple[int, str], NDArray[Any]] = {}  # compact columns of single groups, expanded

    def names_of(self, group: int) -> list[str]:
        """Return the names of the tensors of a group. A compact tensor has the name of its column."""
        return [COMPACT.get(name, name) for name in (*self._bounds, *self._apart[group])]

    def holds(self, group: int, name: str) -> bool:
        """Return whether a group has a tensor or compact column of this name."""
        return self._stored(group, name) is not None

    def dtype(self, group: int, name: str) -> str:
        """Return the dtype of a tensor of a group, as safetensors names it."""
        stored = self._stored(group, name)
        if stored is None:
            raise KeyError(name)
        if stored == TRAINED:
            return self.dtype(group, "tokens")
        return (self._tensors if stored in self._bounds else self._apart[group])[stored].dtype

    def of_group(self, group: int, name: str) -> NDArray[Any]:
        """Return a tensor of a group, read-only: a view, or a new array if compact. bf16 and f8 come as their bits."""
        stored = self._stored(group, name)
        if stored is None:
            raise KeyError(name)
        if stored == name:
            return self._read(group, name)
        whole = self.whole(name)
        if whole is not None:
            bounds = self._bounds["tokens"]
            array = whole[bounds[group] : bounds[group + 1]]
            array.setflags(write=False)
            return array
        if (group, name) not in self._of_group:
            tokens, lengths = self._read(group, "tokens"), self._read(group, _TOKENS_LENGTHS)
            array = expanded(stored, self._read(group, stored), tokens, lengths)
            array.setflags(write=False)
            self._of_group[group, name] = array
        return self._of_group[group, name]

    def whole(self, name: str) -> NDArray[Any] | None:
        """Return the joined tensor of all groups: a view, or a new array if compact. None if it is not joined."""
        if name in self._bounds:
            return blob.view(self._body, self._tensors[name])
        form = form_of(name, self._bounds)
        if form is None or not {"tokens", _TOKENS_LENGTHS} <= self._bounds.keys():
            return None
        if name not in self._whole:
            compact, tokens, lengths = (
                blob.tensor(self._body, self._tensors[tensor]) for tensor in (form, "tokens", _TOKENS_LENGTHS)
            )
            of_groups = np.diff(self._bounds["tokens"]).tolist()
            self._whole[name] = expanded(form, compact, tokens, lengths, of_groups)
        return self._whole[name]

    def _stored(self, group: int, name: str) -> str | None:
        """Return the name of the tensor, plain or compact, that holds a column of a group."""
        for tensors in (self._bounds, self._apart[group]):
            found = name if name in tensors else form_of(name, tensors)
            if found is not None:
                return found
        return None

    def _read(self, group: int, name: str) -> NDArray[Any]:
        if name not in self._bounds:
            return blob.tensor(self._body, self._apart[group][name])
        bounds = self._bounds[name]
        return blob.tensor(self._body, self._tensors[name])[bounds[group] : bounds[group + 1]]

    @cached_property
    def labels(self) -> Sequence[Mapping[str, str]]:
        """The metadata of each group's blob."""
        if LABELS not in self._tensors:
            return [{}] * self.group_count
        labels: list[dict[str, str]] = from_json(blob.tensor(self._body, self._tensors[LABELS]).tobytes())
        return labels


def _in_full(payload: Buffer, header: Header) -> tuple[Buffer, Header]:
    """Return a group with its compact columns expanded: they lie behind its other bytes."""
    names = COMPACT.keys() & header.tensors.keys()
    if not names:
        return payload, header
    tensors, parts, start = dict(header.tensors), [payload], len(payload)
    tokens, lengths = (blob.tensor(payload, tensors[name]) for name in ("tokens", _TOKENS_LENGTHS))
    for name in names:
        info = tensors.pop(name)
        column = expanded(name, blob.tensor(payload, info), tokens, lengths)
        dtype = tensors["tokens"].dtype if name == TRAINED else info.dtype
        tensors[COMPACT[name]] = TensorInfo(start, start + column.nbytes, dtype, column.shape)
        parts.append(column.data)
        start += column.nbytes
    return b"".join(parts), Header(tensors, header.metadata)


def _sorted_out(headers: Sequence[Header]) -> tuple[dict[str, list[TensorInfo]], list[tuple[int, str, TensorInfo]]]:
    """Return the tensors that can be joined, sorted by name, and the other tensors with the position of their group."""
    found: dict[str, list[TensorInfo]] = {}
    for header in headers:
        for name, info in header.tensors.items():
            found.setdefault(name, []).append(info)
    joined = {name: infos for name, infos in sorted(found.items()) if len(infos) == len(headers) and _fits(name, infos)}
    apart = [
        (position, name, info)
        for position, header in enumerate(headers)
        for name, info in header.tensors.items()
        if name not in joined
    ]
    return joined, apart


def _fits(name: str, infos: Sequence[TensorInfo]) -> bool:
    """Return whether the tensors of all groups can be joined under their own name."""
    first = infos[0]
    return (
        all(info.shape and info.dtype == first.dtype and info.shape[1:] == first.shape[1:] for info in infos)
        and blob.is_shape(_end_to_end(infos), ITEM_BYTES[first.dtype])
        and name not in _OURS
        and not _APART.fullmatch(name)
    )


def _end_to_end(infos: Sequence[TensorInfo]) -> tuple[int, ...]:
    return (sum(info.shape[0] for info in infos), *infos[0].shape[1:])


def _joined(name: str, infos: Sequence[TensorInfo], views: Sequence[memoryview]) -> _Tensor:
    pieces = [view[info.start : info.end] for view, info in zip(views, infos, strict=True)]
    return _Tensor(name, infos[0].dtype, _end_to_end(infos), pieces)


def _own(name: str, dtype: str, array: NDArray[Any]) -> _Tensor:
    return _Tensor(name, dtype, array.shape, [memoryview(array.tobytes())])
