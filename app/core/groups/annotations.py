"""Check values per token that a trainer adds to a group."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lachesis.wire.errors import InvalidField

ANNOTATIONS = "annotations"


def tensor_of(name: str) -> str:
    """Return the name of the tensor in which an annotation is shown, beside the tensors of the sender."""
    return f"{ANNOTATIONS}.{name}"


class Rows(NamedTuple):
    """Rows of unequal length: all values in reading order, and the length of each row."""

    values: NDArray[Any]
    lengths: NDArray[Any]


def checked_annotations(given: Mapping[str, Rows], lengths: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
    """Return the values of annotations in 32 bits, over all sequences in order.

    Args:
        given: A row of values per sequence, by the name of the annotation.
        lengths: Tokens of each sequence of the group.

    Raises:
        InvalidField: An annotation has other rows than the group, or a value that is not finite in 32 bits.
    """
    return {name: _checked(rows, lengths, (ANNOTATIONS, name)) for name, rows in given.items()}


def _checked(given: Rows, lengths: NDArray[Any], path: tuple[str | int, ...]) -> NDArray[np.float32]:
    rows = given.lengths
    if len(rows) != len(lengths):
        raise InvalidField(f"has {len(rows)} rows where the group has {len(lengths)} sequences", path)
    differ = rows != lengths
    if differ.any():
        row = int(differ.argmax())
        raise InvalidField(f"has {rows[row]} values where the sequence has {lengths[row]} tokens", (*path, row))
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused
        values = given.values.astype("<f4")
    finite = np.isfinite(values)
    if not finite.all():
        first = int(finite.argmin())
        ends = np.cumsum(lengths)
        row = int(np.searchsorted(ends, first, side="right"))
        place = first - int(ends[row] - lengths[row])
        raise InvalidField("not a finite number of 32 bits", (*path, row, place))
    return values
