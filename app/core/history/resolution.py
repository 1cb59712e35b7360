"""Choose how finely a history is kept and shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

HOUR_S, DAY_S = 3600, 24 * 3600


@dataclass(frozen=True, slots=True)
class Resolution:
    """Spans of ``step_s`` seconds, kept for ``kept_s`` seconds."""

    step_s: int
    kept_s: int

    @property
    def stored_s(self) -> int:
        """How long they are stored, seconds: the first span of a range is whole, although a request takes a moment."""
        return self.kept_s + 2 * self.step_s


LONGEST_S = 30 * DAY_S

KEPT = (
    Resolution(10, HOUR_S),
    Resolution(60, DAY_S),
    Resolution(900, LONGEST_S),
    Resolution(6 * HOUR_S, LONGEST_S),
)
"""What the store keeps, from fine to coarse. Each step is a multiple of the finer ones."""

STEPS_S = tuple(sorted({*(one.step_s for one in KEPT), HOUR_S, DAY_S}))
"""What a history is shown in. Steps that are not kept are added up."""

NEXT = tuple(pairwise(KEPT))
"""Each resolution that is kept, and the one that its spans are added up to."""

LEAST_S = 120
"""The shortest range with the default begin."""

_FRESH_S = 0.2  # charts of one page ask at about the same time
_ENVIRONMENTS_PER_S = 50.0

MOST_POINTS = 3000
"""Spans of a history."""

MOST_CELLS = 24_000
"""Spans of a history times environments, which bounds the work and the answer."""


@dataclass(frozen=True, slots=True)
class AskedRange:
    """The range of time that a reader asks for.

    Attributes:
        from_s: When it begins, seconds since 1970. None means `default_begin`.
        to_s: When it ends. None means now.
        least_step_s: The shortest span to show, at most the last of `STEPS_S`.
        most_spans: The most spans to show, up to `MOST_POINTS`, if there are coarser ones.
    """

    from_s: float | None = None
    to_s: float | None = None
    least_step_s: int = 0
    most_spans: int = MOST_POINTS


@dataclass(frozen=True, slots=True)
class Range:
    """A range of time, in whole spans of ``step_s`` seconds: from ``from_s`` on, up to before ``to_s``."""

    from_s: int
    to_s: int
    step_s: int

    @property
    def points(self) -> int:
        """The number of spans."""
        return (self.to_s - self.from_s) // self.step_s

    @property
    def times_s(self) -> list[int]:
        """When each span begins."""
        return list(range(self.from_s, self.to_s, self.step_s))

    def place(self, time_s: int) -> int | None:
        """Return the number of the span that a time is in; None if it is in none."""
        return (time_s - self.from_s) // self.step_s if self.from_s <= time_s < self.to_s else None


def default_begin(to_s: float, firsts: Sequence[int | None]) -> float:
    """Return the default start of a range: an hour before its end, or the start of a younger history.

    Args:
        to_s: When the range ends, seconds since 1970.
        firsts: The start of the first span of each resolution in `KEPT`; None for a resolution without spans.
    """
    begin_s, finest_s = to_s - HOUR_S, firsts[0]
    ends_s = [first + one.step_s for one, first in zip(KEPT[1:], firsts[1:], strict=True) if first is not None]
    if finest_s is None:
        return begin_s if ends_s else to_s - LEAST_S
    # The finest spans are kept for an hour. A coarser one that ended before them has what is no longer kept.
    is_whole = all(finest_s < end_s for end_s in ends_s)
    return max(begin_s, min(finest_s, to_s - LEAST_S)) if is_whole else begin_s


def span_begin(time_s: int, step_s: int) -> int:
    """Return the start of the span that contains a time."""
    return time_s - time_s % step_s


def chosen_range(
    from_s: float, to_s: float, now_s: float, environments: int, most_points: int = MOST_POINTS, least_step_s: int = 0
) -> Range:
    """Return the finest spans that cover a range of time, and are kept that long, and are not too many.

    A range in the future, or one older than what is kept, has no spans.

    Args:
        from_s: When it begins, seconds since 1970, below ``to_s``. What is no longer kept is left out.
        to_s: When it ends. What has not happened yet is left out.
        now_s: The time now.
        environments: How many environments are shown.
        most_points: The most spans.
        least_step_s: The shortest span, at most the last of `STEPS_S`.
    """
    if from_s > now_s or to_s <= now_s - LONGEST_S:
        begin_s = span_begin(int(from_s), STEPS_S[0])
        return Range(begin_s, begin_s, STEPS_S[0])
    from_s, to_s = max(from_s, now_s - LONGEST_S), min(to_s, now_s)
    kept_s = {one.step_s: one.kept_s for one in KEPT}
    for step_s in STEPS_S:
        first, last = span_begin(int(from_s), step_s), span_begin(int(max(from_s, to_s)), step_s) + step_s
        found = Range(first, last, step_s)
        oldest_s = now_s - kept_s.get(step_s, LONGEST_S) - step_s  # a request for the last hour takes a moment
        is_kept = least_step_s <= step_s and from_s >= oldest_s
        if is_kept and found.points <= most_points and found.points * environments <= MOST_CELLS:
            break
    return found


def kept_resolution(step_s: int) -> Resolution:
    """Return the coarsest resolution kept whose spans add up to ``step_s``."""
    return [one for one in KEPT if step_s % one.step_s == 0][-1]


def until_next_write_s(now_s: float) -> float:
    """Return the seconds until a history is written next: up to the middle of the next finest span.

    So each span gets a write, although writes are late. Without that, charts have gaps.

    Args:
        now_s: The time of Redis, in which spans are.
    """
    step_s = KEPT[0].step_s
    return 1.5 * step_s - now_s % step_s


def fresh_s(environments: int) -> float:
    """Return how long what was written of a watched run counts as fresh, seconds.

    A write costs about as much as the environments that it covers. So what it costs in a second is bounded.
    """
    return max(_FRESH_S, environments / _ENVIRONMENTS_PER_S)
