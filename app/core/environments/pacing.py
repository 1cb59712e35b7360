"""Tell an environment how full the queue is, so that it can pace itself."""

from dataclasses import dataclass

from app.core.environments.record import EnvironmentRecord
from app.core.environments.shares import minimum_of
from app.core.runs.view import QueueView

SMALLEST_WEIGHT = 0.01
PAUSED_UNALLOCATED_FRACTION = -1.0
"""The unallocated fraction while intake is paused. It leaves no part of a batch, even with a minimum of 1."""
PAUSED_SELF_QUEUE_SIZE = 1_000_000_000
"""The size of its own queue while intake is paused: more than the minimum of any environment needs."""


@dataclass(frozen=True, slots=True)
class QueuePace:
    """The answer to an environment's poll. The fields are those of the Atropos contract.

    While intake is paused, two of them leave the environment no part of a batch and no need of groups, so it starts
    none. A large `queue_size` would end it: an environment ends if the step plus the queue, in batches, exceeds its
    last step.

    Attributes:
        current_step: Batches served.
        queue_size: Groups of the caller's size that wait for training: its own, and those of others above their
            promised minimums. An environment pauses when this is enough for a few batches.
        unallocated_fraction: Share of a batch that is not promised to any live environment.
            `PAUSED_UNALLOCATED_FRACTION` while intake is paused.
        self_queue_size: Groups of the caller's size waiting from itself. `PAUSED_SELF_QUEUE_SIZE` while intake is
            paused.
        max_group_size: Sequences in the largest group waiting, ``>= 1``.
        env_weight: Its part of the inference weight of all live environments, ``>= 0.01``.
    """

    current_step: int
    queue_size: int
    unallocated_fraction: float
    self_queue_size: int
    max_group_size: int
    env_weight: float


class Pacing:
    """How full the queue is for each environment.

    Groups too large for any batch do not count, because they are never trained on. It costs as much as there are
    environments and lanes. Then the answer for one environment costs the same however many there are.

    Args:
        view: The run, configured or not.
    """

    def __init__(self, view: QueueView) -> None:
        live = view.live
        fitting = view.fitting_lanes
        self._environments = view.environments
        self._step = view.step
        self._paused = view.intake_closed is not None
        self._bounds = view.bounds
        self._waiting: dict[int | None, int] = {}
        for (environment, size), count in fitting.items():
            self._waiting[environment] = self._waiting.get(environment, 0) + size * count
        self._spare = sum(self._above_minimum(key) for key in self._waiting)
        self._unallocated = 1.0 - min(1.0, sum(minimum_of(share) for share in live.shares.values()))
        self._largest = max((size for _, size in fitting), default=1)
        self._inference = sum(_inference(environment) for environment in live.records.values())

    def of(self, caller: int) -> QueuePace:
        """Return how full the queue is for an environment, and its part of the inference.

        Args:
            caller: The environment that asks. An unknown id gets a valid answer, too.
        """
        own, known = self._waiting.get(caller, 0), self._environments.get(caller)
        others = self._spare - self._above_minimum(caller)
        group_size = max(1, known.group_size) if known else 1
        return QueuePace(
            current_step=self._step,
            queue_size=(own + others) // group_size,
            unallocated_fraction=PAUSED_UNALLOCATED_FRACTION if self._paused else self._unallocated,
            self_queue_size=PAUSED_SELF_QUEUE_SIZE if self._paused else own // group_size,
            max_group_size=self._largest,
            env_weight=self._weight(known),
        )

    def _above_minimum(self, key: int | None) -> int:
        """Return the waiting sequences of an environment above its promised minimum."""
        minimum = 0 if key is None or key not in self._bounds else self._bounds[key].minimum
        return max(0, self._waiting.get(key, 0) - minimum)

    def _weight(self, caller: EnvironmentRecord | None) -> float:
        if caller is None or self._inference <= 0:
            return SMALLEST_WEIGHT if caller is None else 1.0
        return max(SMALLEST_WEIGHT, min(1.0, _inference(caller) / self._inference))


def _inference(environment: EnvironmentRecord) -> float:
    return environment.max_token_length * max(0.0, environment.weight)
