"""Count the requests that this API process has answered."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from app.telemetry import DURATION_BUCKETS_S

_BOUNDS = (*map(str, DURATION_BUCKETS_S), "+Inf")


class Durations:
    """A histogram of durations by `DURATION_BUCKETS_S`, with their number and sum."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * len(_BOUNDS)
        self.sum_s = 0.0

    def observe(self, duration_s: float) -> None:
        """Count a request."""
        self._counts[bisect_left(DURATION_BUCKETS_S, duration_s)] += 1
        self.sum_s += duration_s

    @property
    def buckets(self) -> list[tuple[str, int]]:
        """Return upper bounds, each with the number of requests that took at most so long."""
        return list(zip(_BOUNDS, accumulate(self._counts), strict=True))


class RequestCounts:
    """Requests by route, as plain numbers: the library's counters have locks and take five times as long."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._durations: defaultdict[str, Durations] = defaultdict(Durations)

    def note(self, method: str, route: str, status: str, duration_s: float) -> None:
        """Count a request that has ended.

        Args:
            method: The HTTP method.
            route: The template of its route. Not its path, because clients can send any number of paths.
            status: The status of the reply.
            duration_s: The duration, seconds.
        """
        self._counts[method, route, status] += 1
        self._durations[route].observe(duration_s)

    def counts(self) -> Iterator[tuple[tuple[str, str, str], int]]:
        """Return each (method, route, status) with its number of requests."""
        return iter(self._counts.items())

    def durations(self) -> Iterator[tuple[str, Durations]]:
        """Return each route with the durations of its requests."""
        return iter(self._durations.items())
