"""Count what has grown since totals were last looked at."""

from collections.abc import Mapping

Counts = Mapping[str, float]
RUN = ""
"""The name under which totals of the run are, beside those of its environments by name."""


def increases(before: Mapping[str, Counts], now: Mapping[str, Counts]) -> dict[str, dict[str, float]]:
    """Return how much each total has grown, by environment and name; those of the run under `RUN`.

    A total of the run that is smaller than before began again at 0, after a reset. So did those of environments then.
    """
    of_run, own = before.get(RUN, {}), now.get(RUN, {})
    began_again = any(own.get(name, 0) < total for name, total in of_run.items())
    known = {} if began_again else before
    return {owner: _grown(known.get(owner, {}), counts) for owner, counts in now.items()}


def of_others(grown: Mapping[str, Counts]) -> dict[str, float]:
    """Return the growth of the run that none of the named environments accounts for, where there is any."""
    left = dict(grown.get(RUN, {}))
    for owner, counts in grown.items():
        for name, by in counts.items() if owner != RUN else ():
            left[name] = left.get(name, 0) - by
    return {name: by for name, by in left.items() if by > 0}


def _grown(before: Counts, now: Counts) -> dict[str, float]:
    return {name: total - before.get(name, 0) for name, total in now.items() if total > before.get(name, 0)}
