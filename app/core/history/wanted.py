"""Describe the part of a history that a request needs, so that nothing else is read."""

from dataclasses import dataclass

from app.core.history.series import BUSY, OTHERS, Facts, HistorySpan
from app.core.history.sketch import Sketch, merged

SKETCHES = ("reward_in", "reward_out", "length_in", "length_out", "staleness_out", "waiting_s")
"""Values of groups that are summarised, by name."""

COUNTS = tuple(f"{what}_{way}" for way in ("in", "out") for what in ("groups", "sequences", "tokens", "bytes"))
"""What is counted of groups that come in and go out, by name."""


@dataclass(frozen=True, slots=True)
class WantedHistory:
    """The part of a history that a request needs.

    Attributes:
        run: Names of series of the run. None for all.
        environments: Names of series of environments. None for all.
        environment: The name of the only environment. None for all.
        together: Whether only values of groups are wanted, of these environments together.
    """

    run: tuple[str, ...] | None = None
    environments: tuple[str, ...] | None = None
    environment: str | None = None
    together: bool = False

    @property
    def has_environments(self) -> bool:
        """Return whether any series of environments are wanted."""
        return self.environments is None or bool(self.environments)

    @property
    def has_many(self) -> bool:
        """Return whether facts of many environments are wanted, of each by itself."""
        return self.has_environments and self.environment is None and not self.together

    @property
    def only_counts(self) -> bool:
        """Return whether only some of `COUNTS` of environments are wanted: a small part of a span."""
        names = self.environments
        return self.run == () and names is not None and self.has_many and {*names} <= {*COUNTS}

    def part(self, span: HistorySpan) -> HistorySpan:
        """Return the needed part of a span."""
        if self.together:
            return HistorySpan(environments={OTHERS: Facts(sketches=_together(span))})
        if not self.only_counts:
            return span
        names = {*(self.environments or ()), *BUSY}
        return HistorySpan(
            environments={
                name: Facts({count: facts.counts[count] for count in facts.counts.keys() & names})
                for name, facts in span.environments.items()
            }
        )


def _together(span: HistorySpan) -> dict[str, Sketch]:
    facts = span.environments.values()
    found = {name: merged(one.sketches[name] for one in facts if name in one.sketches) for name in SKETCHES}
    return {name: sketch for name, sketch in found.items() if sketch.count}


EVERYTHING = WantedHistory()
