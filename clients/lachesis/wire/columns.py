"""The binary format of a group: flat columns in one safetensors blob.

A per-token field has one flat tensor of values and one tensor of the lengths of its rows. So a group takes four bytes
per token and column, and readers handle whole arrays:

    <name>                 i32 if every value fits, else i64; f32 if every value stays the same bit for bit, else f64
    <name>.lengths         values per sequence (or positions, if a position holds several values)
    <name>.inner_lengths   values per position, over all sequences in order
    details                bytes of a JSON object with some of `DETAIL_FIELDS`. An absent or null key means no value

A missing tensor of lengths is equal to the lengths of a reference column (`MEASURES`): `tokens` for lengths,
`distill_token_ids` for inner lengths. So the row lengths of a usual group are stored once. Labels, and columns with one
value per sequence, are stored in fewer bytes (`lachesis.wire.compact`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lachesis.wire import blob
from lachesis.wire.compact import TRAINED, compacted, expanded, per_sequence
from lachesis.wire.errors import InvalidField

DETAILS = "details"
"""Name of the tensor with the fields that are not columns, as the bytes of one JSON object."""

DETAIL_FIELDS = ("messages", "generation_params", "overrides", "group_overrides", "images", "env_id")
"""The keys of the object `details`."""


@dataclass(frozen=True, slots=True)
class Column:
    """A field that is stored as numbers.

    Attributes:
        name: The name of the field in JSON and of its tensor.
        kind: Whether its values are integers or floats.
        depth: Levels of nesting in JSON: 1 for a value per sequence, 2 for a value per token, 3 for several per token.
        required: Whether a group must have it.
    """

    name: str
    kind: Literal["int", "float"]
    depth: Literal[1, 2, 3]
    required: bool = False


COLUMNS = (
    Column("tokens", "int", 2, required=True),
    Column("masks", "int", 2, required=True),
    Column("scores", "float", 1, required=True),
    Column("advantages", "float", 2),
    Column("ref_logprobs", "float", 2),
    Column("inference_logprobs", "float", 2),
    Column("distill_token_ids", "int", 3),
    Column("distill_logprobs", "float", 3),
)

NATIVE_COLUMNS = (*COLUMNS, Column("policy_versions", "int", 2))
"""Columns of the native API. The Atropos contract has no `policy_versions`."""

_NAMES = frozenset(column.name for column in NATIVE_COLUMNS)

PER_TOKEN = tuple(column.name for column in NATIVE_COLUMNS if column.depth == 2 and column.name != "tokens")
"""Columns that may be compact (`lachesis.wire.compact`)."""

COMPACT = {TRAINED: "masks", **{per_sequence(name): name for name in PER_TOKEN}}
"""The column that each compact tensor replaces, by the name of the tensor."""

FORMS = {column: tuple(name for name, of in COMPACT.items() if of == column) for column in PER_TOKEN}
"""The names of the compact tensors that may replace each column."""

LENGTHS = ("lengths", "inner_lengths")
"""Suffixes of the tensors that hold lengths, by level of nesting."""

MEASURES = ("tokens", "distill_token_ids")
"""The column whose lengths hold for columns without lengths of their own, by level of nesting."""


def lengths_name(column: str, level: int = 0) -> str:
    """Name the tensor that holds the lengths of a column on a level of nesting."""
    return f"{column}.{LENGTHS[level]}"


class Ragged(NamedTuple):
    """Rows of unequal length, as one flat array and the lengths of its rows.

    Attributes:
        values: All values in reading order, 1-d.
        lengths: One array per level of nesting below the first, outermost first. For depth 1 it is ``()``, for depth 2
            values per sequence, for depth 3 positions per sequence and values per position.
    """

    values: NDArray[Any]
    lengths: tuple[NDArray[Any], ...] = ()


def place_of(flat: Ragged, position: int) -> tuple[int, ...]:
    """Return where a value lies in the nested rows: a position on each level, outermost first.

    Args:
        flat: The flattened rows.
        position: Position of the value in ``flat.values``.
    """
    place = []
    for lengths in reversed(flat.lengths):
        ends = np.cumsum(lengths)
        row = int(np.searchsorted(ends, position, "right"))
        place.append(position - int(ends[row] - lengths[row]))
        position = row
    return (position, *reversed(place))


def check_same_rows(columns: Mapping[str, Ragged], path: tuple[str | int, ...] = ()) -> None:
    """Check that tokens, masks, scores (and policy versions) have the same rows. Other columns may have other rows.

    Args:
        columns: The columns of a group, by name.
        path: Where the group is in its body.

    Raises:
        InvalidField: The group has no sequence, a sequence has no token, or the rows of two columns differ.
    """
    (tokens,), scores = columns["tokens"].lengths, columns["scores"].values
    if not len(tokens):
        raise InvalidField("has no sequence", (*path, "tokens"))
    if not tokens[shortest := tokens.argmin()]:  # none is below 0
        raise InvalidField("has no token", (*path, "tokens", int(shortest)))
    for name in ("masks", "policy_versions"):
        if name in columns:
            _check_same_lengths(columns[name].lengths[0], tokens, (*path, name))
    if len(scores) != len(tokens):
        raise InvalidField(f"has {len(scores)} values for {len(tokens)} sequences", (*path, "scores"))


def _check_same_lengths(rows: NDArray[Any], tokens: NDArray[Any], path: tuple[str | int, ...]) -> None:
    if rows is tokens:
        return
    if len(rows) != len(tokens):
        raise InvalidField(f"has {len(rows)} rows where tokens has {len(tokens)}", path)
    differ = rows != tokens
    if differ[row := int(differ.argmax())]:
        raise InvalidField(f"has {rows[row]} values where tokens has {tokens[row]}", (*path, row))


def pack(
    columns: Mapping[str, Ragged],
    details: bytes,
    metadata: Mapping[str, str] | None = None,
    tensors: Mapping[str, NDArray[Any]] | None = None,
) -> bytes:
    """Write a group as one safetensors blob.

    Args:
        columns: The columns of the group, by name; `tokens` is one of them. Values have any integer or float type.
            Columns that fit are stored in fewer bytes.
        details: A JSON object with some of `DETAIL_FIELDS`. An absent or null key means no value.
        metadata: The facts of the group (`lachesis.wire.groups.GROUP_KEYS`).
        tensors: The sender's own arrays, by name.

    Returns:
        The blob. Equal arguments give equal bytes.
    """
    laid_out = {**(tensors or {}), **lay_out(columns), DETAILS: np.frombuffer(details, np.uint8)}
    return blob.write(laid_out, metadata)


def lay_out(columns: Mapping[str, Ragged], *, compact: bool = True) -> dict[str, NDArray[Any]]:
    """Return the tensors that hold columns: values and lengths, narrowed. Leave out lengths of the reference.

    Args:
        columns: The columns by name.
        compact: Whether columns that fit are stored in fewer bytes.
    """
    laid_out: dict[str, NDArray[Any]] = {}
    for column in NATIVE_COLUMNS:
        ragged = columns.get(column.name)
        if ragged is None:
            continue
        values = narrowed(ragged.values)
        if compact and column.name in PER_TOKEN and _implied(columns, column.name, 0):
            small = compacted(column.name, values, laid_out["tokens"], ragged.lengths[0])
            if small is not None:
                laid_out[small[0]] = small[1]
                continue
        laid_out[column.name] = values
        for level, lengths in enumerate(ragged.lengths):
            if not _implied(columns, column.name, level):
                laid_out[lengths_name(column.name, level)] = narrowed(lengths)
    return laid_out


def form_of(column: str, tensors: Mapping[str, Any]) -> str | None:
    """Return the name of the compact tensor that replaces a column. None means that no tensor does."""
    return next((name for name in FORMS.get(column, ()) if name in tensors), None)


def is_column(name: str) -> bool:
    """Return whether a tensor of this name is a column, or holds the lengths of a column."""
    column, _, suffix = name.rpartition(".")
    return name in _NAMES or name in COMPACT or (column in _NAMES and suffix in LENGTHS)


class Unpacked(NamedTuple):
    """A group that was read from its blob. Arrays are views of the blob.

    Attributes:
        columns: The columns of the group, by name.
        details: The bytes of a JSON object.
        metadata: The facts of the group.
        tensors: The sender's own tensors, by name.
        dtypes: The dtype of each of these, as safetensors names it, for instance ``BF16`` if the array holds its bits.
    """

    columns: dict[str, Ragged]
    details: bytes
    metadata: Mapping[str, str]
    tensors: dict[str, NDArray[Any]]
    dtypes: dict[str, str]


def unpack(payload: blob.Buffer) -> Unpacked:
    """Read a blob that `pack` wrote, or a blob that was checked on arrival.

    Raises:
        DamagedBlob: ``payload`` is not a safetensors blob, or is damaged.
        KeyError: A tensor that every group has is missing.
    """
    header = blob.read_header(payload)
    tensors = {name: blob.tensor(payload, info) for name, info in header.tensors.items()}
    columns: dict[str, Ragged] = {}
    for column in NATIVE_COLUMNS:
        if column.name in tensors:
            lengths = tuple(_lengths(tensors, column.name, level) for level in range(column.depth - 1))
            columns[column.name] = Ragged(tensors[column.name], lengths)
        elif (form := form_of(column.name, tensors)) is not None:
            tokens, lengths = columns["tokens"].values, columns["tokens"].lengths
            columns[column.name] = Ragged(expanded(form, tensors[form], tokens, lengths[0]), lengths)
    details = tensors[DETAILS].tobytes() if DETAILS in tensors else b"{}"
    others = {name: array for name, array in tensors.items() if name != DETAILS and not is_column(name)}
    return Unpacked(columns, details, header.metadata, others, {name: header.tensors[name].dtype for name in others})


def in_full(payload: blob.Buffer) -> blob.Buffer:
    """Return the blob of a group without compact columns, for readers that do not know them."""
    header = blob.stored_header(payload)
    if not COMPACT.keys() & header.tensors.keys():
        return payload
    group = unpack(payload)
    tensors = {**group.tensors, **lay_out(group.columns, compact=False)}
    if DETAILS in header.tensors:
        tensors[DETAILS] = np.frombuffer(group.details, np.uint8)
    return blob.write(tensors, group.metadata, group.dtypes)


def narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Halve the bytes of values if that loses nothing: i64 becomes i32, f64 becomes f32 (bit for bit, also -0.0).

    Args:
        values: Integers or floats of 4 or 8 bytes, of any shape.

    Returns:
        A narrower copy, or ``values`` itself.
    """
    if values.dtype.itemsize == 4:
        return values
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what overflows f32 becomes infinity there, so the values stay f64
            narrow = values.astype(np.float32)
        same = (narrow.astype(np.float64).view(np.int64) == values.view(np.int64)).all()
    else:
        narrow = values.astype(np.int32)
        same = (narrow == values).all()
    return narrow if same else values


def nested(ragged: Ragged) -> Any:
    """Return the rows of a column as views, nested as in JSON: arrays, or lists of arrays where lengths differ."""
    rows: Any = ragged.values
    for lengths in reversed(ragged.lengths):
        rows = _cut(rows, lengths)
    return rows


def are_lengths(array: NDArray[Any], rows: int, values: int) -> bool:
    """Return whether an array of a sender has the lengths of ``rows`` rows, which have ``values`` values together."""
    if array.shape != (rows,) or array.dtype.kind not in "iu":
        return False
    lengths: list[int] = array.tolist()  # their sum may overflow an array
    return min(lengths, default=0) >= 0 and sum(lengths) == values


def _cut(rows: Any, lengths: NDArray[Any]) -> Any:
    """Cut ``rows`` (an array, or a list of them) into pieces of ``lengths``; equal pieces give one array."""
    if isinstance(rows, np.ndarray) and lengths.size and lengths[0] and (lengths == lengths[0]).all():
        return rows.reshape(len(lengths), int(lengths[0]), *rows.shape[1:])
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    return [rows[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def _implied(columns: Mapping[str, Ragged], name: str, level: int) -> bool:
    measure = columns.get(MEASURES[level])
    if measure is None or name == MEASURES[level]:
        return False
    return np.array_equal(columns[name].lengths[level], measure.lengths[level])


def _lengths(tensors: Mapping[str, NDArray[Any]], name: str, level: int) -> NDArray[Any]:
    own = tensors.get(lengths_name(name, level))
    return tensors[lengths_name(MEASURES[level], level)] if own is None else own
