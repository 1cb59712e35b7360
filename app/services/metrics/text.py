"""Write samples of metrics in Prometheus's text format, version 0.0.4.

`prometheus_client` writes a page in one go. Here a sample costs a third, and the text of a run can be kept. A test
compares the two. They differ where the library writes an exponent sooner than Python.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from app.telemetry import METRICS, Kind, Metric

_NO_NUMBERS = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}

Lines = Mapping[str, str]
"""Samples as text, by the name of the metric."""


class Samples:
    """Samples of declared metrics."""

    def __init__(self) -> None:
        self._lines: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, metric: Metric, labels: Sequence[str], *values: Any) -> None:
        """Add a sample: the value of a counter or gauge; count and sum of a summary; buckets and sum of a histogram.

        Raises:
            TypeError, ValueError: A value is not a number.
        """
        lines, escaped = self._lines[metric.name], list(map(_escaped, labels))
        if metric.kind is Kind.HISTOGRAM:
            buckets, sum_ = values
            lines += [_BUCKETS[metric.name].format(_number(count), *escaped, bound) for bound, count in buckets]
            values = (buckets[-1][1], sum_)
        for template, value in zip(_TEMPLATES[metric.name], values, strict=True):
            lines.append(template.format(_number(value), *escaped))

    def add_each(self, metric: Metric, label: str, values: Mapping[str, float]) -> None:
        """Add a sample for each value of the second label; ``label`` is the first."""
        for name, value in values.items():
            self.add(metric, (label, name), value)

    def lines(self) -> Lines:
        """Return the samples as text."""
        return {name: "".join(lines) for name, lines in self._lines.items()}


def page_text(samples: Iterable[Lines]) -> bytes:
    """Write a page: the metrics in the order in which they were declared, samples in the order given."""
    given = list(samples)
    pieces = []
    for metric in METRICS:
        meaning = metric.meaning.replace("\\", r"\\").replace("\n", r"\n")
        pieces.append(f"# HELP {metric.name} {meaning}\n# TYPE {metric.name} {metric.kind}\n")
        pieces += [lines[metric.name] for lines in given if metric.name in lines]
    return "".join(pieces).encode()


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    text = repr(float(value))
    return _NO_NUMBERS.get(text, text)


def _template(name: str, labels: Sequence[str]) -> str:
    """Return a line with places for the value, 0, and for the values of labels, from 1. Labels are sorted by name."""
    listed = ",".join(f'{label}="{{{place}}}"' for label, place in sorted(zip(labels, count(1), strict=False)))
    return f"{name}{{{{{listed}}}}} {{0}}\n"


_SUFFIXES = {Kind.SUMMARY: ("_count", "_sum"), Kind.HISTOGRAM: ("_count", "_sum")}
_TEMPLATES = {
    metric.name: [_template(metric.name + suffix, metric.labels) for suffix in _SUFFIXES.get(metric.kind, ("",))]
    for metric in METRICS
}
_BUCKETS = {
    metric.name: _template(f"{metric.name}_bucket", (*metric.labels, "le"))
    for metric in METRICS
    if metric.kind is Kind.HISTOGRAM
}
