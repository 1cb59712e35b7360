"""Describe what happened in a run in a span of time, so that spans can be added up."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from app.core.history.sketch import Sketch

MOST_CHARTED_ENVIRONMENTS = 256
"""Environments with series of their own. The others count together, as `OTHERS`."""

OTHERS = ""
"""The name of all other environments, and of groups without one."""

MOST_NAME = 200
"""Characters of an environment's name. Names with the same beginning count together."""

BUSY = ("sequences_in", "sequences_out")
"""The counts that say how busy an environment is."""

Measurement = Literal["queued_groups", "queued_sequences", "owed_sequences", "rank_imbalance"]
"""What is measured, so that a chart shows its mean."""

_MOST_PENDING = 1024  # values that a tally keeps before it counts them


@dataclass(slots=True)
class Facts:
    """What is known of a run or an environment in a span of time, by name.

    Attributes:
        counts: Numbers that are added: groups, bytes, seconds.
        means: Sums of what was measured, and how often it was.
        lasts: Numbers of which the latest counts.
        sketches: Values of groups.
        texts: Sentences of which the latest counts.
    """

    counts: dict[str, float] = field(default_factory=dict)
    means: dict[str, tuple[float, int]] = field(default_factory=dict)
    lasts: dict[str, float] = field(default_factory=dict)
    sketches: dict[str, Sketch] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, later: "Facts") -> None:
        """Add the facts of a later span."""
        for name, count in later.counts.items():
            self.count(name, count)
        for name, (total, times) in later.means.items():
            before = self.means.get(name, (0.0, 0))
            self.means[name] = before[0] + total, before[1] + times
        self.lasts |= later.lasts
        self.texts |= later.texts
        for name, sketch in later.sketches.items():
            self.sketches[name] = self.sketches[name].merged(sketch) if name in self.sketches else sketch

    def count(self, name: str, by: float = 1) -> None:
        """Add to a count. A count of 0 takes no room."""
        if by:
            self.counts[name] = self.counts.get(name, 0) + by

    def measure(self, name: Measurement, value: float) -> None:
        """Add a measurement."""
        total, times = self.means.get(name, (0.0, 0))
        self.means[name] = total + value, times + 1


@dataclass(slots=True)
class HistorySpan:
    """What happened in a run in a span of time.

    Attributes:
        run: Facts about the run.
        environments: Facts about environments, by name: at most `MOST_CHARTED_ENVIRONMENTS`, and `OTHERS`.
    """

    run: Facts = field(default_factory=Facts)
    environments: dict[str, Facts] = field(default_factory=dict)

    def own_name(self, environment: str) -> str:
        """Return the name that an environment counts under: `OTHERS` if there are too many."""
        most = MOST_CHARTED_ENVIRONMENTS + (OTHERS in self.environments)
        is_own = environment in self.environments or len(self.environments) < most
        return environment if is_own else OTHERS

    def of(self, environment: str) -> Facts:
        """Return the facts to add to for an environment."""
        return self.environments.setdefault(self.own_name(environment), Facts())

    def limited_to(self, names: Collection[str]) -> "HistorySpan":
        """Return the span with these environments. All others count together, as `OTHERS`."""
        kept = {name: facts for name, facts in self.environments.items() if name in names}
        left = sorted(self.environments.keys() - kept.keys())
        if left:
            others = Facts()
            for name in left:
                others.add(self.environments[name])
            kept[OTHERS] = others
        return HistorySpan(self.run, kept)

    def add(self, later: "HistorySpan") -> None:
        """Add what happened in a later span."""
        self.run.add(later.run)
        for name, facts in later.environments.items():
            self.of(name).add(facts)


def with_series(environments: Collection[int]) -> Collection[int]:
    """Return the environments with series of their own, by id: the first to register of those that a run knows.

    All processes choose the same ones. So what comes in and what goes out count under the same name.

    Args:
        environments: The environments of a run, in id order.
    """
    if len(environments) <= MOST_CHARTED_ENVIRONMENTS:
        return environments
    return frozenset(islice(environments, MOST_CHARTED_ENVIRONMENTS))


def busiest(spans: Iterable[HistorySpan], most: int = MOST_CHARTED_ENVIRONMENTS) -> list[str]:
    """Return the environments with the most sequences, in and out, over all spans. Ties go by name.

    If environments leave, others get series of their own. So spans may have more than `MOST_CHARTED_ENVIRONMENTS`
    altogether.
    """
    sequences: dict[str, float] = {}
    came, went = BUSY
    for span in spans:
        for name, facts in span.environments.items():
            counts = facts.counts
            sequences[name] = sequences.get(name, 0) + counts.get(came, 0) + counts.get(went, 0)
    sequences.pop(OTHERS, None)
    return sorted(sequences, key=lambda name: (-sequences[name], name))[:most]


def added(spans: Iterable[HistorySpan]) -> HistorySpan:
    """Return what happened in spans, given in the order of time."""
    total = HistorySpan()
    for span in spans:
        total.add(span)
    return total


class Tally:
    """Counts what happens, as it happens. Values wait in lists until there are enough of them for a sketch."""

    def __init__(self) -> None:
        self.span = HistorySpan()
        self._values: dict[tuple[str, str], list[float]] = {}  # by environment and name

    def note(self, environment: str, counts: Mapping[str, float], values: Mapping[str, Sequence[float | None]]) -> None:
        """Count something of an environment, and of the run. Values that are None do not count."""
        environment = self.span.own_name(environment)
        facts = self.span.of(environment)
        for name, by in counts.items():
            facts.count(name, by)
            self.span.run.count(name, by)
        for name, new in values.items():
            if known := [value for value in new if value is not None]:
                waiting = self._values.setdefault((environment, name), [])
                waiting += known
                if len(waiting) >= _MOST_PENDING:
                    self._count(environment, name)

    def close(self) -> HistorySpan:
        """Return what was counted."""
        for environment, name in list(self._values):
            self._count(environment, name)
        return self.span

    def _count(self, environment: str, name: str) -> None:
        sketch = Sketch.of(self._values.pop((environment, name)))
        self.span.of(environment).add(Facts(sketches={name: sketch}))
