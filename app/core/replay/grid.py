"""Describe a replay buffer by age, uses and priority, from a bounded number of its chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import fsum
from typing import NamedTuple

MOST_LOOKED_AT = 2000
"""Chunks that a grid is made from. The cell of a tenth of all chunks is then known to about 7 % of its count."""

MOST_AGES, MOST_USES = 24, 16
"""Columns and rows of a grid."""

_SPREAD = 0.6180339887498949  # golden ratio: places within strata, spread evenly and without a period
_ROUND = (1, 2, 5)


class Spot(NamedTuple):
    """What places a chunk in a grid: its oldest policy version, its acknowledged uses and its priority."""

    version: int
    uses: int
    priority: float


@dataclass(frozen=True, slots=True)
class Grid:
    """Chunks by age and uses.

    Attributes:
        age_edges: Bounds of the columns, policy versions. Column n has ages from its bound up to before the next one.
        uses_edges: Bounds of the rows, in the same way.
        counts: For each row, the chunks in each column.
        mean_priorities: The mean priority of these chunks; None in an empty cell.
    """

    age_edges: list[int]
    uses_edges: list[int]
    counts: list[list[int]]
    mean_priorities: list[list[float | None]]


def spread_ranks(size: int, most: int) -> list[int]:
    """Return ranks from 0 to before ``size``: all, or about ``most`` of them, one in each of as many equal parts.

    The same size gives the same ranks, so a chart does not flicker.
    """
    if size <= most:
        return list(range(size))
    return sorted({int((part + part * _SPREAD % 1) * size / most) for part in range(most)})


def grid(chunks: Sequence[Spot], version: int) -> Grid:
    """Arrange chunks by age and uses.

    Args:
        chunks: The chunks.
        version: The policy version in force. The age of a chunk is counted from its oldest version.
    """
    if not chunks:
        return Grid([], [], [], [])
    ages = [max(0, version - chunk.version) for chunk in chunks]
    age_edges = _edges(max(ages), MOST_AGES)
    uses_edges = _edges(max(chunk.uses for chunk in chunks), MOST_USES)
    cells: dict[tuple[int, int], list[float]] = {}
    for chunk, age in zip(chunks, ages, strict=True):
        cells.setdefault((chunk.uses // uses_edges[1], age // age_edges[1]), []).append(chunk.priority)
    found = [
        [cells.get((row, column), []) for column in range(len(age_edges) - 1)] for row in range(len(uses_edges) - 1)
    ]
    return Grid(
        age_edges,
        uses_edges,
        [[len(cell) for cell in row] for row in found],
        [[fsum(one / len(cell) for one in cell) if cell else None for cell in row] for row in found],
    )


def _edges(largest: int, most: int) -> list[int]:
    """Return bounds of equal bins from 0 on that have every number up to ``largest``: of 1, 2, 5, 10, 20, … numbers."""
    width = next(width for power in count() for one in _ROUND if (width := one * 10**power) * most > largest)
    return list(range(0, largest // width * width + 2 * width, width))
