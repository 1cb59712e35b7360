"""A page is what `prometheus_client` writes of the same samples."""

import re
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from app import telemetry
from app.services.metrics.text import Samples, page_text
from app.telemetry import Kind

Sample = tuple[telemetry.Metric, tuple[str, ...], tuple[Any, ...]]

FAMILIES = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
    Kind.SUMMARY: SummaryMetricFamily,
}
NUMBERS = st.one_of(st.floats(), st.integers(-(2**60), 2**60), st.booleans())
BUCKETS = st.lists(NUMBERS, min_size=1, max_size=3).map(lambda found: [(f"{n}.5", one) for n, one in enumerate(found)])
VALUES: dict[Kind, st.SearchStrategy[tuple[Any, ...]]] = {
    Kind.COUNTER: st.tuples(NUMBERS),
    Kind.GAUGE: st.tuples(NUMBERS),
    Kind.SUMMARY: st.tuples(NUMBERS, NUMBERS),
    Kind.HISTOGRAM: st.tuples(BUCKETS, NUMBERS),
}


class Library(Collector):
    """The samples for the library."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def collect(self) -> list[Metric]:
        families = {one: FAMILIES[one.kind](one.name, one.meaning, labels=one.labels) for one in telemetry.METRICS}
        for metric, labels, values in self._samples:
            families[metric].add_metric(labels, *values)
        return list(families.values())


def samples_of(metric: telemetry.Metric) -> st.SearchStrategy[Sample]:
    labels = st.tuples(*(st.text(st.characters(exclude_categories=["Cs"]), max_size=5) for _ in metric.labels))
    return st.tuples(st.just(metric), labels, VALUES[metric.kind])


def without_exponents(page: bytes) -> list[str]:
    """Return the lines of a page, with numbers as Python writes them. The library writes an exponent sooner."""
    return [
        re.sub(r"(?<= )\S+e\+\S+$", lambda found: repr(float(found[0])), line) for line in page.decode().split("\n")
    ]


@given(st.lists(st.lists(st.sampled_from(telemetry.METRICS).flatmap(samples_of), max_size=8), max_size=3))
def test_a_page_is_what_the_library_writes(parts: list[list[Sample]]) -> None:
    found = []
    for part in parts:
        samples = Samples()
        for metric, labels, values in part:
            samples.add(metric, labels, *values)
        found.append(samples.lines())
    library = generate_latest(Library([sample for part in parts for sample in part]))
    assert without_exponents(page_text(found)) == without_exponents(library)
