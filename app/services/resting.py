"""Let runs sleep that have leases or a replay buffer, after nothing has happened in them for half a minute.

A run without these sleeps at the first tick that finds nothing to do. Leases and buffers need work at times that only
their rules know. So the process that maintains a calm run works out the next such time. The next tick lets the run
sleep until then, if nothing has happened in between.
"""

from collections.abc import Collection, Iterable

from app.core.batches.leases import deadlines_ahead
from app.services.replay.buffer import ReplayBuffers
from app.store.runs.store import RunStore
from app.store.runs.tick import NO_TICK, LastTick, Tick

_CALM_TICKS = 30  # about as many seconds: the history of a run has no gaps while something happens every few seconds
_NEVER_MS = 2**53


class Resting:
    """The last ticks of the runs that this process maintains."""

    def __init__(self, runs: RunStore, buffers: ReplayBuffers) -> None:
        self._runs = runs
        self._buffers = buffers
        self._last: dict[str, LastTick] = {}
        self._calm: dict[str, int] = {}  # calm ticks in a row, by run

    def last(self, runs: Iterable[str]) -> dict[str, LastTick]:
        """Return the last tick of each run."""
        return {run: self._last.get(run, NO_TICK) for run in runs}

    def note(self, run: str, tick: Tick) -> None:
        """Note a tick of a run."""
        self._last[run] = LastTick(tick.clock_ms)
        self._calm[run] = self._calm.get(run, 0) + 1 if tick.calm else 0

    async def look_ahead(self, run: str, tick: Tick) -> None:
        """Work out when a calm run needs work next. Call it after the work that a tick found."""
        if self._calm.get(run, 0) < _CALM_TICKS or not (tick.leased or tick.replay):
            return
        work_ms = await self._next_work_ms(run, tick)
        if self._last.get(run) == LastTick(tick.clock_ms):  # else it has been ticked again
            self._last[run] = LastTick(tick.clock_ms, work_ms)

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these."""
        self._last = {run: last for run, last in self._last.items() if run in runs}
        self._calm = {run: ticks for run, ticks in self._calm.items() if run in runs}

    async def _next_work_ms(self, run: str, tick: Tick) -> int | None:
        view = await self._runs.queue(run)
        if view.clock_ms <= tick.clock_ms:
            return None  # what happens later in the same millisecond would look like nothing
        in_buffer = await self._buffers.work_ahead_ms(run) if tick.replay else []
        return min([_NEVER_MS, *deadlines_ahead(view.leases, view.clock_ms), *in_buffer])
