"""Read fragments: in binary, checked by their headers and kept as they are, or in JSON.

A fragment has any tensors under any names. Only the values of `policy_versions` are read.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.api.codec.fragment_keys import as_strings, encoded, values_of
from app.api.codec.group_blob import FORMAT_OF_OTHERS, check_header_size, flat, opened
from app.api.codec.group_json import read_tensor
from app.api.codec.group_layout import MAX_TENSORS, check_name, check_names
from app.api.codec.json_reader import (
    OBJECTS,
    PROXIES,
    Path,
    as_object,
    check_known,
    described,
    listed,
    members,
    minified,
    parse_in_python,
    parse_json,
)
from app.api.codec.scored_data import Parse
from app.store.groups.encoded_group import Payload
from app.store.replay.entries import EncodedFragment
from lachesis.wire.blob import MAX_HEADER_BYTES, METADATA, Header, write
from lachesis.wire.errors import InvalidField
from lachesis.wire.fragments import FRAGMENT_KEYS, MAX_FRAGMENTS, POLICY_VERSIONS

_FRAMED = "fragments"
_TENSORS = "tensors"
_INTEGERS = ("I32", "I64")


def decode_fragments(body: bytes) -> list[EncodedFragment]:
    """Read one fragment's blob, or a frame of them.

    Raises:
        MalformedBody: It is not safetensors.
        InvalidField: A tensor or a key is wrong. The blobs of a frame are in ``fragments``, as they are in JSON.
    """
    return [_of_blob(blob, header, path) for blob, header, path in opened(body, _FRAMED, MAX_FRAGMENTS)]


def decode_fragments_json(body: bytes, *, parse: Parse = parse_json) -> list[EncodedFragment]:
    """Read one fragment, or ``{"fragments": [...]}``. Fragments are counted before they become Python objects.

    Args:
        body: The JSON text, UTF-8.
        parse: The parser. Tests choose another one.

    Raises:
        MalformedBody: It is not JSON, or JSON that readers understand differently.
        InvalidField: A value is wrong, or a field unknown.
    """
    document = parse(body)
    fragments = listed(document, _FRAMED)
    if fragments is None:
        return [_of_json(document, ())]
    if not 1 <= len(fragments) <= MAX_FRAGMENTS:
        raise InvalidField(f"{len(fragments)} fragments; send 1 to {MAX_FRAGMENTS} in a request", (_FRAMED,))
    return [_of_json(fragment, (_FRAMED, position)) for position, fragment in enumerate(fragments)]


def _of_blob(blob: Payload, header: Header, path: Path) -> EncodedFragment:
    check_names(header.tensors, path)
    if not header.tensors:
        raise InvalidField("has no tensor", path)
    versions = None
    if POLICY_VERSIONS in header.tensors:
        versions = flat(blob, header.tensors[POLICY_VERSIONS], _INTEGERS, (*path, POLICY_VERSIONS))
    given = {name: text for name, text in header.metadata.items() if name != FORMAT_OF_OTHERS}
    return encoded(values_of(given, path), blob, versions, path)


def _of_json(fragment: Any, path: Path) -> EncodedFragment:
    if not isinstance(fragment, OBJECTS):
        raise InvalidField(f"should be a fragment, not {described(fragment)}", path)
    given = dict(members(fragment, path))
    check_known(given, {*FRAGMENT_KEYS, _TENSORS}, path)
    tensors = _tensors(given.pop(_TENSORS, None), (*path, _TENSORS))
    versions = None
    if POLICY_VERSIONS in tensors:
        versions = _integers(tensors[POLICY_VERSIONS], (*path, _TENSORS, POLICY_VERSIONS))
    values = {name: _in_python(value, (*path, name)) for name, value in given.items()}
    payload = write(tensors, as_strings(values))
    check_header_size(payload, path)
    return encoded(values, payload, versions, path)


def _in_python(value: Any, path: Path) -> Any:
    """Return the value of a key as Python objects, if a header has room for it."""
    is_proxy = isinstance(value, PROXIES)
    text = minified(value) if is_proxy else value
    if isinstance(text, str | bytes) and len(text) > MAX_HEADER_BYTES:
        raise InvalidField(f"needs a header of {len(text)} bytes; the limit is {MAX_HEADER_BYTES}", path)
    return parse_in_python(text) if is_proxy else value


def _tensors(given: Any, path: Path) -> dict[str, NDArray[Any]]:
    if not 1 <= len(as_object(given, path)) <= MAX_TENSORS:
        raise InvalidField(f"{len(given)} tensors; send 1 to {MAX_TENSORS}", path)
    tensors = {}
    for name, tensor in members(given, path):
        check_name(name, path)
        if name == METADATA:
            raise InvalidField("is reserved: give the tensor another name", (*path, name))
        tensors[name] = read_tensor(tensor, (*path, name))
    return tensors


def _integers(array: NDArray[Any], path: Path) -> NDArray[Any]:
    if array.dtype not in (np.int32, np.int64) or array.ndim != 1:
        raise InvalidField(f"should be {' or '.join(_INTEGERS)} of one dimension", path)
    return array
