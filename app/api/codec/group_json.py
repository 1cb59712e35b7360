"""Read groups of the native API in JSON: the columns of ``ScoredData``, keys, and tensors in base64."""

import base64
import binascii
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.api.codec.group_blob import keys_and_payload
from app.api.codec.group_details import NATIVE_DETAILS
from app.api.codec.group_fields import GroupFields
from app.api.codec.group_keys import read_keys
from app.api.codec.group_layout import MAX_TENSORS, check_name
from app.api.codec.json_reader import ARRAYS, OBJECTS, Path, as_object, check_known, listed, members
from app.api.codec.scored_data import CheckedGroup, checked_groups, elements_of
from app.store.groups.encoded_group import EncodedGroup
from lachesis.wire.blob import DTYPES, LABELLED, MAX_DIMENSIONS, METADATA, is_shape
from lachesis.wire.columns import DETAILS, NATIVE_COLUMNS, is_column, pack
from lachesis.wire.errors import InvalidField
from lachesis.wire.groups import GROUP_KEYS

_DTYPES = {**DTYPES, **LABELLED}
_TENSORS = "tensors"
_GROUPS = "groups"
_COLUMN_NAMES = frozenset(column.name for column in NATIVE_COLUMNS)
KNOWN = _COLUMN_NAMES | NATIVE_DETAILS | frozenset(GROUP_KEYS) | {_TENSORS}
"""The fields that a group may have."""


def decode_native_json(body: bytes) -> list[EncodedGroup]:
    """Read one group, or ``{"groups": [...]}``.

    Raises:
        MalformedBody: It is not JSON, or JSON that readers understand differently.
        InvalidField: A value is wrong, or a field unknown.
    """
    return [_encoded(group) for group in checked_groups(body, _groups_of, NATIVE_COLUMNS)]


def _groups_of(document: Any) -> list[tuple[Path, Any]]:
    array = listed(document, _GROUPS)
    if array is None:
        return [((), document)]
    groups = elements_of(array, (_GROUPS,))
    if not groups:
        raise InvalidField("holds no group", (_GROUPS,))
    return groups


def _encoded(group: CheckedGroup) -> EncodedGroup:
    fields = group.fields
    check_known(fields.values, KNOWN, fields.path)
    keys = read_keys(
        {name: fields.values[name] for name in GROUP_KEYS if name in fields.values},
        group.columns.get("policy_versions"),
        fields.path,
        in_rows=True,
    )
    payload = pack(group.columns, group.details, keys.as_strings(), _tensors(fields))
    return keys_and_payload(keys, group.columns, payload, fields.path)


def _tensors(fields: GroupFields) -> dict[str, Any]:
    given = fields.values.get(_TENSORS)
    path = (*fields.path, _TENSORS)
    if given is None:
        return {}
    if len(as_object(given, path)) > MAX_TENSORS // 2:
        raise InvalidField(f"{len(given)} tensors; the limit is {MAX_TENSORS // 2}", path)
    return {name: _own_tensor(name, tensor, (*path, name)) for name, tensor in members(given, path)}


def _own_tensor(name: str, given: Any, path: Path) -> NDArray[Any]:
    check_name(name, path)
    if name in (DETAILS, METADATA) or is_column(name):
        raise InvalidField("is reserved: give the tensor another name", path)
    return read_tensor(given, path)


def read_tensor(given: Any, path: Path) -> NDArray[Any]:
    """Read a tensor: an object of dtype, shape and data in base64.

    Raises:
        InvalidField: It is not a tensor.
    """
    match dict(members(given, path)) if isinstance(given, OBJECTS) else None:
        case {"dtype": str(dtype), "shape": shape, "data": str(data), **more} if not more and isinstance(shape, ARRAYS):
            lengths = list(islice(shape, MAX_DIMENSIONS + 1))  # no array has more, and a body may have millions
        case _:
            raise InvalidField("should be an object of dtype, shape and data (base64)", path)
    if dtype not in _DTYPES:
        raise InvalidField(f"unknown dtype; use one of {', '.join(_DTYPES)}", (*path, "dtype"))
    if not all(type(length) is int and length >= 0 for length in lengths):
        raise InvalidField("should hold whole numbers", (*path, "shape"))
    if not is_shape(lengths, _DTYPES[dtype].itemsize):
        raise InvalidField("invalid shape: no array can be that large", (*path, "shape"))
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidField(f"is not base64: {error}", (*path, "data")) from None
    if prod(lengths) * _DTYPES[dtype].itemsize != len(raw):
        raise InvalidField(
            f"has {len(raw)} bytes; {dtype} {lengths} needs {prod(lengths) * _DTYPES[dtype].itemsize}", (*path, "data")
        )
    return np.frombuffer(raw, _DTYPES[dtype]).reshape(lengths)
