"""What batches and groups share: columns of all sequences, end to end."""

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis._public import Shown

_INT32_MOST = 2**31 - 1


class PackedColumns(Shown):
    """Sequences as columns. `lengths` and `cu_seqlens` split per-token columns, unless a column has its own lengths."""

    @abstractmethod
    def column(self, name: str) -> NDArray[Any]:
        """Return a column of all sequences, end to end."""

    @abstractmethod
    def lengths_of(self, name: str) -> NDArray[Any]:
        """Return how many values of a column each sequence has: [sequences]."""

    @property
    def tokens(self) -> NDArray[Any]:
        """Token ids of all sequences, end to end: [tokens]."""
        return self.column("tokens")

    @property
    def masks(self) -> NDArray[Any]:
        """Labels, -100 where the loss is masked: [tokens]."""
        return self.column("masks")

    @property
    def scores(self) -> NDArray[Any]:
        """One score per sequence: [sequences]."""
        return self.column("scores")

    @cached_property
    def lengths(self) -> NDArray[Any]:
        """Tokens in each sequence: [sequences]."""
        return self.lengths_of("tokens")

    @cached_property
    def cu_seqlens(self) -> NDArray[np.int32]:
        """Where each sequence begins in `tokens`, and where the last ends: [sequences + 1]."""
        return cumulated(self.lengths)

    def padded(self, name: str, fill: float) -> NDArray[Any]:
        """Return a row of a column for each sequence, padded at its end: [sequences, longest].

        Raises:
            KeyError: Some group has no such column.
            ValueError: The column has neither a value per token nor lengths of its own.
        """
        flat, lengths = self.column(name), self.lengths_of(name)
        if flat.ndim != 1 or len(flat) != lengths.sum(dtype=np.int64):
            raise ValueError(f"{name}: its values, of shape {flat.shape}, do not match the lengths of the sequences")
        rows = np.full((len(lengths), int(lengths.max(initial=0))), fill, flat.dtype)
        end = 0
        for row, length in zip(rows, lengths.tolist(), strict=True):
            row[:length] = flat[end : end + length]
            end += length
        return rows

    def tokens_padded(self, pad_id: int) -> NDArray[Any]:
        """Return the token ids of each sequence, padded with ``pad_id``: [sequences, longest]."""
        return self.padded("tokens", pad_id)

    def per_token(self, name: str) -> NDArray[Any]:
        """Return a value of a column for each token: [tokens]. A value per sequence is repeated.

        ``per_token("advantages")`` works for advantages per sequence and per token.

        Raises:
            KeyError: Some group has no such column.
            ValueError: A sequence has neither one value nor one per token.
        """
        flat, tokens, lengths = self.column(name), self.lengths, self.lengths_of(name)
        if len(flat) != lengths.sum(dtype=np.int64) and len(flat) == len(tokens):
            lengths = np.ones(len(tokens), np.int64)
        if len(flat) != lengths.sum(dtype=np.int64) or not ((lengths == tokens) | (lengths == 1)).all():
            raise ValueError(f"{name}: has neither one value per token nor one per sequence")
        return (
            flat
            if np.array_equal(lengths, tokens)
            else np.repeat(flat, np.repeat(np.where(lengths == tokens, 1, tokens), lengths), axis=0)
        )


def cumulated(lengths: NDArray[Any]) -> NDArray[np.int32]:
    """Return the boundaries of ``lengths``: their cumulated sums, starting with 0.

    Raises:
        OverflowError: The sum does not fit into int32, which attention kernels expect.
    """
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    if bounds[-1] > _INT32_MOST:
        raise OverflowError(f"{bounds[-1]} tokens are more than cu_seqlens can count")
    return bounds.astype(np.int32)
