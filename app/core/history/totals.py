"""Compute how much totals have grown since the last look at them."""

from collections.abc import Mapping

from app.core.history.charts import DROPPED
from app.core.history.series import MOST_CHARTED_ENVIRONMENTS

Counts = Mapping[str, float]
RUN = ""
"""The name under which totals of the run are, next to those of its environments by name."""


def increases(before: Mapping[str, Counts], now: Mapping[str, Counts]) -> dict[str, dict[str, float]]:
    """Return how much each total has grown, by environment and name; those of the run under `RUN`.

    A total that is smaller than before has not grown. But what was dropped stays dropped: if the run has dropped fewer
    groups than before, it was reset, and all totals began again at 0.

    Args:
        before: The totals at the last look.
        now: The totals now, of at most `MOST_CHARTED_ENVIRONMENTS`, also of those without any. One that was not among
            that many before may have moved up. How much it has grown is not known then.
    """
    of_run, own = before.get(RUN, {}), now.get(RUN, {})
    began_again = any(own.get(name, 0) < total for name, total in of_run.items() if name.startswith(DROPPED))
    known = {} if began_again else before
    was_full = len(known) > MOST_CHARTED_ENVIRONMENTS  # the run's are among them
    return {owner: _grown(known.get(owner, counts if was_full else {}), counts) for owner, counts in now.items()}


def of_others(grown: Mapping[str, Counts]) -> dict[str, float]:
    """Return the growth of the run that none of the named environments accounts for, where there is any."""
    left = dict(grown.get(RUN, {}))
    for owner, counts in grown.items():
        for name, by in counts.items() if owner != RUN else ():
            left[name] = left.get(name, 0) - by
    return {name: by for name, by in left.items() if by > 0}


def _grown(before: Counts, now: Counts) -> dict[str, float]:
    return {name: total - before.get(name, 0) for name, total in now.items() if total > before.get(name, 0)}
