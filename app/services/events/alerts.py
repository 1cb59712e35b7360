"""Turn the alerts and warnings of runs into events, when they begin and when they end."""

from collections.abc import Collection

from app.core.runs.alert import causes
from app.core.runs.view import RunView
from app.core.runs.warnings import warnings_of
from app.store.events.store import EventStore


class AlertWatch:
    """Looks at runs for the process that maintains them.

    Redis has the alerts that were reported, so another process that takes over reports none twice.

    Runs that had no alert at the last look cost no command while they have none.

    Args:
        store: Where events go.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._quiet: set[str] = set()

    async def look(self, run: str, view: RunView) -> None:
        """Tell of what has begun or ended in a run since the last look."""
        found = causes(view)
        found |= {warning.kind.value: warning.detail for warning in warnings_of(view)}
        if found or run not in self._quiet:
            await self._store.change_alerts(run, found)
        (self._quiet.discard if found else self._quiet.add)(run)

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these. Call it with none while another process looks at the runs."""
        self._quiet.intersection_update(runs)
