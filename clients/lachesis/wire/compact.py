"""Columns in fewer bytes: labels as bits, and columns that have one value per sequence.

    masks.trained        replaces `masks`. u8: a bit per token, in the order of `numpy.packbits`: 1 where the label is
                         the token, 0 where the label is -100
    NAME.per_sequence    replaces a column with one value per sequence: this value, for each sequence

Readers need the row lengths of `tokens` to expand both. Other columns are stored in full. An expanded column is equal
to the original column, bit for bit and in the same dtype. It is a new array, not a view of the bytes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MASKED = -100
"""The label of a token without loss."""

TRAINED = "masks.trained"
"""Name of the tensor that replaces `masks`."""


def per_sequence(column: str) -> str:
    """Name the tensor that replaces a column by one value for each sequence."""
    return f"{column}.per_sequence"


def compacted(
    column: str, values: NDArray[Any], tokens: NDArray[Any], lengths: NDArray[Any]
) -> tuple[str, NDArray[Any]] | None:
    """Return the compact tensor for a column, with its name. None means that the column has no compact form.

    Args:
        column: Its name, one of `lachesis.wire.columns.PER_TOKEN`.
        values: A value per token.
        tokens: The token ids.
        lengths: Tokens per sequence.
    """
    if column == "masks" and values.dtype == tokens.dtype:
        trained = values != MASKED
        if ((values == tokens) | ~trained).all():
            return TRAINED, np.packbits(trained)
    if not 0 < len(lengths) < len(values):
        return None
    bits = values.view(f"i{values.itemsize}")  # -0.0 equals 0.0, and is another value
    if bits[0] != bits[int(lengths[0]) - 1] or not lengths.all():  # the first test is quick, and mostly enough
        return None
    firsts = np.cumsum(lengths, dtype=np.int64) - lengths
    if (np.repeat(bits[firsts], lengths) != bits).any():
        return None
    return per_sequence(column), values[firsts]


def expanded(
    name: str,
    compact: NDArray[Any],
    tokens: NDArray[Any],
    lengths: NDArray[Any],
    of_groups: Sequence[int] | None = None,
) -> NDArray[Any]:
    """Return the column that a compact tensor replaces, as a new array.

    Args:
        name: The name of the tensor, a key of `lachesis.wire.columns.COMPACT`.
        compact: The tensor of one group, or those of several groups end to end.
        tokens: The token ids.
        lengths: Tokens per sequence.
        of_groups: Tokens per group; None for one group. The bits of each group begin at a byte.
    """
    if name != TRAINED:
        return np.repeat(compact, lengths)
    bits = np.unpackbits(compact).view(np.bool_)
    if of_groups is None or not any(count % 8 for count in of_groups):
        trained = bits[: len(tokens)]
    else:
        ends = np.cumsum([(count + 7) // 8 * 8 for count in of_groups]).tolist()
        starts = (0, *ends[:-1])
        trained = np.concatenate([bits[at : at + count] for at, count in zip(starts, of_groups, strict=True)])
    return np.where(trained, tokens, tokens.dtype.type(MASKED))
