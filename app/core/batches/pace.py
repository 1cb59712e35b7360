"""Say how fast batches follow each other, and how long trainers and batches wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

MOST_BATCHES = 16
"""How many of the latest batches a pace is about."""


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """When a batch was formed and when it ended: run clock, milliseconds. A batch that a trainer has ends now."""

    formed_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class BatchPace:
    """How fast batches follow each other.

    Attributes:
        batch_interval_s: Seconds from one batch to the next, the median; None before the second batch.
        idle_share: Part of the time since the first of these batches in which no trainer had one, from 0 to 1; None
            before the second batch.
        blocked_s: Seconds for which no trainer has had a batch; None if one has, or could have one.
    """

    batch_interval_s: float | None
    idle_share: float | None
    blocked_s: float | None


def pace(spans: Sequence[BatchSpan], began_ms: int, clock_ms: int, *, blocked: bool) -> BatchPace:
    """Describe the latest batches of a run.

    Args:
        spans: The latest batches, and older ones that a trainer has, in any order.
        began_ms: Run clock when the run began.
        clock_ms: Run clock now.
        blocked: Whether no trainer has a batch and none is ready.
    """
    in_order = sorted(spans, key=lambda one: one.formed_ms)
    ended_ms = max([began_ms, *(one.ended_ms for one in in_order)])
    blocked_s = max(0, clock_ms - ended_ms) / 1000 if blocked else None
    if len(in_order) <= 1:
        return BatchPace(None, None, blocked_s)
    interval_s = median(later.formed_ms - one.formed_ms for one, later in pairwise(in_order[-MOST_BATCHES:])) / 1000
    return BatchPace(interval_s, _idle_share(in_order, clock_ms), blocked_s)


def _idle_share(in_order: Sequence[BatchSpan], clock_ms: int) -> float | None:
    """Return the part of the time that no span covers, from the first of them until now."""
    begin_ms, end_ms = in_order[0].formed_ms, max([clock_ms, *(one.ended_ms for one in in_order)])
    passed_ms = end_ms - begin_ms
    return 1 - held_ms(in_order, begin_ms, end_ms) / passed_ms if passed_ms else None


def held_ms(spans: Sequence[BatchSpan], begin_ms: int, end_ms: int) -> int:
    """Return how long trainers had a batch between two times of the run clock, milliseconds."""
    held, reached_ms = 0, begin_ms
    for one in sorted(spans, key=lambda one: one.formed_ms):
        first_ms, last_ms = max(one.formed_ms, reached_ms), min(one.ended_ms, end_ms)
        if last_ms > first_ms:
            held += last_ms - first_ms
            reached_ms = last_ms
    return held
