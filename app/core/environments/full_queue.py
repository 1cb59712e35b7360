"""Decide which groups a full queue takes: those that a batch may still need.

Otherwise all would wait for each other: the trainer for a group, the group for room, and room comes only with a batch.

- If the waiting groups hold a batch that keeps all minimums, a full queue takes no group.
- If they hold a batch without the minimums only, it takes groups of environments that have less than their minimum.
  Once all have it, only sizes make the minimums impossible, and `app.core.batches.planning` relaxes them.
- If they hold no batch, it takes as many groups of each environment and size as one batch can use. More never help.
  But a worker that is refused makes no other group, and the next one may have another size. So it takes at least
  `LEAST` of each.

If each environment makes groups of one size, its limit never costs a run a batch.
"""

from app.core.environments.shares import limit_of, supplies_of, usable_groups
from app.core.model import LaneId, lanes_of
from app.core.numeric.subset_sum import Supply, attainable, without_minimums
from app.core.replay.mixing import needed_from_queue
from app.core.runs.view import QueueView

LEAST = 16
"""Groups of an environment and size that a run without a batch takes in any case."""


class FullQueue:
    """A run whose limits are reached. The cost is about that of choosing a batch.

    Args:
        view: The run; ``view.config`` must be set.
    """

    def __init__(self, view: QueueView) -> None:
        self._batch_size = view.batch_size
        self._lanes = view.lanes
        self._bounds = view.live.binding(self._batch_size)
        self._wanted = _wanted(view, self._batch_size)

    @property
    def needs_groups(self) -> bool:
        """Whether there are groups that the run takes."""
        return self._wanted is None or bool(self._wanted)

    def takes(self, lane: LaneId) -> bool:
        """Return whether the run takes another group of a lane."""
        environment, size = lane
        if self._wanted is not None:
            return environment in self._wanted
        useful = limit_of(environment, self._batch_size, self._bounds) // size
        return useful > 0 and self._lanes.get(lane, 0) < max(LEAST, useful)


def _wanted(view: QueueView, batch_size: int) -> frozenset[int | None] | None:
    """Return the environments that a batch lacks groups of; None for all."""
    fresh_part = needed_from_queue(batch_size, view.policy.fresh_fraction, unfilled=view.unfilled)
    supplies = _supplies(view, batch_size)
    if attainable(batch_size, supplies):
        return frozenset()
    if fresh_part < batch_size and attainable(fresh_part, _supplies(view, fresh_part)):
        return frozenset()
    if attainable(batch_size, without_minimums(supplies)):
        return frozenset(supply.environment for supply in supplies if supply.available < supply.minimum)
    return None


def _supplies(view: QueueView, batch_size: int) -> list[Supply]:
    bounds = view.live.binding(batch_size)
    return supplies_of(batch_size, usable_groups(batch_size, lanes_of(view.lanes), bounds), bounds)
