"""What this API process has answered, counted as it goes."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from app.telemetry import DURATION_BUCKETS_S

_BOUNDS = (*map(str, DURATION_BUCKETS_S), "+Inf")


class Durations:
    """A histogram: how many requests took up to each of `DURATION_BUCKETS_S`, and how long all of them."""

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
        """Upper bounds, and how many requests took no longer."""
        return list(zip(_BOUNDS, accumulate(self._counts), strict=True))


class RequestCounts:
    """Requests by route. Plain numbers: the library's own, with their locks, take five times as long to count."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._durations: defaultdict[str, Durations] = defaultdict(Durations)

    def note(self, method: str, route: str, status: str, duration_s: float) -> None:
        """Count a request that came to its end.

        Args:
            method: Its method.
            route: The template of its route, not its path: of those there are as many as clients like.
            status: The status it was answered with.
            duration_s: How long that took, seconds.
        """
        self._counts[method, route, status] += 1
        self._durations[route].observe(duration_s)

    def counts(self) -> Iterator[tuple[tuple[str, str, str], int]]:
        """Return (method, route, status), and how many requests had these."""
        return iter(self._counts.items())

    def durations(self) -> Iterator[tuple[str, Durations]]:
        """Return routes, and how long their requests took."""
        return iter(self._durations.items())
