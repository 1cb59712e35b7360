"""Summarise any number of values in a few dozen counts that can be added, and read quantiles from them.

Values are counted in bins whose bounds grow by a constant factor, so that each value is known to a relative error. Two
sketches are merged by adding their bins. If there are too many bins, each two neighbours become one: the factor is
squared. So the error depends on the spread of the values, and every quantile keeps a bound. The values of a joined bin
count as spread evenly over it, so most quantiles are far nearer than their bound.

Source: Masson, Rim and Lee, *DDSketch* (VLDB 2019); Epicoco et al., *UDDSketch* (IEEE Access 2020) for the collapse.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from math import ceil, exp, expm1, fsum, inf, isnan, log, log1p

FIRST_ERROR = 0.01
"""The relative error of a value before bins are joined. 0, 1 and -1 are exact until then."""

MOST_BINS = 64
"""Bins of a sketch for values of one sign."""

LARGEST = 1e18
"""Larger values count as this one."""

SMALLEST = 1e-9
"""Values nearer to 0 count as 0."""

_LOG_FACTOR = 2 * log1p(FIRST_ERROR)

Bins = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Sketch:
    """Counts of values.

    Attributes:
        count: The number of values, ``>= 1`` unless the sketch is empty.
        total: Their sum.
        least: The smallest of them. Infinity without values.
        most: The largest of them. Minus infinity without values.
        level: How often bins were joined: the logarithm of their factor is ``2 ** level`` times that at first.
        zeros: Values that count as 0.
        above: Counts of positive values by bin. Before bins are joined, bin ``n`` has the values over
            ``factor ** (n - 0.5)`` up to ``factor ** (n + 0.5)``.
        below: The same of negative values, by their magnitude.
    """

    count: int = 0
    total: float = 0.0
    least: float = inf
    most: float = -inf
    level: int = 0
    zeros: int = 0
    above: Bins = field(default_factory=dict)
    below: Bins = field(default_factory=dict)

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sketch":
        """Count values. Those that are not numbers (NaN) do not count; infinities count as `LARGEST`."""
        given = [min(max(float(value), -LARGEST), LARGEST) for value in values if not isnan(value)]
        if not given:
            return cls()
        above = _binned([value for value in given if value >= SMALLEST])
        below = _binned([-value for value in given if value <= -SMALLEST])
        zeros = len(given) - sum(above.values()) - sum(below.values())
        return cls(len(given), fsum(given), min(given), max(given), 0, zeros, above, below)._fitting()

    @property
    def error(self) -> float:
        """The largest relative error of a quantile."""
        return expm1(_LOG_FACTOR * 2**self.level) if self.level else FIRST_ERROR

    @property
    def mean(self) -> float | None:
        """The mean of the values; None without any."""
        return self.total / self.count if self.count else None

    def merged(self, other: "Sketch") -> "Sketch":
        """Return the sketch of the values of both."""
        if not self.count or not other.count:
            return self if self.count else other
        level = max(self.level, other.level)
        one, two = self._at(level), other._at(level)
        return Sketch(
            count=one.count + two.count,
            total=one.total + two.total,
            least=min(one.least, two.least),
            most=max(one.most, two.most),
            level=level,
            zeros=one.zeros + two.zeros,
            above=_added(one.above, two.above),
            below=_added(one.below, two.below),
        )._fitting()

    def quantiles(self, shares: Sequence[float]) -> list[float | None]:
        """Return the values below which these shares of the values are, each to a relative error of `error`.

        Args:
            shares: From 0 to 1, in increasing order.

        Returns:
            For each share ``q`` the value of rank ``floor(q * (count - 1))``, counted from 0. None without values.
        """
        if not self.count:
            return [None] * len(shares)
        bins = list(self._counted())
        ends = [0, *accumulate(count for _, _, count in bins)]
        found: list[float | None] = []
        for share in shares:
            rank = int(share * (self.count - 1))
            place = bisect_right(ends, rank) - 1
            sign, number, count = bins[place]
            low, high = self._bounds(sign, number)
            found.append(low + (high - low) * (rank - ends[place] + 0.5) / count)
        return found

    def bins(self) -> Iterator[tuple[float, float, int]]:
        """Yield the bounds of each bin, and how many values it has, in increasing order."""
        for sign, number, count in self._counted():
            low, high = self._bounds(sign, number)
            yield low, high, count

    def _counted(self) -> Iterator[tuple[int, int, int]]:
        """Yield the sign, the number and the count of each bin, in increasing order."""
        if self.below:
            yield from ((-1, number, count) for number, count in sorted(self.below.items(), reverse=True))
        if self.zeros:
            yield 0, 0, self.zeros
        yield from ((1, number, count) for number, count in sorted(self.above.items()))

    def _bounds(self, sign: int, number: int) -> tuple[float, float]:
        """Return the bounds of a bin within the extremes.

        Before bins are joined, both are the middle of the bin, so that 0, 1 and -1 stay exact.
        """
        width = 2**self.level
        near, far = ((number - 1) * width + 0.5, number * width + 0.5) if self.level else (number, number)
        low, high = sorted((sign * exp(_LOG_FACTOR * near), sign * exp(_LOG_FACTOR * far)))
        return min(max(low, self.least), self.most), min(max(high, self.least), self.most)

    def _at(self, level: int) -> "Sketch":
        sketch = self
        while sketch.level < level:
            sketch = sketch._joined()
        return sketch

    def _joined(self) -> "Sketch":
        """Join each two neighbouring bins."""
        above, below = _halved(self.above), _halved(self.below)
        return Sketch(self.count, self.total, self.least, self.most, self.level + 1, self.zeros, above, below)

    def _fitting(self) -> "Sketch":
        sketch = self
        while max(len(sketch.above), len(sketch.below)) > MOST_BINS:
            sketch = sketch._joined()
        return sketch


def merged(sketches: Iterable[Sketch]) -> Sketch:
    """Return the sketch of the values of all."""
    return reduce(Sketch.merged, sketches, Sketch())


def _binned(magnitudes: Sequence[float]) -> Bins:
    return Counter([ceil(log(magnitude) / _LOG_FACTOR - 0.5) for magnitude in magnitudes])


def _halved(bins: Bins) -> Bins:
    joined: dict[int, int] = {}
    for number, count in bins.items():
        joined[-(-number // 2)] = joined.get(-(-number // 2), 0) + count
    return joined


def _added(one: Bins, other: Bins) -> Bins:
    added = dict(one)
    for number, count in other.items():
        added[number] = added.get(number, 0) + count
    return added
