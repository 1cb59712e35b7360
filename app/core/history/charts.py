"""Turn what happened in spans of time into series for charts: one value for each span, None where nothing is known."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from math import exp, log
from typing import Any

from app.core.history.causes import HELD, blocked_sentence
from app.core.history.curricula import curriculum_series
from app.core.history.series import Facts, HistorySpan, Measurement, busiest
from app.core.history.shift import development, shift
from app.core.history.sketch import SMALLEST, Sketch, merged
from app.core.history.wanted import COUNTS, SKETCHES
from lachesis.wire.curricula import REWARD_TENTHS
from lachesis.wire.history import CAUSES, HistoryValue

Series = list[float | None]
DROPPED, BLOCKED = "dropped:", "blocked:"
"""Beginnings of the names of counts: dropped groups by reason, blocked seconds by cause. Texts have the same names."""

LOOKED_S = "looked_s"
"""The name of a count: the seconds of which the causes are known."""

MOST_BINS = 32
"""Bins of a histogram."""

SKETCHES_OF: Mapping[HistoryValue, tuple[str | None, str]] = {
    "reward": ("reward_in", "reward_out"),
    "length": ("length_in", "length_out"),
    "staleness": (None, "staleness_out"),
    "waiting": (None, "waiting_s"),
}
"""The sketches of a value: of groups that came in, where they are known, and of those that went out."""

_SHARES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
_TAIL = 0.005  # share of the values that may be beyond each end of a histogram
_FEW = 4  # most values that count as outliers: two groups, each counted in and out
_SAME = 1e-3  # relative distance below which values share a bin: edges have six digits
_MANY_TIMES = 100.0  # a range of positive values this wide has bins that grow


def run_series(spans: Mapping[int, HistorySpan], points: int, wanted: Collection[str] | None = None) -> dict[str, Any]:
    """Return the series of a run, by name.

    Args:
        spans: What happened, by the number of the span.
        points: The number of spans.
        wanted: The names of the series. None for all.
    """
    facts = {place: span.run for place, span in spans.items()}

    def each(value: Callable[[Facts], float | None]) -> Series:
        return _series(facts, points, value)

    return _chosen(
        wanted,
        {
            **_counted(each),
            "queued_groups": lambda: each(_mean("queued_groups")),
            "queued_sequences": lambda: each(_mean("queued_sequences")),
            "step": lambda: each(_last("step")),
            "policy_version": lambda: each(_last("policy_version")),
            "batches": lambda: each(_count("batches")),
            "relaxed_batches": lambda: each(_count("relaxed_batches")),
            "dropped": lambda: _dropped(facts, points),
            "blocked_s": lambda: {cause: each(_seconds(BLOCKED + cause)) for cause in CAUSES},
            "blocked_sentence": lambda: [_blocked_sentence(facts.get(place)) for place in range(points)],
            "trainer_idle_share": lambda: each(_idle_share),
            "rank_imbalance": lambda: each(_mean("rank_imbalance")),
            "replay_age_versions": lambda: each(_ratio("replay_staleness", "replay_samples")),
            "replay_uses": lambda: each(_ratio("replay_retired_uses", "replay_retired_chunks")),
            "curricula": lambda: {
                name: asdict(one) for name, one in curriculum_series(facts, points, REWARD_TENTHS).items()
            },
        },
    )


def environment_series(
    spans: Mapping[int, HistorySpan], points: int, wanted: Collection[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the series of the busiest environments in the spans, by their names, and of all others together.

    Args:
        spans: What happened, by the number of the span.
        points: The number of spans.
        wanted: The names of the series. None for all.
    """
    own = set(busiest(spans.values()))
    spans = {place: span.limited_to(own) for place, span in spans.items()}
    names = {name for span in spans.values() for name in span.environments}
    return {name: _of_environment(spans, points, name, wanted) for name in sorted(names)}


def _of_environment(
    spans: Mapping[int, HistorySpan], points: int, name: str, wanted: Collection[str] | None
) -> dict[str, Any]:
    facts = {place: span.environments[name] for place, span in spans.items() if name in span.environments}

    def each(value: Callable[[Facts], float | None]) -> Series:
        return _series(facts, points, value)

    def share_got() -> Series:
        got = _empty(points)
        for place, one in facts.items():
            sequences = spans[place].run.counts.get("sequences_out", 0)
            got[place] = _short(one.counts.get("sequences_out", 0) / sequences) if sequences else None
        return got

    return _chosen(
        wanted,
        {
            **_counted(each),
            **{sketch: partial(_distribution, facts, points, sketch) for sketch in SKETCHES},
            "queued_groups": lambda: each(_mean("queued_groups")),
            "dropped": lambda: _dropped(facts, points),
            "share_promised": lambda: each(_last("share_promised")),
            "share_got": share_got,
            "owed_sequences": lambda: each(_mean("owed_sequences")),
        },
    )


def _chosen(wanted: Collection[str] | None, series: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Compute the series that are wanted."""
    return {name: compute() for name, compute in series.items() if wanted is None or name in wanted}


def _counted(each: Callable[[Callable[[Facts], float | None]], Series]) -> dict[str, Callable[[], Series]]:
    return {name: partial(each, _count(name)) for name in COUNTS}


def _dropped(facts: Mapping[int, Facts], points: int) -> dict[str, Series]:
    reasons = sorted({count for one in facts.values() for count in one.counts if count.startswith(DROPPED)})
    return {reason.removeprefix(DROPPED): _series(facts, points, _count(reason)) for reason in reasons}


def _blocked_sentence(facts: Facts | None) -> str | None:
    """Say what blocked the run in a span; None if that is not known."""
    if facts is None or not facts.counts.get(LOOKED_S):
        return None
    reasons = {cause: facts.texts[BLOCKED + cause] for cause in CAUSES if BLOCKED + cause in facts.texts}
    return blocked_sentence({cause: facts.counts.get(BLOCKED + cause, 0) for cause in CAUSES}, reasons)


def _idle_share(facts: Facts) -> float | None:
    """Return the part of the time in which no trainer held a batch."""
    looked_s = facts.counts.get(LOOKED_S)
    held_s = facts.counts.get(BLOCKED + HELD, 0)
    return _short(max(0.0, 1 - held_s / looked_s)) if looked_s else None


def _distribution(facts: Mapping[int, Facts], points: int, name: str) -> dict[str, Series]:
    found: dict[str, Series] = {key: _empty(points) for key in ("mean", *_SHARES)}
    for place, one in facts.items():
        sketch = one.sketches.get(name)
        if sketch is not None:
            values = [sketch.mean, *sketch.quantiles(list(_SHARES.values()))]
            for series, value in zip(found.values(), values, strict=True):
                series[place] = None if value is None else _short(value)
    return found


def _empty(points: int) -> Series:
    return [None] * points


def _series(facts: Mapping[int, Facts], points: int, value: Callable[[Facts], float | None]) -> Series:
    series = _empty(points)
    for place, one in facts.items():
        series[place] = value(one)
    return series


def _count(name: str) -> Callable[[Facts], float]:
    return lambda facts: facts.counts.get(name, 0)


def _seconds(name: str) -> Callable[[Facts], float]:
    return lambda facts: _short(facts.counts.get(name, 0))


def _last(name: str) -> Callable[[Facts], float | None]:
    return lambda facts: facts.lasts.get(name)


def _mean(name: Measurement) -> Callable[[Facts], float | None]:
    def mean(facts: Facts) -> float | None:
        total, times = facts.means.get(name, (0.0, 0))
        return _short(total / times) if times else None

    return mean


def _ratio(above: str, below: str) -> Callable[[Facts], float | None]:
    def ratio(facts: Facts) -> float | None:
        times = facts.counts.get(below)
        return _short(facts.counts.get(above, 0) / times) if times else None

    return ratio


def _short(value: float) -> float:
    """Return a number with six digits: more would only make the answer longer."""
    return float(f"{value:.6g}")


@dataclass(frozen=True, slots=True)
class Histograms:
    """Counts of groups by value, with the same bins at all times.

    Attributes:
        edges: The bounds of the bins, in increasing order. The first and the last bin have all values beyond them, too.
        generated: For each span, the groups that came in by bin; empty if the value is not known then.
        trained: For each span, the groups that went out in batches by bin.
        generated_total: The same of all spans together.
        trained_total: The same of all spans together.
        shift: How the trained groups differ from the generated ones, as a sentence; None if that is not known.
        development: How this difference developed, as a sentence; None if that is not known.
    """

    edges: list[float] = field(default_factory=list)
    generated: list[list[int]] = field(default_factory=list)
    trained: list[list[int]] = field(default_factory=list)
    generated_total: list[int] = field(default_factory=list)
    trained_total: list[int] = field(default_factory=list)
    shift: str | None = None
    development: str | None = None


def histograms(spans: Mapping[int, HistorySpan], points: int, value: HistoryValue) -> Histograms:
    """Return the histograms of a value over time, of all environments in the spans together."""
    came, went = (
        [_together(spans, place, name) for place in range(points)] if name else [] for name in SKETCHES_OF[value]
    )
    all_came, all_went = merged(came), merged(went)
    edges = _edges(all_came.merged(all_went))
    if not edges:
        return Histograms()
    generated, trained = ([_counts(one, edges) for one in some] for some in (came, went))
    came_total, went_total = ([sum(column) for column in zip(*rows, strict=True)] for rows in (generated, trained))
    return Histograms(
        edges,
        generated,
        trained,
        came_total,
        went_total,
        shift(value, all_came, all_went),
        development(value, came, went) if came else None,
    )


def _together(spans: Mapping[int, HistorySpan], place: int, name: str) -> Sketch:
    facts: Iterable[Facts] = spans[place].environments.values() if place in spans else ()
    return merged(one.sketches[name] for one in facts if name in one.sketches)


def _edges(sketch: Sketch) -> list[float]:
    """Return bounds of bins that cover almost all values: of equal width, or of equal ratio for a wide range."""
    if not sketch.count:
        return []
    low, high = _covered(sketch)
    size = max(abs(low), abs(high))
    if high - low <= max(SMALLEST, _SAME * size):
        margin = max(0.5, _SAME * size)
        return [low - margin, high + margin]
    steps = range(MOST_BINS + 1)
    if low > 0 and high / low >= _MANY_TIMES:
        return [_short(exp(log(low) + (log(high) - log(low)) * n / MOST_BINS)) for n in steps]
    return [_short(low + (high - low) * n / MOST_BINS) for n in steps]


def _covered(sketch: Sketch) -> tuple[float, float]:
    """Return the bounds of almost all values, without outliers and tails."""
    values = _without_outliers([((low + high) / 2, count) for low, high, count in sketch.bins()])
    tail = int(_TAIL * sum(count for _, count in values))
    low, high = _ranked(values, tail), _ranked(reversed(values), tail)
    return (low, high) if low < high else (values[0][0], values[-1][0])


def _without_outliers(values: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Leave out a few values that would press all others into one bin.

    They are farther from the median than all others by a factor of more than the number of bins.

    Args:
        values: Each value and how often it is there, in increasing order; not empty.
    """
    left = sum(count for _, count in values)
    few, middle = min(max(_FEW, 2 * _TAIL * left), left / 2), _ranked(values, (left - 1) // 2)
    by_distance = sorted(values, key=lambda one: abs(one[0] - middle))
    for number, ((near, count), (far, _)) in enumerate(pairwise(by_distance), 1):
        left -= count
        if left <= few and abs(far - middle) > MOST_BINS * abs(near - middle) > 0:
            return sorted(by_distance[:number])
    return values


def _ranked(values: Iterable[tuple[float, int]], rank: int) -> float:
    """Return the value of a rank, counted from 0."""
    for value, count in values:
        rank -= count
        if rank < 0:
            return value
    raise AssertionError("there are as many values")


def _counts(sketch: Sketch, edges: list[float]) -> list[int]:
    """Count values by bin of a histogram. Bins of a sketch may be wider: then their values are spread evenly."""
    inner, parts = edges[1:-1], [0.0] * (len(edges) - 1)
    for low, high, count in sketch.bins():
        first, last = bisect_right(inner, low), bisect_right(inner, high)
        if first == last:
            parts[first] += count
            continue
        for place, (begin, end) in enumerate(pairwise([low, *inner[first:last], high]), first):
            parts[place] += count * (end - begin) / (high - low)
    ends = [round(total) for total in accumulate(parts)]  # so all together stay what they are
    return [end - begin for begin, end in pairwise([0, *ends])]
