"""Groups in files: safetensors as the service has them, JSON lines, or Parquet. Each format gives back the same values.

safetensors   a frame of blobs (`lachesis.wire.frame`), ready for `POST …/groups`
jsonl         a line per group, with the fields of `lachesis.wire.groups.SubmittedGroup`
parquet       a row per group: columns as nested lists; what has no fixed form as JSON texts
"""

import base64
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from lachesis.groups.rows import ragged
from lachesis.wire import blob, columns, frame
from lachesis.wire.blob import Buffer, DamagedBlob, TensorInfo

_ANNOTATION = "annotations."
_NUMBERS = {"environment": int, "policy_version": int, "cost": float}
_MOST_HEADER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files.

    Attributes:
        suffix: The end of names of its files.
        encode: Turns the blobs of groups into a file.
        decode: Turns a file into the blobs of its groups.
        library: What it needs besides the SDK; None if it needs nothing.
    """

    suffix: str
    encode: Callable[[Sequence[Buffer]], bytes]
    decode: Callable[[bytes], Iterator[Buffer]]
    library: str | None = None

    @property
    def is_usable(self) -> bool:
        """Whether its library is there."""
        return self.library is None or find_spec(self.library) is not None


def may_be_annotated(content: Buffer) -> bool:
    """Return whether the blob of a group has tensors named like annotations. A sender may name its own so, too."""
    return any(name.startswith(_ANNOTATION) for name in blob.read_header(content).tensors)


def as_submitted(content: Buffer, group: str, environment: int | None, annotations: Sequence[str]) -> Buffer:
    """Return the blob of a group as a sender of the native API submits it.

    It has the id of the group and its environment, which groups of Atropos lack. It has no ``annotations``: a trainer
    added them later.
    """
    header = blob.read_header(content)
    placed = {} if environment is None else {"environment": str(environment)}
    facts = {"id": group, **placed, **header.metadata}
    added = {_ANNOTATION + name for name in annotations}
    kept = {name: info for name, info in header.tensors.items() if name not in added}
    arrays = {name: blob.tensor(content, info) for name, info in kept.items()}
    details = json.loads(arrays[columns.DETAILS].tobytes()) if columns.DETAILS in arrays else {}
    if details.pop("env_id", None) is not None:
        arrays[columns.DETAILS] = np.frombuffer(json.dumps(details).encode(), np.uint8)
    elif len(kept) == len(header.tensors) and len(facts) == len(header.metadata):
        return content
    return blob.write(arrays, facts, {name: info.dtype for name, info in kept.items()})


def facts_of(content: Buffer) -> dict[str, Any]:
    """Return a group as the fields of `lachesis.wire.groups.SubmittedGroup`."""
    group = columns.unpack(content)
    facts: dict[str, Any] = {name: _number(name, text) for name, text in group.metadata.items()}
    facts |= {name: _lists(columns.nested(column)) for name, column in group.columns.items()}
    facts |= {name: value for name, value in json.loads(group.details).items() if value is not None}
    if group.tensors:
        facts["tensors"] = {
            name: {"dtype": group.dtypes[name], "shape": list(array.shape), "data": _base64(array)}
            for name, array in group.tensors.items()
        }
    return facts


def blob_of(facts: dict[str, Any]) -> bytes:
    """Return the blob of a group with these fields.

    Raises:
        DamagedBlob: A field is missing or wrong.
    """
    try:
        left = dict(facts)
        found = {one.name: ragged(left.pop(one.name), one) for one in columns.NATIVE_COLUMNS if one.name in left}
        tensors = {name: _tensor(**given) for name, given in left.pop("tensors", {}).items()}
        details = {name: left.pop(name) for name in columns.DETAIL_FIELDS if name in left}
        keys = {name: _key(value) for name, value in left.items()}
        arrays = columns.lay_out(found) | {name: array for name, (array, _) in tensors.items()}
        arrays[columns.DETAILS] = np.frombuffer(_text(details).encode(), np.uint8)
        return blob.write(arrays, keys, {name: dtype for name, (_, dtype) in tensors.items()})
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DamagedBlob(f"this is not a group: {error}") from None


def _number(name: str, text: str) -> Any:
    return json.loads(text) if name == "metadata" else _NUMBERS.get(name, str)(text)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else repr(value) if isinstance(value, float) else _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _lists(rows: Any) -> Any:
    return rows.tolist() if isinstance(rows, np.ndarray) else [_lists(row) for row in rows]


def _base64(array: Any) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _tensor(dtype: str, shape: list[int], data: str) -> tuple[Any, str]:
    held = base64.b64decode(data, validate=True)
    if not blob.is_shape(shape, blob.ITEM_BYTES[dtype]):
        raise ValueError(f"{shape} is not a shape of an array")
    return blob.tensor(held, TensorInfo(0, len(held), dtype, tuple(shape))), dtype


def _encode_frame(blobs: Sequence[Buffer]) -> bytes:
    return frame.frame(blobs, "groups")


def _decode_frame(file: bytes) -> Iterator[Buffer]:
    yield from frame.split(file, _MOST_HEADER_BYTES)[1]


def _encode_lines(blobs: Sequence[Buffer]) -> bytes:
    return b"".join(_text(facts_of(one)).encode() + b"\n" for one in blobs)


def _decode_lines(file: bytes) -> Iterator[Buffer]:
    for number, line in enumerate(file.splitlines(), 1):
        yield _blob_in(line, number)


def _blob_in(line: bytes, number: int) -> bytes:
    try:
        return blob_of(json.loads(line))
    except (DamagedBlob, RecursionError, ValueError) as error:
        raise DamagedBlob(f"line {number}: {error}") from None


def _encode_parquet(blobs: Sequence[Buffer]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    fields = _parquet_fields(pa)
    rows = [_as_row(facts_of(one)) for one in blobs]
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(fields.items())))
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")
    return file.getvalue()


def _decode_parquet(file: bytes) -> Iterator[Buffer]:
    from pyarrow import parquet

    for row in parquet.read_table(io.BytesIO(file)).to_pylist():
        facts = {name: value for name, value in row.items() if value is not None}
        for name in _JSON_TEXTS & facts.keys():
            facts[name] = json.loads(facts[name])
        yield blob_of(facts)


_JSON_TEXTS = {"metadata", "tensors", *columns.DETAIL_FIELDS}


def _as_row(facts: dict[str, Any]) -> dict[str, Any]:
    return facts | {name: _text(facts[name]) for name in _JSON_TEXTS & facts.keys()}


def _parquet_fields(pa: Any) -> dict[str, Any]:
    fields = {"id": pa.string(), "environment": pa.int64(), "policy_version": pa.int64(), "item": pa.string()}
    fields["cost"] = pa.float64()
    for column in columns.NATIVE_COLUMNS:
        kind = pa.int64() if column.kind == "int" else pa.float64()
        for _ in range(column.depth):
            kind = pa.list_(kind)
        fields[column.name] = kind
    return fields | {name: pa.string() for name in sorted(_JSON_TEXTS)}


FORMATS = {
    "safetensors": Format(".safetensors", _encode_frame, _decode_frame),
    "jsonl": Format(".jsonl", _encode_lines, _decode_lines),
    "parquet": Format(".parquet", _encode_parquet, _decode_parquet, "pyarrow"),
}
