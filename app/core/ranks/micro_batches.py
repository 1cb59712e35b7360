"""Pack sequences into micro-batches that hold a limited number of tokens.

A micro-batch has one of two layouts. *Packed*: sequences follow each other and take their own tokens. To use as few
micro-batches as possible is bin packing. *Padded*: every sequence is a row as long as the longest one. To use as few as
possible, sort the sequences by length and cut the list.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lachesis.wire.errors import InvalidField

Integers = NDArray[np.int64]
MicroBatch = tuple[int, ...]

_MOST_TOKENS = 1 << 40  # in a micro-batch: a sum over a million micro-batches is still exact


class PackingMethod(StrEnum):
    """The method that packed the sequences."""

    FIRST_FIT = "first_fit_decreasing"
    BEST_FIT = "best_fit_decreasing"
    BY_LENGTH = "by_length"


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The micro-batches of one rank.

    Attributes:
        micro_batches: The sequences of each, as positions in the input, ascending. Empty ones come last. They exist
            only if more micro-batches were requested than there are sequences.
        method: The method that packed them.
        bound: A lower bound of the number of micro-batches.
        waste: Share of the micro-batches' token capacity that no sequence fills, 0 to 1. It is the cost of padding each
            micro-batch to the cap.
        waste_of_bound: The same with only ``bound`` micro-batches.
        waste_of_rows: Share of padding if the sequences of each micro-batch are rows as long as its longest, 0 to 1.
            In the packed layout these rows may exceed the cap.
    """

    micro_batches: tuple[MicroBatch, ...]
    method: PackingMethod
    bound: int
    waste: float
    waste_of_bound: float
    waste_of_rows: float


def pack(lengths: ArrayLike, cap_tokens: int, *, padded: bool = False, at_least: int = 0) -> MicroBatches:
    """Put sequences into few micro-batches.

    For the packed layout, best-fit decreasing is tried, and first-fit decreasing if that is above the lower bound. Each
    needs at most 11/9 of the minimum plus one. For the padded layout, the number is the minimum. The same input gives
    the same micro-batches everywhere.

    Args:
        lengths: Tokens of each sequence, integers ``>= 0`` of shape [sequences].
        cap_tokens: The most tokens in a micro-batch, ``>= 1``.
        padded: Whether each sequence takes as many tokens as the longest of its micro-batch.
        at_least: The fewest micro-batches to make (`most_needed`). If fewer would do, the fullest are split. If there
            are too few sequences, the last ones are empty. A trainer must run a step without effect for an empty one.

    Raises:
        InvalidField: A sequence is longer than the cap, or a value is invalid. The error names the first such sequence.
    """
    checked = _checked(lengths, cap_tokens)
    method, least, batches = _fitted(checked, cap_tokens, padded)
    tokens = checked.tolist()
    return _packed(tokens, _split(tokens, batches, at_least), method, least, cap_tokens)


def most_needed(lengths: ArrayLike, shards: Iterable[ArrayLike], cap_tokens: int, *, padded: bool = False) -> int:
    """Return how many micro-batches `pack` makes of the shard that needs most; 0 if there is no sequence.

    If ranks synchronise in each micro-batch, all of them must have this number.

    Args:
        lengths: Tokens of each sequence of the batch, integers ``>= 0`` of shape [sequences].
        shards: The sequences of each rank, as positions in ``lengths`` (``Balanced.shards``).
        cap_tokens: The most tokens in a micro-batch, ``>= 1``.
        padded: Whether each sequence takes as many tokens as the longest of its micro-batch.

    Raises:
        InvalidField: A sequence is longer than the cap, or a value is invalid. The error names the first such sequence.
    """
    checked = _checked(lengths, cap_tokens)
    fitted = (_fitted(checked[np.asarray(shard, np.int64)], cap_tokens, padded) for shard in shards)
    return max((len(batches) for _, _, batches in fitted), default=0)


def _fitted(lengths: Integers, cap_tokens: int, padded: bool) -> tuple[PackingMethod, int, list[list[int]]]:
    """Return the method, a lower bound of the number of micro-batches, and the micro-batches."""
    tokens = lengths.tolist()
    order = np.argsort(-lengths, kind="stable").tolist()
    if padded:
        batches = _by_length(tokens, order, cap_tokens)
        return PackingMethod.BY_LENGTH, len(batches), batches
    least = fewest(lengths, cap_tokens)
    batches = _best_fit(tokens, order, cap_tokens)
    if len(batches) > least and len(first := _first_fit(tokens, order, cap_tokens)) < len(batches):
        return PackingMethod.FIRST_FIT, least, first
    return PackingMethod.BEST_FIT, least, batches


def fewest(lengths: Integers, cap_tokens: int) -> int:
    """Return a lower bound of the number of packed micro-batches.

    For any k up to half the cap, leave out the sequences shorter than k. Each sequence longer than half the cap needs
    its own micro-batch. Next to one longer than cap - k nothing fits. The others may share the room next to the other
    long ones. The tokens that do not fit there, divided by the cap, need further micro-batches. For k = 0 the bound is
    at least all tokens divided by the cap, rounded up.

    Source: Martello and Toth, *Lower bounds and reduction procedures for the bin packing problem* (1990): L2.
    """
    if not len(lengths):
        return 0
    ascending = np.sort(lengths)
    sums = np.concatenate([[0], np.cumsum(ascending)])
    half = int(np.searchsorted(ascending, cap_tokens // 2, "right"))
    shortest = np.concatenate([[0], np.unique(ascending[:half])])
    first = np.searchsorted(ascending, shortest)
    alone = np.maximum(np.searchsorted(ascending, cap_tokens - shortest, "right"), half)
    long = alone - half
    over = (sums[half] - sums[first]) - (long * cap_tokens - (sums[alone] - sums[half]))
    needed = len(ascending) - half + np.maximum(0, -(-over // cap_tokens))
    return max(1, int(needed.max()))


def _first_fit(tokens: Sequence[int], order: Sequence[int], cap_tokens: int) -> list[list[int]]:
    """Put each sequence into the first micro-batch that has room for it."""
    width = 1 << max(0, len(order) - 1).bit_length()
    room = [cap_tokens] * (2 * width)  # a tree over the micro-batches: each node knows the most room below it
    batches: list[list[int]] = []
    for sequence in order:
        length, node = tokens[sequence], 1
        while node < width:
            node *= 2
            if room[node] < length:
                node += 1
        if node - width == len(batches):
            batches.append([])
        batches[node - width].append(sequence)
        room[node] -= length
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return batches


def _best_fit(tokens: Sequence[int], order: Sequence[int], cap_tokens: int) -> list[list[int]]:
    """Put each sequence into the micro-batch that it fills most."""
    batches: list[list[int]] = []
    rooms: list[int] = []  # the different amounts of room left, ascending
    with_room: dict[int, list[int]] = {}
    for sequence in order:
        length = tokens[sequence]
        at = bisect_left(rooms, length)
        if at == len(rooms):
            room, batch = cap_tokens, len(batches)
            batches.append([])
        else:
            room = rooms[at]
            batch = with_room[room].pop()
            if not with_room[room]:
                del with_room[room], rooms[at]
        batches[batch].append(sequence)
        left = room - length
        if left not in with_room:
            with_room[left] = []
            insort(rooms, left)
        with_room[left].append(batch)
    return batches


def _by_length(tokens: Sequence[int], order: Sequence[int], cap_tokens: int) -> list[list[int]]:
    """Cut the sequences, longest first, into the longest runs that fit.

    No packing has fewer micro-batches. In any packing, the micro-batch of the longest sequence has at most as many
    sequences as the first run here. So it leaves at least as many, and they are at least as long.
    """
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        longest = tokens[order[start]]
        fitting = cap_tokens // longest if longest else len(order)
        batches.append(list(order[start : start + fitting]))
        start += fitting
    return batches


def _split(tokens: Sequence[int], batches: list[list[int]], number: int) -> list[list[int]]:
    """Split the fullest micro-batches in two until there are ``number`` of them; then add empty ones."""
    heap = [(-sum(tokens[sequence] for sequence in batch), batch) for batch in batches if len(batch) > 1]
    heapq.heapify(heap)
    kept = [batch for batch in batches if len(batch) == 1]
    while heap and len(kept) + len(heap) < number:
        _, fullest = heapq.heappop(heap)
        halves: list[list[int]] = [[], []]
        held = [0, 0]
        for sequence in sorted(fullest, key=lambda sequence: (-tokens[sequence], sequence)):
            lighter = int((held[1], len(halves[1])) < (held[0], len(halves[0])))
            halves[lighter].append(sequence)
            held[lighter] += tokens[sequence]
        for half, total in zip(halves, held, strict=True):
            if len(half) > 1:
                heapq.heappush(heap, (-total, half))
            else:
                kept.append(half)
    kept += [batch for _, batch in heap]
    return kept + [[] for _ in range(number - len(kept))]


def _packed(
    lengths: Sequence[int], batches: list[list[int]], method: PackingMethod, least: int, cap_tokens: int
) -> MicroBatches:
    tokens = sum(lengths[sequence] for batch in batches for sequence in batch)
    rows = sum(len(batch) * max(lengths[sequence] for sequence in batch) for batch in batches if batch)
    filled = sorted(tuple(sorted(batch)) for batch in batches if batch)
    return MicroBatches(
        micro_batches=(*filled, *[()] * (len(batches) - len(filled))),
        method=method,
        bound=least,
        waste=_share_wasted(tokens, len(batches) * cap_tokens),
        waste_of_bound=_share_wasted(tokens, least * cap_tokens),
        waste_of_rows=_share_wasted(tokens, rows),
    )


def _share_wasted(tokens: int, taken: int) -> float:
    return 1 - tokens / taken if taken else 0.0


def _checked(lengths: ArrayLike, cap_tokens: int) -> Integers:
    if not 1 <= cap_tokens <= _MOST_TOKENS:
        raise InvalidField(f"the cap of a micro-batch is {cap_tokens} tokens: it must be from 1 to {_MOST_TOKENS}")
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise InvalidField(f"lengths must be integers of shape [sequences], not {array.dtype} of {list(array.shape)}")
    wrong = np.flatnonzero((array < 0) | (array > cap_tokens))
    if len(wrong):
        first = int(wrong[0])
        allowed = f"it must be from 0 to {cap_tokens}, the cap of a micro-batch"
        raise InvalidField(f"sequence {first} has {array[first]} tokens: {allowed}", (first,))
    return array.astype(np.int64)
