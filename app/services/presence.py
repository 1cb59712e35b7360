"""Signs of life of environments, gathered in memory and written once a second.

An environment polls several times a second; a write for each, made durable, would cost more than the polls.
"""

from collections import defaultdict


class Presence:
    """Environments heard of since the last tick, by run."""

    def __init__(self) -> None:
        self._heard: defaultdict[str, set[int]] = defaultdict(set)

    def heard(self, run: str, environment: int) -> None:
        """Note a sign of life."""
        self._heard[run].add(environment)

    def forget(self, run: str, environment: int) -> None:
        """Take back what was noted since the last tick: it was none."""
        if run in self._heard:
            self._heard[run].discard(environment)

    def drain(self, run: str) -> set[int]:
        """Return and forget who was heard of in ``run``."""
        return self._heard.pop(run, set())

    def runs(self) -> set[str]:
        """Runs somebody was heard of in."""
        return set(self._heard)
