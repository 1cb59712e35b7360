"""Stack the arrays of samples to one batch; pad or pack those of unequal length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lachesis.groups.packed import cumulated
from lachesis.loader.nested import Nested, flatten, nest


@dataclass(frozen=True, slots=True)
class Pad:
    """Fill each array at the end of its first dimension, up to the longest array of the batch.

    Attributes:
        fill: The value to fill with. It must fit the dtype of the arrays.
    """

    fill: float = 0


@dataclass(frozen=True, slots=True)
class Pack:
    """Lay arrays end to end along their first dimension."""


class Padded(NamedTuple):
    """Arrays of unequal length, a row for each.

    Attributes:
        values: [batch, longest, …].
        lengths: The length of each array: i64 [batch].
        mask: Whether a value belongs to the array, not to the fill: bool [batch, longest].
    """

    values: NDArray[Any]
    lengths: NDArray[Any]
    mask: NDArray[Any]


class Packed(NamedTuple):
    """Arrays of unequal length, end to end.

    Attributes:
        values: [sum of lengths, …].
        lengths: The length of each array: i64 [batch].
        cu_seqlens: Where each array begins, and where the last one ends: i32 [batch + 1].
    """

    values: NDArray[Any]
    lengths: NDArray[Any]
    cu_seqlens: NDArray[Any]


Ragged = Pad | Pack | Mapping[str, Pad | Pack] | None
"""Which arrays have unequal lengths. A mapping: those with these flat names. One `Pad` or `Pack`: all that have a
dimension. None means no array."""


def stack(samples: Sequence[Nested], ragged: Ragged = None, keys: Sequence[object] | None = None) -> Nested:
    """Copy the arrays of samples into one batch.

    Args:
        samples: At least one; all with the same names.
        ragged: Which arrays are padded or packed. Only names decide that, not the lengths in a batch: what is a
            `Padded` in one batch is a `Padded` in every batch.
        keys: What to call each sample in errors; its position by default.

    Returns:
        The same nesting. Each leaf is an array [batch, …], a `Padded` or a `Packed`. A mix of i32 and i64 becomes i64,
        a mix of f32 and f64 becomes f64.

    Raises:
        ValueError: A sample has other names, shapes or dtypes than the first. The message says which, and where.
        KeyError: ``ragged`` names an array that is not there.
    """
    named = list(range(len(samples))) if keys is None else keys
    flat = [flatten(sample) for sample in samples]
    first = flat[0]
    for key, sample in zip(named, flat, strict=True):
        if sample.keys() != first.keys():
            odd = sorted(sample.keys() ^ first.keys())[0]
            raise ValueError(f"{odd}: only one of {named[0]!r} and {key!r} has it")
    if isinstance(ragged, Mapping) and (unknown := ragged.keys() - first.keys()):
        raise KeyError(f"no array is called {sorted(unknown)[0]!r}; there are {', '.join(first)}")
    columns = ((name, [sample[name] for sample in flat]) for name in first)
    return nest({name: _stacked(name, arrays, _how(name, arrays[0], ragged), named) for name, arrays in columns})


def _how(name: str, array: NDArray[Any], ragged: Ragged) -> Pad | Pack | None:
    if isinstance(ragged, Mapping):
        return ragged.get(name)
    return ragged if array.ndim else None


def _stacked(name: str, arrays: list[NDArray[Any]], how: Pad | Pack | None, keys: Sequence[object]) -> Any:
    fixed = 0 if how is None else 1
    for key, array in zip(keys, arrays, strict=True):
        if array.ndim < fixed or array.shape[fixed:] != arrays[0].shape[fixed:] or array.ndim != arrays[0].ndim:
            longer = array.ndim == arrays[0].ndim > 0 and array.shape[1:] == arrays[0].shape[1:]
            hint = "; set `ragged` to pad or pack arrays of unequal length" if longer else ""
            raise ValueError(f"{name}: {key!r} has shape {array.shape}, {keys[0]!r} has {arrays[0].shape}{hint}")
        if not _may_join(array.dtype, arrays[0].dtype):
            raise ValueError(f"{name}: {key!r} is {array.dtype}, {keys[0]!r} is {arrays[0].dtype}")
    if how is None:
        return np.stack(arrays)
    lengths = np.array([len(array) for array in arrays], np.int64)
    if isinstance(how, Pack):
        return Packed(np.concatenate(arrays), lengths, cumulated(lengths))
    return _padded(name, arrays, lengths, how.fill)


def _padded(name: str, arrays: list[NDArray[Any]], lengths: NDArray[np.int64], fill: float) -> Padded:
    dtype = np.result_type(*arrays)
    longest = int(lengths.max())
    try:
        with np.errstate(over="ignore"):  # what overflows becomes infinite
            own = dtype.type(fill)
        fits = np.isfinite(own) == np.isfinite(fill) if dtype.kind in "fc" else own == fill
    except (OverflowError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"{name}: cannot pad with {fill}: it is not a value of {dtype}")
    values = np.full((len(arrays), longest, *arrays[0].shape[1:]), fill, dtype)
    for row, array in zip(values, arrays, strict=True):
        row[: len(array)] = array
    return Padded(values, lengths, np.arange(longest) < lengths[:, None])


def _may_join(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Return whether values of both dtypes can share an array.

    Integers of unequal width can, and so can floats: groups are stored in the narrowest dtype that fits. Unsigned
    integers cannot: u16 may be the bits of bf16.
    """
    return one == other or (one.kind == other.kind and one.kind in "if")
