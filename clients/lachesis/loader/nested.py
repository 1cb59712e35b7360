"""Convert nested dicts and lists of arrays to the flat names of a safetensors file, and back.

    {"obs": {"image": a, "inventory": b}, "in_state": [c, d]}
    {"obs/image": a, "obs/inventory": b, "in_state/0": c, "in_state/1": d}

are the same: a level whose names are 0, 1, 2, … is a list. So a dict with exactly these names comes back as a list. A
slash in a name separates levels: {"a/b": x} comes back as {"a": {"b": x}}.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis._torch import labelled
from lachesis.wire import blob

_SEPARATOR = "/"
_NUMBERS = "biufc"

Nested = Any
"""A number, an array, or a dict (with strings as keys), list or tuple of them."""


def flatten(nested: Nested, read: Callable[[Any], NDArray[Any]] = np.asarray) -> dict[str, NDArray[Any]]:
    """Return the arrays by their flat names, in order; nothing is copied. An array by itself has the name ''.

    Args:
        nested: What to flatten.
        read: Makes an array of a value. `encode` uses `labelled`, which also takes bf16 and f8.

    Raises:
        TypeError: A value is neither a number nor an array of numbers, or a key is not a string.
        ValueError: A dict or list is empty (a file cannot store that), or two arrays have the same flat name.
    """
    flat: dict[str, NDArray[Any]] = {}
    for name, array in _leaves(nested, "", read):
        if name in flat:
            raise ValueError(f"{name}: two arrays have this name")
        flat[name] = array
    return flat


def nest(flat: Mapping[str, Any]) -> Nested:
    """Return values by flat name (arrays, or what they were stacked to) as dicts and lists.

    Raises:
        ValueError: A name belongs to an array and also to a level.
    """
    if "" in flat and len(flat) == 1:
        return flat[""]
    root: dict[str, Any] = {}
    levels = {"": root}
    for name, value in flat.items():
        above, _, own = name.rpartition(_SEPARATOR)
        level = _level(levels, above)
        if own in level:
            raise ValueError(f"{name}: the name of an array, and of others above it")
        level[own] = value
    return _with_lists(root)


def encode(nested: Nested) -> bytes:
    """Write arrays into a safetensors blob, also bf16 and f8. It raises the errors of `flatten`."""
    return blob.write(flatten(nested, labelled))


def decode(payload: blob.Buffer) -> Nested:
    """Return the arrays of a safetensors blob as views of its bytes; bf16 and f8 as their bits.

    Raises:
        DamagedBlob: ``payload`` is not such a blob, or is not complete.
        ValueError: Its names do not nest.
    """
    header = blob.read_header(payload)
    return nest({name: blob.tensor(payload, info) for name, info in header.tensors.items()})


def _leaves(nested: Nested, name: str, read: Callable[[Any], NDArray[Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
    if isinstance(nested, Mapping):
        items = list(nested.items())
    elif isinstance(nested, (list, tuple)):
        items = [(str(position), value) for position, value in enumerate(nested)]
    else:
        array = read(nested)
        if array.dtype.kind not in _NUMBERS and array.dtype not in blob.LABELLED.values():
            raise TypeError(
                f"{name or 'the sample'}: {type(nested).__name__} of dtype {array.dtype} is not an array of numbers"
            )
        yield name, array
        return
    if not items:
        raise ValueError(f"{name or 'the sample'}: holds nothing")
    for key, value in items:
        if not isinstance(key, str):
            raise TypeError(f"{name or 'the sample'}: a key is {key!r}, not a string")
        yield from _leaves(value, f"{name}{_SEPARATOR}{key}" if name else key, read)


def _level(levels: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in levels:
        above, _, own = name.rpartition(_SEPARATOR)
        level = _level(levels, above)
        if own in level:
            raise ValueError(f"{name}: the name of an array, and of others below it")
        level[own] = levels[name] = {}
    return levels[name]


def _with_lists(nested: Any) -> Any:
    if not isinstance(nested, dict):
        return nested
    values = {name: _with_lists(value) for name, value in nested.items()}
    numbered = [str(position) for position in range(len(values))]
    return [values[name] for name in numbered] if values.keys() == set(numbered) else values
