"""Read JSON strictly. JSON that two readers could understand differently is refused, with its place if it is known.

Two parsers give the same results. simdjson parses at C speed into proxies. They look like lists and dicts but create a
Python object only for a value that is used. simdjson knows neither places nor integers beyond 64 bits, so a body that
it refuses is read again by the standard library's parser. That one also replaces simdjson where it has no wheel.

A JSON value below is a scalar, or a proxy (simdjson) or a list or dict (standard library): `ARRAYS` and `OBJECTS`.
"""

import json
import math
import re
import reprlib
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Any

from lachesis.wire.errors import InvalidField, MalformedBody

try:
    import simdjson
except ImportError:  # no wheel for this Python
    ARRAYS: tuple[Any, ...] = (list,)
    OBJECTS: tuple[Any, ...] = (dict,)
    ARRAY_PROXIES: tuple[Any, ...] = ()
    OBJECT_PROXIES: tuple[Any, ...] = ()
else:
    ARRAYS = (simdjson.Array, list)
    OBJECTS = (simdjson.Object, dict)
    ARRAY_PROXIES = (simdjson.Array,)
    OBJECT_PROXIES = (simdjson.Object,)

PROXIES = ARRAY_PROXIES + OBJECT_PROXIES

Path = tuple[str | int, ...]

MAX_DEPTH = 128
"""Levels of nesting; the parsers' own limits differ (and the standard library's with the depth of the caller)."""

MAX_REREAD_BYTES = 2 * 1024 * 1024
"""Largest body that is read again, for the place of an error or for integers beyond 64 bits.

No other request is served in the meantime: up to 0.2 s a MiB. Python lists take 6 to 21 times the body's size.
"""

_MANY_KEYS = 32  # a proxy finds a key by scanning, so an object with more keys is read as a dict
_MOST_COMPARED = 80  # characters of an unknown name
_MAX_WIDE_BYTES = 16 * 1024 * 1024  # the largest such object
_PLAIN = (str, int, type(None))
_PLAIN_TYPES = {*_PLAIN, bool}
_BOM = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_json(body: bytes) -> Any:
    """Parse a body with the fastest parser.

    The result may hold duplicate keys, infinities and any depth; `check_structure` refuses them.

    Raises:
        MalformedBody: It is not JSON in UTF-8. The message names the place, in bodies up to `MAX_REREAD_BYTES`.
    """
    if not PROXIES:
        return parse_in_python(body)
    _refuse_bom(body)
    try:
        return simdjson.Parser().parse(body)
    except (ValueError, RuntimeError) as error:
        if len(body) > MAX_REREAD_BYTES:
            raise MalformedBody(f"not JSON: {error}") from error
    return parse_in_python(body)


def parse_in_python(body: bytes) -> Any:
    """Parse a body with the standard library. It is exact for integers of up to 4,300 digits, and knows places.

    NaN and infinities are floats in the result, also those of an exponent that is too large.

    Raises:
        MalformedBody: It is not JSON in UTF-8, or an object has a duplicate key.
    """
    _refuse_bom(body)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise MalformedBody(f"not UTF-8 at byte {error.start}") from error
    try:
        value = _load(text)
        if _SURROGATE_ESCAPE.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        place = len(text[: error.pos].encode())
        raise MalformedBody(f"not JSON at byte {place}: {error.msg}") from error
    except UnicodeEncodeError as error:
        raise MalformedBody("a string holds half of a surrogate pair") from error
    except RecursionError as error:
        raise MalformedBody(f"nested deeper than {MAX_DEPTH} levels") from error
    return value


def check_structure(value: Any, path: Path = ()) -> int:
    """Check a value for anything that JSON allows and readers understand differently, at any depth.

    Returns:
        How many arrays there are in ``value``, itself included.

    Raises:
        MalformedBody: An object has a duplicate key, or values are nested deeper than `MAX_DEPTH`.
        InvalidField: A number is not finite, or an object with many keys, or with NUL in a key, is very large.
    """
    arrays = 0
    if isinstance(value, ARRAYS):
        _check_depth(path)
        if isinstance(value, list) and _PLAIN_TYPES.issuperset(map(type, value)):
            return 1
        arrays = 1
        for position, item in enumerate(value):
            arrays += _check_item(item, path, position)
    elif isinstance(value, OBJECTS):
        _check_depth(path)
        for key, item in members(value, path):
            arrays += _check_item(item, path, key)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidField("not a finite number, or one of too many digits", path)
    return arrays


def members(value: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Return the keys of an object and their values.

    Raises:
        MalformedBody: A key is duplicate.
        InvalidField: The object is too large for its many keys, or for the NUL in one of them.
    """
    if isinstance(value, dict):
        return iter(value.items())
    keys = list(islice(value, _MANY_KEYS + 1))
    if len(keys) <= _MANY_KEYS and not any("\0" in key for key in keys):  # a proxy looks up what is before a NUL
        _refuse_duplicates(keys)
        return ((key, value[key]) for key in keys)
    text = value.mini
    if len(text) > _MAX_WIDE_BYTES:
        which = f"an object with more than {_MANY_KEYS} keys, or with NUL in a key,"
        raise InvalidField(f"{which} may have at most {_MAX_WIDE_BYTES} bytes", path)
    return iter(parse_in_python(text).items())


def listed(document: Any, name: str) -> Any:
    """Return the array of a body that is ``{name: [...]}``; None for an object without this field.

    Raises:
        MalformedBody: It is not an object.
        InvalidField: There is another field next to it, or it is not an array.
    """
    if not isinstance(document, OBJECTS):
        raise MalformedBody(f"expected a JSON object, not {described(document)}")
    if name not in document:
        return None
    fields = dict(members(document, ()))
    for other in fields:
        if other != name:
            raise InvalidField(f"is not allowed next to {name}", (other,))
    return as_array(fields[name], (name,))


def as_object(value: Any, path: Path) -> Any:
    """Return a value that is an object.

    Raises:
        InvalidField: It is missing (None), or it is not an object.
    """
    if not isinstance(value, OBJECTS):
        raise InvalidField("is required" if value is None else f"should be an object, not {described(value)}", path)
    return value


def as_array(value: Any, path: Path) -> Any:
    """Return a value that is an array.

    Raises:
        InvalidField: It is not an array.
    """
    if not isinstance(value, ARRAYS):
        raise InvalidField(f"should be an array, not {described(value)}", path)
    return value


def check_known(names: Iterable[str], known: Collection[str], path: Path) -> None:
    """Check the names of fields.

    Raises:
        InvalidField: One is not among the known names.
    """
    for name in names:
        if name not in known:
            raise InvalidField(unknown(name, known), (*path, name))


def unknown(name: str, known: Collection[str]) -> str:
    """Return the message for an unknown field or parameter, with a suggestion."""
    near = get_close_matches(name[:_MOST_COMPARED], sorted(known))
    if near:
        return f"is unknown here; did you mean {' or '.join(near)}?"
    return "is unknown here" + (f"; known are {', '.join(sorted(known))}" if known else "")


def minified(value: Any) -> bytes:
    """Return a JSON value as text without white space. Numbers keep their value, strings their characters."""
    if isinstance(value, PROXIES):
        return bytes(value.mini)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def described(value: Any) -> str:
    """Describe a JSON value in a few words, for an error's message."""
    if isinstance(value, ARRAYS):
        return "an array"
    if isinstance(value, OBJECTS):
        return "an object"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return reprlib.repr(value)


def _check_item(item: Any, path: Path, key: str | int) -> int:
    if isinstance(item, _PLAIN) or (isinstance(item, float) and math.isfinite(item)):
        return 0
    return check_structure(item, (*path, key))


def _check_depth(path: Path) -> None:
    if len(path) >= MAX_DEPTH:
        raise MalformedBody(f"nested deeper than {MAX_DEPTH} levels")


def _load(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of too many digits: read as infinity, so that `check_structure` names its place
        return json.loads(text, object_pairs_hook=_object, parse_int=_integer)


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return math.inf


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        _refuse_duplicates([key for key, _ in pairs])
    return members


def _refuse_duplicates(keys: list[str]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise MalformedBody(f"an object has the key {reprlib.repr(key)} twice")
        seen.add(key)


def _refuse_bom(body: bytes) -> None:
    if not body:
        raise MalformedBody("the body is empty")
    if body.startswith(_BOM):
        raise MalformedBody("a byte order mark at byte 0")
