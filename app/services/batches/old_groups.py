"""Limit the attempts of one request that only drop groups that are too old."""

from app.store.runs.store import RunStore

MOST_DROPPING = 8
"""Attempts of a request that find only groups that are too old. Each drops a batch of them; maintenance drops the
rest."""


class DroppingAttempts:
    """Counts the attempts of one request that found only groups that are too old."""

    def __init__(self, runs: RunStore, run: str) -> None:
        self._runs = runs
        self._run = run
        self._attempts = 0

    async def was_last(self) -> bool:
        """Count an attempt. If it was the last one, let maintenance drop the other old groups."""
        self._attempts += 1
        if self._attempts < MOST_DROPPING:
            return False
        await self._runs.request_sweep(self._run)
        return True
