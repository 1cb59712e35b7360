"""Decide which groups a full run takes: those that bring it nearer to a batch.

Otherwise all would wait for each other: the trainer for a group, the group for room, and room comes only with a batch.
If the waiting groups hold no batch, a full run takes a group

- if groups of its environment and size complete a batch together with those that wait, or
- if it is of the environment that `app.core.environments.completion` asks for groups. Environments that run groups are
  asked first, because these groups come without new credits.

Running groups do not count as existing ones: the run may refuse them. Their environments are asked before all others.
So if waiting and running groups hold a batch, the run always takes one of the running groups next.

A waiting group never makes a batch impossible. So the run takes no more in this way than one batch can use. Groups of
a size that their environment has not declared are an exception, which `app.core.runs.capacity` limits.
"""

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from app.core.environments.completion import Needed
from app.core.environments.granting import Demand
from app.core.model import LaneId
from app.core.runs.view import DemandView


class Overflow(NamedTuple):
    """What a full run takes of one lane.

    Attributes:
        groups: The number of groups.
        is_certain: Whether these groups bring a batch nearer. False: the environment must make groups of another size.
    """

    groups: int
    is_certain: bool = True


NOTHING = Overflow(0)


class FullRun:
    """A run whose limits are reached.

    The cost of the first answer is about that of choosing a batch. Further lanes cost less, unless their environment is
    not alive.

    Args:
        run: The run's name.
        view: The run.
    """

    def __init__(self, run: str, view: DemandView) -> None:
        self._run = run
        self._running = frozenset(key for key, groups in view.running.items() if groups > 0)
        self._view = replace(view, running={})
        self._asked: dict[Demand, Needed | None] = {}
        self._known: dict[LaneId, Overflow] = {}

    @cached_property
    def _demand(self) -> Demand:
        return Demand(self._run, self._view)

    @property
    def needs_groups(self) -> bool:
        """Whether groups of live environments complete a batch, and the waiting groups alone do not."""
        return self._demand.completion.needed is not None

    def takes(self, lane: LaneId) -> Overflow:
        """Return how many groups of a lane the run takes."""
        if lane not in self._known:
            self._known[lane] = self._taken(lane)
        return self._known[lane]

    def _taken(self, lane: LaneId) -> Overflow:
        environment, size = lane
        demand = self._demand
        if environment is not None and environment in self._view.environments:
            demand = demand.seen_by(environment)
        if demand.completion.possible and demand.completion.needed is None:
            return NOTHING
        if groups := demand.completing_groups(lane):
            return Overflow(groups)
        needed = self._asked_of(demand)
        if needed is None or needed.environment != environment:
            return NOTHING
        return Overflow(needed.groups) if needed.size == size else Overflow(1, is_certain=False)

    def _asked_of(self, demand: Demand) -> Needed | None:
        if demand not in self._asked:
            self._asked[demand] = demand.completion_by_first(self._running).needed
        return self._asked[demand]
