"""Tell an environment how full the queue is, so that it can pace itself."""

from dataclasses import dataclass

from app.core.environments.record import EnvironmentRecord
from app.core.environments.shares import ShareLimits, bounds_for
from app.core.runs.view import RunView

SMALLEST_WEIGHT = 0.01


@dataclass(frozen=True, slots=True)
class Pace:
    """The answer to an environment's poll. The fields are those of the Atropos contract.

    Attributes:
        current_step: Batches served.
        queue_size: Groups of the caller's size that wait for training: its own, and those of others above their
            promised minimums. An environment pauses when this is enough for a few batches.
        unallocated_fraction: Share of a batch that is not promised to any live environment.
        self_queue_size: Groups of the caller's size waiting from itself.
        max_group_size: Sequences in the largest group waiting, ``>= 1``.
        env_weight: Its part of the inference weight of all live environments, ``>= 0.01``.
    """

    current_step: int
    queue_size: int
    unallocated_fraction: float
    self_queue_size: int
    max_group_size: int
    env_weight: float


def live_shares(view: RunView, ttl_ms: int) -> dict[int, ShareLimits]:
    """Return the shares of the environments that are alive. Only these bind."""
    return {
        key: ShareLimits(environment.min_share, environment.max_share)
        for key, environment in view.environments.items()
        if environment.alive(view.clock_ms, ttl_ms)
    }


def pace(view: RunView, caller: int, ttl_ms: int) -> Pace:
    """Return how full the queue is for an environment, and its part of the inference.

    Groups too large for any batch do not count, because they are never trained on.

    Args:
        view: The run, configured or not.
        caller: The environment that asks. An unknown id gets a valid answer, too.
        ttl_ms: Silence after which an environment no longer counts as alive, milliseconds.
    """
    batch_size = view.config.batch_size if view.config else 0
    fitting = {lane: count for lane, count in view.lanes.items() if not batch_size or lane[1] <= batch_size}
    shares = live_shares(view, ttl_ms)
    minimums = bounds_for(batch_size, shares) if batch_size else {}
    waiting: dict[int | None, int] = {}
    for (environment, size), count in fitting.items():
        waiting[environment] = waiting.get(environment, 0) + size * count
    own = waiting.pop(caller, 0)
    others = sum(
        max(0, sequences - (minimums[key].minimum if key is not None and key in minimums else 0))
        for key, sequences in waiting.items()
    )
    known = view.environments.get(caller)
    group_size = max(1, known.group_size) if known else 1
    return Pace(
        current_step=view.step,
        queue_size=(own + others) // group_size,
        unallocated_fraction=1.0 - min(1.0, sum(share.min_share or 0.0 for share in shares.values())),
        self_queue_size=own // group_size,
        max_group_size=max((size for _, size in fitting), default=1),
        env_weight=_weight(view, known, ttl_ms),
    )


def _weight(view: RunView, caller: EnvironmentRecord | None, ttl_ms: int) -> float:
    def inference(environment: EnvironmentRecord) -> float:
        return environment.max_token_length * max(0.0, environment.weight)

    total = sum(inference(env) for env in view.environments.values() if env.alive(view.clock_ms, ttl_ms))
    if caller is None or total <= 0:
        return SMALLEST_WEIGHT if caller is None else 1.0
    return max(SMALLEST_WEIGHT, min(1.0, inference(caller) / total))
