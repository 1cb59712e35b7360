"""Read groups in binary. They are checked by their headers and lengths, and kept as they are, except their keys.

The rules are those of `app.api.codec.scored_data` for JSON: the same columns, matching rows, finite numbers. No value
of a column becomes a Python object.
"""

import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.api.codec.group_details import NATIVE_DETAILS, check_details
from app.api.codec.group_fields import read_fields
from app.api.codec.group_keys import GroupKeys, parse_object, read_keys
from app.api.codec.group_layout import ColumnPlace, layout_of
from app.api.codec.json_reader import Path, check_known, members
from app.api.codec.scored_data import check_rows
from app.core.numeric.short_sums import mean, total
from app.core.ranks.costs import weigh
from app.core.replay.buffer import Versions, versions_of
from app.store.groups.encoded_group import EncodedGroup, Payload
from lachesis.wire.blob import (
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    Buffer,
    DamagedBlob,
    Header,
    TensorInfo,
    read_header,
    view,
    with_metadata,
)
from lachesis.wire.columns import DETAILS, Column, Ragged
from lachesis.wire.compact import TRAINED
from lachesis.wire.errors import InvalidField, MalformedBody
from lachesis.wire.frame import FORMAT, cut
from lachesis.wire.groups import MAX_GROUPS

_FRAMED = "groups"
_WHOLE = ("environment", "policy_version")  # "1.0" and " 1" are whole numbers to some readers
_KINDS = {"int": ("I32", "I64"), "float": ("F32", "F64")}
_NO_DETAILS = b"{}"
FORMAT_OF_OTHERS = "format"
"""A key of metadata that torch and others set to "pt". It is ignored."""


def decode_blobs(body: bytes) -> list[EncodedGroup]:
    """Read one group's blob, or a frame of them.

    Raises:
        MalformedBody: It is not safetensors.
        InvalidField: A tensor or a key is wrong. The groups of a frame are in ``groups``, as they are in JSON.
    """
    return [_group(blob, header, path) for blob, header, path in opened(body, _FRAMED, MAX_GROUPS)]


def opened(body: bytes, kind: str, most: int) -> Iterator[tuple[Payload, Header, Path]]:
    """Open a body that is one blob or a frame of blobs. Yield each blob with its header and its place.

    Args:
        body: The body.
        kind: The frame's kind, which is also the name of its blobs in places.
        most: How many blobs a frame may hold.

    Raises:
        MalformedBody: It is not safetensors.
        InvalidField: It is a batch or a frame of another kind, or one of its blobs is not safetensors.
    """
    try:
        header = read_header(body)
        if FORMAT not in header.metadata:
            yield body, header, ()
            return
        if header.metadata[FORMAT] != kind:
            raise InvalidField(f"a file of {reprlib.repr(header.metadata[FORMAT])}, not of {kind}")
        blobs = cut(body, header)
    except DamagedBlob as error:
        raise MalformedBody(f"not safetensors: {error}") from error
    if not 1 <= len(blobs) <= most:
        raise InvalidField(f"{len(blobs)} {kind}; send 1 to {most} in a request")
    for position, blob in enumerate(blobs):
        path = (kind, position)
        try:
            yield blob, read_header(blob), path
        except DamagedBlob as error:
            raise InvalidField(f"not safetensors: {error}", path) from error


def _group(blob: Payload, header: Header, path: Path) -> EncodedGroup:
    try:
        layout = layout_of(tuple(header.tensors))
    except InvalidField as error:
        raise InvalidField(error.message, (*path, *error.location)) from None
    rows = _Rows(blob, header, path)
    columns = {
        place.column.name: _column(blob, header.tensors[place.tensor], place, rows, (*path, place.tensor))
        for place in layout
    }
    check_rows(columns, path)
    if DETAILS in header.tensors:
        _check_details(blob, header.tensors[DETAILS], (*path, DETAILS))
    given = {name: text for name, text in header.metadata.items() if name != FORMAT_OF_OTHERS}
    keys = read_keys(given, columns.get("policy_versions"), path, in_rows=False)
    return keys_and_payload(keys, columns, _payload(blob, header, keys), path)


def keys_and_payload(keys: GroupKeys, columns: Mapping[str, Ragged], payload: Payload, path: Path) -> EncodedGroup:
    """Build what is stored of a group of the native API.

    Raises:
        InvalidField: Its keys are too large for a header.
    """
    check_header_size(payload, path)
    (lengths,) = columns["tokens"].lengths
    versions, rewards = columns.get("policy_versions"), columns["scores"].values
    return EncodedGroup(
        size=len(lengths),
        environment=keys.environment,
        payload=payload,
        given_id=keys.id,
        policy_version=keys.policy_version,
        weight=weigh(lengths, keys.cost),
        versions=None if versions is None else _versions(versions.values, lengths),
        path=path,
        item=keys.item,
        lengths=lengths,
        rewards=rewards,
        reward=mean(rewards),
    )


def _versions(sampled: NDArray[Any], lengths: NDArray[Any]) -> Versions:
    """Describe the versions of a column, which has one for each token, or for each sequence if it is compact."""
    return versions_of(sampled, lengths if len(sampled) == len(lengths) else None)


def _payload(blob: Payload, header: Header, keys: GroupKeys) -> Payload:
    """Return the bytes as they came if all readers understand them the same way; if not, rewrite the keys."""
    given = header.metadata
    if "id" in given and all(given[name] == str(getattr(keys, name)) for name in _WHOLE if name in given):
        return blob
    return with_metadata(blob, header, keys.as_strings())


def check_header_size(payload: Payload, path: Path) -> None:
    """Check that the header of a blob is not too large.

    Raises:
        InvalidField: The header is too large.
    """
    length = int.from_bytes(payload[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise InvalidField(f"needs a header of {length} bytes; the limit is {MAX_HEADER_BYTES}", path)


class _Rows:
    """The lengths of a group's rows. Each tensor of lengths is checked once: most columns share one."""

    def __init__(self, blob: Buffer, header: Header, path: Path) -> None:
        self._blob = blob
        self._tensors = header.tensors
        self._path = path
        self._seen: dict[str, tuple[NDArray[Any], int]] = {}

    def of(self, name: str) -> tuple[NDArray[Any], int]:
        """Return the lengths in a tensor, and their sum."""
        if name not in self._seen:
            self._seen[name] = self._read(name)
        return self._seen[name]

    def _read(self, name: str) -> tuple[NDArray[Any], int]:
        path = (*self._path, name)
        lengths = flat(self._blob, self._tensors[name], _KINDS["int"], path)
        if not lengths.size:
            return lengths, 0
        lowest, highest = lengths.argmin(), lengths.argmax()  # ten times as fast as min() for a few lengths
        if lengths[lowest] < 0:
            raise InvalidField("a length is negative", (*path, int(lowest)))
        if lengths[highest] > len(self._blob):  # so their sum cannot overflow
            raise InvalidField("a length is larger than the body", (*path, int(highest)))
        return lengths, total(lengths)


def _column(blob: Buffer, info: TensorInfo, place: ColumnPlace, rows: _Rows, path: Path) -> Ragged:
    if place.compact:
        return _compact_column(blob, info, place, rows, path)
    values = _values(blob, info, place.column, path)
    held = len(values)
    levels: tuple[NDArray[Any], ...] = ()
    for lengths, wanted in reversed([*map(rows.of, place.lengths)]):
        if wanted != held:
            raise InvalidField(f"has {held} values; its lengths add up to {wanted}", path)
        held, levels = len(lengths), (lengths, *levels)
    return Ragged(values, levels)


def _compact_column(blob: Buffer, info: TensorInfo, place: ColumnPlace, rows: _Rows, path: Path) -> Ragged:
    """Check a compact tensor. Return the rows of its column; of the values, one for each sequence, or none for bits."""
    lengths, tokens = rows.of(place.lengths[0])
    if place.tensor == TRAINED:
        held, wanted = flat(blob, info, ("U8",), path), (tokens + 7) // 8
        values = held[:0]
    else:
        held, wanted = _values(blob, info, place.column, path), len(lengths)
        values = held
    if len(held) != wanted:
        raise InvalidField(f"has {len(held)} values; {len(lengths)} sequences of {tokens} tokens need {wanted}", path)
    return Ragged(values, (lengths,))


def _values(blob: Buffer, info: TensorInfo, column: Column, path: Path) -> NDArray[Any]:
    """Return the values of a column after a check of their type."""
    values = flat(blob, info, _KINDS[column.kind], path)
    if column.kind == "float" and values.size:
        finite = np.isfinite(values)
        if not finite[first := finite.argmin()]:
            raise InvalidField("not a finite number", (*path, int(first)))
    return values


def flat(blob: Buffer, info: TensorInfo, dtypes: tuple[str, ...], path: Path) -> NDArray[Any]:
    """Return a tensor of one dimension.

    Raises:
        InvalidField: It has another dtype, or several dimensions.
    """
    if info.dtype not in dtypes:
        raise InvalidField(f"has dtype {info.dtype}, not {' or '.join(dtypes)}", path)
    if len(info.shape) != 1:
        raise InvalidField(f"has {len(info.shape)} dimensions, not 1: send the rows one after another", path)
    return view(blob, info)  # of bytes or a view of bytes, so it is read-only


def _check_details(blob: Buffer, info: TensorInfo, path: Path) -> None:
    text = flat(blob, info, ("U8",), path).tobytes()
    if text == _NO_DETAILS:
        return
    document = parse_object(text, path)
    names = [name for name, value in members(document, path) if (name, value) != ("env_id", None)]
    check_known(names, NATIVE_DETAILS, path)  # `env_id` is null in contents of groups that were sent in JSON
    check_details(read_fields(document, path))
