"""Share what is common to the credits and the pace of all environments of a run.

Heartbeats come thousands of times a second. What they have in common takes time in proportion to the number of
environments. So it is read and computed seldom, and requests share it. Each request adds what it knows of its own
environment.
"""

import asyncio
from collections.abc import Mapping
from functools import cached_property
from weakref import WeakValueDictionary

from app.core.environments.granting import Demand
from app.core.environments.pacing import Pacing
from app.core.environments.reused_readings import CPU_FRACTION, reading_cost_s, reuse_for_s
from app.core.runs.view import DemandView
from app.store.runs.store import RunStore

_MOST_SPENT_S = 1.0  # CPU time that readings of small runs may take at once, beyond their share of a core
_SHORTEST_AGE_S = 0.1
_PAUSE_S = 0.025


class Reading:
    """A run as it was read, with what all its environments have in common.

    Attributes:
        view: The run.
        started: Groups that the members of each environment had started before, ended ones included.
        began_s: When the read began, on the clock of the event loop.
    """

    def __init__(self, run: str, view: DemandView, started: Mapping[int, int], began_s: float) -> None:
        self._run = run
        self.view = view
        self.started = started
        self.began_s = began_s
        self.used = True

    @property
    def cost_s(self) -> float:
        """About the CPU time that it cost."""
        return reading_cost_s(len(self.view.environments), len(self.view.lanes))

    @property
    def reuse_for_s(self) -> float:
        """How long requests share it; 0 in a run of few environments."""
        return reuse_for_s(len(self.view.environments), len(self.view.lanes))

    @cached_property
    def demand(self) -> Demand:
        """What the run wants of its environments.

        Raises:
            RunNotFound: The run has no settings.
        """
        return Demand(self._run, self.view)

    @cached_property
    def who_must_act(self) -> str | None:
        """The sentence that says who must act (`Demand.who_must_act`), or None."""
        return self.demand.who_must_act()

    @cached_property
    def pacing(self) -> Pacing:
        """How full the queue is."""
        return Pacing(self.view)


class SharedDemand:
    """The last reading of each run.

    Requests share a reading for 100 ms, or for 20 times its computing time if that is longer. In a run of few
    environments each request gets a new one, as long as requests are few.

    Args:
        runs: Reads runs.

    Attributes:
        most_spent_s: CPU time that cheap readings may take at once; requests share readings from there on.
        shortest_age_s: How old a shared reading may be at least.
    """

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs
        self._readings: dict[str, Reading] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by run, while somebody reads it
        self.most_spent_s = _MOST_SPENT_S
        self.shortest_age_s = _SHORTEST_AGE_S
        self._spent_s = 0.0
        self._spent_at_s = 0.0

    async def of(self, run: str, environment: int | None, came_s: float) -> Reading:
        """Return a reading of a run that has the environment: a new one, or under load the last one.

        Args:
            run: The run's name.
            environment: The environment that asks, if the run has it. One that has just joined waits for a new reading.
            came_s: When the request came, on the clock of the event loop. A later reading is new for it.

        Raises:
            UnreadableRecord: A record of the run cannot be read.
        """
        reading = self._fitting(run, environment, came_s)
        if reading is None:
            lock = self._locks.setdefault(run, asyncio.Lock())
            async with lock:
                while (reading := self._fitting(run, environment, came_s)) is None:
                    if self._may_read(run):
                        return await self._read(run)
                    await asyncio.sleep(_PAUSE_S)
        reading.used = True
        return reading

    async def who_must_act(self, run: str) -> str | None:
        """Return who must act so that the run gets a batch (`Demand.who_must_act`), or None.

        Raises:
            RunNotFound: The run has no settings.
            UnreadableRecord: A record of the run cannot be read.
        """
        reading = await self.of(run, None, asyncio.get_running_loop().time())
        return await asyncio.to_thread(lambda: reading.who_must_act)

    def forget_unused(self) -> None:
        """Forget the readings without a request since the last call."""
        self._readings = {run: reading for run, reading in self._readings.items() if reading.used}
        for reading in self._readings.values():
            reading.used = False

    def _fitting(self, run: str, environment: int | None, came_s: float) -> Reading | None:
        """Return the last reading if it will do."""
        last = self._readings.get(run)
        if last is None or (environment is not None and environment not in last.view.environments):
            return None
        return last if last.began_s >= came_s or not self._may_read(run) else None

    def _may_read(self, run: str) -> bool:
        last, now_s = self._readings.get(run), asyncio.get_running_loop().time()
        self._spent_s = max(0.0, self._spent_s - CPU_FRACTION * (now_s - self._spent_at_s))
        self._spent_at_s = now_s
        if last is None or (self._spent_s < self.most_spent_s and not last.reuse_for_s):
            return True
        return now_s - last.began_s >= max(self.shortest_age_s, last.reuse_for_s)

    async def _read(self, run: str) -> Reading:
        began_s = asyncio.get_running_loop().time()
        view, started = await self._runs.demand(run)
        reading = self._readings[run] = Reading(run, view, started, began_s)
        if not reading.reuse_for_s:
            self._spent_s += reading.cost_s
        return reading
