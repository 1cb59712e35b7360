"""Read and write safetensors without copies: the header by itself, tensors as views of the bytes.

A safetensors file is eight bytes of header length, little-endian; a JSON object with dtype, shape and offsets of each
tensor, and a map of strings called ``__metadata__``; the tensors. The safetensors library reads and writes the same
bytes, and tests compare both. This module exists for two reasons. The library's writer copies each tensor several times
(190 us instead of 20 for 200 kB). And it cannot read a header alone, which is all that a server needs.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json, to_json

MAX_HEADER_BYTES = 4 * 1024 * 1024
ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
"""Bytes of one value, by dtype. Files with other dtypes are refused."""

_KINDS = {"u": "U", "i": "I", "f": "F"}
_RAW = {"BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "BOOL": "?"}  # numpy has no such floats: their bits
LABELLED = {name: np.dtype([(name, _RAW[name])]) for name in ("BF16", "F8_E4M3", "F8_E5M2")}
"""Structured dtypes for arrays of the bits of floats that numpy does not have, by name of the float."""

DTYPES = {name: np.dtype(_RAW.get(name, f"<{name[0].lower()}{size}")) for name, size in ITEM_BYTES.items()}
"""The dtype in numpy of each dtype of `ITEM_BYTES`; for those of `LABELLED`, the dtype of their bits."""

_LABELS = {labelled: name for name, labelled in LABELLED.items()}
_place = itemgetter(1)  # TensorInfo sorts by its bytes
METADATA = "__metadata__"
_METADATA_FIRST = b'{"__metadata__":'
_MOST_KEPT_BYTES = 4096  # of the header without its metadata
_WHOLE = {int}
MAX_DIMENSIONS = 32
"""Most dimensions of a tensor: the limit of the oldest version of numpy."""

_MOST_BYTES = 2**63 - 1  # the limit of numpy; lengths next to a length of 0 count, too
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
LENGTH_BYTES = 8
_ALIGNMENT = 8

Buffer = bytes | bytearray | memoryview


class DamagedBlob(ValueError):
    """These bytes are not a safetensors file, or the file is not complete."""


class TensorInfo(NamedTuple):  # a dataclass would take twice as long to make, and a batch has a thousand
    """The place, dtype and shape of a tensor.

    Attributes:
        start: Its first byte, counted from the start of the file.
        end: The byte after its last byte.
        dtype: A key of `ITEM_BYTES`.
        shape: Its shape, each ``>= 0``.
    """

    start: int
    end: int
    dtype: str
    shape: tuple[int, ...]


class Header(NamedTuple):
    """The header of a file: its tensors by name, in the order of their bytes, and its metadata."""

    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str] = MappingProxyType({})


def read_header(blob: Buffer, most_bytes: int = MAX_HEADER_BYTES) -> Header:
    """Read and check the header of a safetensors file that may be invalid, without its tensors.

    Args:
        blob: The file.
        most_bytes: Maximum length of the header, bytes.

    Raises:
        DamagedBlob: The bytes are not exactly one safetensors file. The header is cut off, is not JSON or has wrong
            sizes. Or the tensors overlap, leave gaps or end before or after the end of the file. Or a dtype is not in
            `ITEM_BYTES`, or a shape is too large for numpy.
    """
    if (size := len(blob)) < LENGTH_BYTES:
        raise DamagedBlob(f"{size} bytes cannot be a safetensors file")
    length = int.from_bytes(blob[:LENGTH_BYTES], "little")
    if length > min(size - LENGTH_BYTES, most_bytes):
        raise DamagedBlob(f"a header of {length} bytes is announced, in a file of {size}")
    return parse_header(bytes(blob[LENGTH_BYTES : LENGTH_BYTES + length]), size)


def stored_header(blob: Buffer) -> Header:
    """Read the header of a complete, checked file, in half the time of `read_header`.

    The tensors are in the order of the header, which may differ from the order of their bytes.
    """
    start = LENGTH_BYTES + int.from_bytes(blob[:LENGTH_BYTES], "little")
    try:
        entries = from_json(bytes(blob[LENGTH_BYTES:start]), cache_strings="keys")
    except ValueError:  # something in it is nested too deeply for this parser
        return read_header(blob)
    metadata = entries.pop(METADATA, {})
    return Header({name: _placed(entry, start) for name, entry in entries.items()}, metadata)


def parse_header(text: bytes, size: int, *, quick: bool = True) -> Header:
    """Read and check a header by itself, without the rest of the file.

    Args:
        text: The JSON after the length.
        size: Bytes of the file.
        quick: Whether quick parsers, which accept duplicate keys, may read the header first. Tests turn them off.

    Raises:
        DamagedBlob: As for `read_header`.
    """
    start = LENGTH_BYTES + len(text)
    if not quick:
        return _header(_parse(text), start, size)
    try:
        return _read_by_shape(text, start, size)
    except ValueError:
        pass
    try:
        return _read_at_once(text, start, size)
    except ValueError:
        return _header(_parse(text), start, size)  # the slow parser says what is wrong


def tensor(blob: Buffer, info: TensorInfo) -> NDArray[Any]:
    """Return a tensor as a read-only view of ``blob``. bf16 and f8 come as their bits, because numpy lacks them."""
    array = view(blob, info)
    if not isinstance(blob, bytes):  # bytes are read-only
        array.setflags(write=False)
    return array


def view(blob: Buffer, info: TensorInfo) -> NDArray[Any]:
    """Return a tensor as a view of ``blob``, which is writable if ``blob`` is writable."""
    start, end, dtype, shape = info
    if start == end:
        return np.empty(shape, DTYPES[dtype])
    array: NDArray[Any] = np.ndarray(shape, DTYPES[dtype], blob, start)
    return array


def write(
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> bytes:
    """Write a safetensors file.

    Args:
        tensors: Arrays of bool, integers, floats or a dtype of `LABELLED` by name, in any memory layout.
        metadata: The metadata of the file, as strings.
        dtypes: By name: the dtype of arrays that hold the bits of another type, such as ``BF16``.

    Returns:
        The file. Equal tensors and metadata give equal bytes, in any order.
    """
    # Wide values first, as in the library: then all tensors are aligned.
    ordered = sorted(tensors.items(), key=lambda tensor: (-tensor[1].dtype.itemsize, tensor[0]))
    arrays = [(name, np.asarray(array, array.dtype.newbyteorder("<"), order="C")) for name, array in ordered]
    bits = dtypes or {}
    sizes = [(name, bits.get(name) or dtype_name(array.dtype), array.shape, array.nbytes) for name, array in arrays]
    # A bytes object for each array would be one more copy.
    return b"".join([header_of(sizes, metadata), *(array.data if array.size else b"" for _, array in arrays)])


def with_metadata(blob: Buffer, header: Header, metadata: Mapping[str, str]) -> bytes:
    """Return the file with other metadata and the same bytes of tensors."""
    tensors = [(name, info.dtype, info.shape, info.end - info.start) for name, info in header.tensors.items()]
    start = LENGTH_BYTES + int.from_bytes(blob[:LENGTH_BYTES], "little")
    return header_of(tensors, metadata) + memoryview(blob)[start:]


def is_shape(lengths: Sequence[int], item_bytes: int) -> bool:
    """Return whether an array can have this shape in every version of numpy. ``lengths`` are ``>= 0``."""
    if len(lengths) > MAX_DIMENSIONS or max(lengths, default=0) > _MOST_BYTES:
        return False
    return prod(filter(None, lengths)) * item_bytes <= _MOST_BYTES


def header_of(
    tensors: Iterable[tuple[str, str, tuple[int, ...], int]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """Write the header of a file whose tensors follow in the order given.

    Args:
        tensors: Name, dtype, shape and size in bytes of each.
        metadata: The metadata of the file, as strings.
    """
    entries: dict[str, Any] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name, dtype, shape, size in tensors:
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": (end, end + size)}
        end += size
    text = to_json(entries)
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype in safetensors.

    Raises:
        TypeError: safetensors has no such dtype.
    """
    if dtype in _LABELS:
        return _LABELS[dtype]
    name = "BOOL" if dtype.kind == "b" else f"{_KINDS.get(dtype.kind, '')}{8 * dtype.itemsize}"
    if name not in ITEM_BYTES:
        raise TypeError(f"safetensors has no dtype for {dtype}")
    return name


def _read_by_shape(text: bytes, start: int, size: int) -> Header:
    """Read a header that begins with its metadata. Its tensors are parsed once for all files of the same shape.

    The header is cut after its metadata. The rest, with a brace before it, is an object of its own.

    Raises:
        ValueError: Another parser must read it.
    """
    begin, end = len(_METADATA_FIRST), text.find(b'},"') + 1
    if not (text.startswith(_METADATA_FIRST) and end and len(text) - end <= _MOST_KEPT_BYTES):
        raise ValueError("the metadata does not come first, or the header is long")
    metadata = from_json(text[begin:end], allow_inf_nan=False)
    _check_metadata(metadata)
    tensors, tensors_end = _tensors_by_shape(b"{" + text[end + 1 :], start)
    if tensors_end != size or 2 * len(metadata) != _strings_in(text[begin:end]):
        raise ValueError("the tensors do not end with the file, or a key came twice")
    return Header(tensors, metadata)


@lru_cache(maxsize=256)
def _tensors_by_shape(text: bytes, start: int) -> tuple[Mapping[str, TensorInfo], int]:
    """Read a header without metadata. Return its tensors, and the end of the last one."""
    entries = from_json(text, allow_inf_nan=False, cache_strings="keys")
    if METADATA in entries:
        raise ValueError("the metadata came twice")
    tensors, end = _tensors(entries, start)
    if _strings_read(entries, Header(tensors)) != _strings_in(text):
        raise ValueError("a key came twice")
    return MappingProxyType(tensors), end


def _read_at_once(text: bytes, start: int, size: int) -> Header:
    """Read a header.

    Raises:
        ValueError: A slower parser must read it.
    """
    entries = from_json(text, allow_inf_nan=False, cache_strings="keys")
    header = _header(entries, start, size)
    if _strings_read(entries, header) != _strings_in(text):
        raise ValueError("a key came twice")
    return header


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, dict) or not {*map(type, metadata.values())} <= {str}:
        raise DamagedBlob(f"{METADATA} is not a map of strings")


def _header(entries: Any, start: int, size: int) -> Header:
    if not isinstance(entries, dict):
        raise DamagedBlob("the header is not a JSON object")
    metadata = entries.get(METADATA, {})
    _check_metadata(metadata)
    tensors, end = _tensors(entries, start)
    if end != size:
        raise DamagedBlob(f"the tensors end at byte {end} of {size}")
    return Header(tensors, metadata)


def _tensors(entries: Mapping[str, Any], start: int) -> tuple[dict[str, TensorInfo], int]:
    """Return the tensors in a header, in the order of their bytes, and the end of the last one."""
    infos = [(name, _info(name, entry, start)) for name, entry in entries.items() if name != METADATA]
    infos.sort(key=_place)
    end = start
    for name, info in infos:
        if info.start != end:
            raise DamagedBlob(f"tensor {name!r} starts at byte {info.start}; the previous tensor ends at {end}")
        end = info.end
    return dict(infos), end


def _strings_read(entries: dict[str, Any], header: Header) -> int:
    """Count the strings that a parser read from a header: keys, values of the metadata, dtypes.

    If the text has as many strings, no key came twice: the parser drops the value under the first of two equal keys.
    """
    return len(entries) + sum(map(len, entries.values())) + len(header.metadata) + len(header.tensors)


def _strings_in(text: bytes) -> int:
    """Count the strings in JSON: half the quotes, without those that are escaped."""
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    return text.count(b'"') // 2


def _parse(text: bytes) -> Any:
    try:
        entries = _DECODER.decode(text.decode())
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(entries, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DamagedBlob("the header holds half of a surrogate pair") from None
    except (ValueError, RecursionError) as error:
        raise DamagedBlob(f"the header is not JSON: {error}") from None
    return entries


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        names = sorted(name for name, _ in pairs)
        raise ValueError(f"{next(a for a, b in pairwise(names) if a == b)!r} is there twice")
    return entries


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number")


# json.loads would make a decoder for each call.
_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)


def _placed(entry: dict[str, Any], start: int) -> TensorInfo:
    first, last = entry["data_offsets"]
    return TensorInfo(start + first, start + last, entry["dtype"], tuple(entry["shape"]))


def _info(name: str, entry: Any, start: int) -> TensorInfo:
    try:
        dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
        item_bytes = ITEM_BYTES.get(dtype)
    except (TypeError, ValueError, LookupError):
        raise DamagedBlob(f"tensor {name!r} is not described by dtype, shape and data_offsets") from None
    if item_bytes is None:
        raise DamagedBlob(f"tensor {name!r} has a dtype unknown here: {str(dtype)[:20]!r}")
    if type(shape) is list and len(shape) == 1:  # most tensors: these checks take a third of those below
        (length,) = shape
        if type(length) is type(first) is type(last) is int and 0 <= first < last == first + length * item_bytes:
            return TensorInfo(start + first, start + last, dtype, (length,))
    if type(shape) is not list or {*map(type, numbers := (*shape, first, last))} != _WHOLE or min(numbers) < 0:
        raise DamagedBlob(f"the shape or place of tensor {name!r} is not one of whole numbers")
    size = last - first
    # A tensor that is not empty and has the right number of bytes has a valid shape. Only others need more checks.
    if len(shape) > MAX_DIMENSIONS or not 0 < size == prod(shape) * item_bytes <= _MOST_BYTES:
        if not is_shape(shape, item_bytes):
            raise DamagedBlob(f"tensor {name!r} has an invalid shape: no array can be that large")
        if size != prod(shape) * item_bytes:
            raise DamagedBlob(f"tensor {name!r} does not take the bytes it claims: {size}")
    return TensorInfo(start + first, start + last, dtype, tuple(shape))
