"""Sum stored spans into the longer ones that a chart shows, while they are read."""

from collections.abc import Iterable
from typing import NamedTuple

from app.core.history.resolution import Range
from app.core.history.series import OTHERS, HistorySpan, added


class TimedSpan(NamedTuple):
    """When a span begins, seconds since 1970, and what happened in it."""

    time_s: int
    span: HistorySpan


class JoinedSpans:
    """What happened in the spans of a range. Stored spans are not changed.

    Args:
        shown: The range.

    Attributes:
        spans: What happened, by the number of the span in the range.
    """

    def __init__(self, shown: Range) -> None:
        self.spans: dict[int, HistorySpan] = {}
        self._shown = shown
        self._sums: set[int] = set()  # the places whose spans are sums, which may grow
        self._names: set[str] = set()

    @property
    def environments(self) -> int:
        """The number of environments with facts of their own in any span."""
        return len(self._names - {OTHERS})

    def add(self, found: Iterable[TimedSpan]) -> None:
        """Add each span to the span of the range that contains it. Leave out spans outside of the range.

        Args:
            found: Spans in the order of time.
        """
        for time_s, span in found:
            place = self._shown.place(time_s)
            if place is None:
                continue
            self._names |= span.environments.keys()
            if place not in self.spans:
                self.spans[place] = span
                continue
            if place not in self._sums:
                self.spans[place] = added([self.spans[place]])
                self._sums.add(place)
            self.spans[place].add(span)
