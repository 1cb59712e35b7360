"""Make optimistic changes: read, decide, write if nothing changed since, else start again. Attempts are bounded.

A write fails only because another one succeeded, so some change always succeeds. The bound is for a change that never
wins: it gets an error instead of blocking its client forever.
"""

import logging
from typing import Literal

from lachesis.wire.errors import TooManyConflicts

MAX_ATTEMPTS = 1000
"""Far more than a thousand environments need when they join a run at once. It takes some seconds of one request."""

log = logging.getLogger("lachesis.conflicts")


class Attempts:
    """Counts the attempts of one change: ``while attempts.again(): read, decide, write, return``.

    Args:
        change: What is changed, for the error and the log: ``acknowledge batch b1``.
        run: The run's name; None for a change of the service.
        bound: Most attempts.
    """

    __slots__ = ("_bound", "_change", "_count", "_run")

    def __init__(self, change: str, run: str | None = None, bound: int = MAX_ATTEMPTS) -> None:
        self._change = change
        self._run = run
        self._bound = bound
        self._count = 0

    def again(self) -> Literal[True]:
        """Begin the next attempt.

        Raises:
            TooManyConflicts: The bound is reached. This change did not happen.
        """
        if self._count >= self._bound:
            fields = {"run": self._run, "change": self._change, "attempts": self._count}
            log.warning("gave up a change: other requests kept changing the same record", extra={"fields": fields})
            where = "" if self._run is None else f" in run {self._run}"
            raise TooManyConflicts(
                f"could not {self._change}{where}: other requests changed the same thing during each of "
                f"{self._count} attempts"
            )
        self._count += 1
        return True
