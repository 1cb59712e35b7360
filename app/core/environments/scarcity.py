"""Decide how long batches wait for environments that send too little.

A batch waits for an environment that has sent less than its part while another one has sent its part. The part is its
minimum or, without a minimum, its credits for one batch (`app.core.environments.credits`). `relax_scarce_after_s` of
the run counts from the first request of a trainer that gets no batch during this time. After that, the minimum of the
environment is what it has queued, until it has sent its part again. Credits for its part go to others. What a batch
lacks counts as owed. But a batch that keeps all minimums takes no more groups of the environment to repay it. The
minimums of others bind as before. Without the setting, batches wait forever.
"""

import math
from collections.abc import Mapping, Sequence

from app.core.environments.shares import is_oversized
from app.core.model import Bounds, Lane, lanes_of, sequences_by_environment
from app.core.runs.view import DemandView, QueueView

ALERT_AFTER_MS = 60_000
"""How long batches wait for an environment before there is an alert, milliseconds of run clock."""

ALERT_AFTER_RUNNING_MS = 600_000
"""How long batches wait before there is an alert, for an environment that reports running groups."""


def scarce_since(view: QueueView, lanes: Sequence[Lane]) -> dict[int, int]:
    """Return since when batches wait for environments, by id, in milliseconds of run clock.

    Call it if there is no batch now.

    Args:
        view: The run; ``view.config`` must be set.
        lanes: The queue; only counts are read.
    """
    batch_size, bounds, awaited = view.batch_size, view.bounds, view.live.awaited_sequences(view.batch_size)
    queued = sequences_by_environment(lane for lane in lanes if not is_oversized(lane.id, batch_size, bounds))
    sent = {key for key in queued if key is not None and queued[key] >= awaited.get(key, math.inf)}
    if not sent:  # no batch begins to wait now
        return {key: since_ms for key, since_ms in view.scarce.items() if key in awaited}
    return {key: view.scarce.get(key, view.clock_ms) for key in awaited if key not in sent}


def scarce_after(
    scarce: Mapping[int, int], bounds: Mapping[int, Bounds], got: Mapping[int | None, int]
) -> dict[int, int]:
    """Return the awaited environments that this batch lacks. The next batch does not begin a new wait for them.

    Args:
        scarce: Since when batches wait for environments.
        bounds: What each environment must and may have.
        got: Sequences that each environment has in the batch.
    """
    return {key: ms for key, ms in scarce.items() if key in bounds and got.get(key, 0) < max(1, bounds[key].minimum)}


def scarce_now(view: QueueView) -> dict[int, int]:
    """Return since when batches wait for live environments that have still not sent their part."""
    if view.config is None or not view.scarce:
        return {}
    scarce = scarce_since(view, lanes_of(view.lanes))
    return {key: since_ms for key, since_ms in scarce.items() if key in view.scarce}


def relaxed_in_ms(view: QueueView, since_ms: int) -> int | None:
    """Return how long batches still wait for an environment; 0: no longer, None: forever."""
    patience_s = view.policy.relax_scarce_after_s
    return None if patience_s is None else max(0, since_ms + round(1000 * patience_s) - view.clock_ms)


def no_longer_awaited(view: QueueView, scarce: Mapping[int, int]) -> set[int]:
    """Return the environments that batches no longer wait for."""
    return {key for key, since_ms in scarce.items() if relaxed_in_ms(view, since_ms) == 0}


def alarming(view: DemandView) -> dict[int, int]:
    """Return the part of `scarce_now` that causes an alert: after a minute, or once batches no longer wait.

    Batches can form without an environment that has no minimum; it causes an alert only while none forms.
    """
    return {
        key: since_ms
        for key, since_ms in scarce_now(view).items()
        if view.environments[key].min_share or (view.last_batch_ms or 0) < since_ms
        if view.clock_ms - since_ms >= (ALERT_AFTER_RUNNING_MS if view.running.get(key) else ALERT_AFTER_MS)
        or relaxed_in_ms(view, since_ms) == 0
    }


def lowered(bounds: Mapping[int, Bounds], minimums: Mapping[int, int]) -> dict[int, Bounds]:
    """Return bounds with other minimums for some environments."""
    return {key: Bounds(minimums.get(key, bound.minimum), bound.maximum) for key, bound in bounds.items()}
