"""Credits from a view of a run: what `app.core.credits` decides, asked about one environment."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain

from app.core.allocation import bounds_for
from app.core.credits import Claim, Credit, credit, horizon_of
from app.core.errors import RunNotFound
from app.core.mixing import fresh_needed
from app.core.model import Bounds, RunView
from app.core.pacing import live_shares


@dataclass(frozen=True, slots=True)
class Grant:
    """How many groups an environment may start now, and why not more."""

    groups: int
    credit: Credit
    horizon_batches: int
    policy_version: int


def granted(run: str, view: RunView, caller: int, ttl_ms: int) -> Grant:
    """Return how many groups of its size an environment may start now: as many as hold the sequences that it may start.

    The last of them may hold some more. If it were left out, environments that each lack a part of a group would never
    complete a batch.

    Args:
        run: The run's name.
        view: The run; the caller is one of its environments.
        caller: The environment that asks: it is alive, for it just did.
        ttl_ms: Silence after which an environment no longer binds, milliseconds.

    Raises:
        RunNotFound: Nobody has configured the run.
    """
    if view.config is None:
        raise RunNotFound(f"there is no run {run}")
    batch_size = view.config.batch_size
    if not view.unfilled:
        batch_size = fresh_needed(batch_size, view.policy.fresh_fraction)  # the rest may be replayed
    horizon = horizon_of(view.policy.max_staleness)
    alive = {key: env for key, env in view.environments.items() if key == caller or env.alive(view.clock_ms, ttl_ms)}
    bounds = bounds_for(batch_size, live_shares(view, ttl_ms))
    arrived = _arrived(view)
    claims = {
        key: Claim(
            weight=max(0.0, env.weight),
            bounds=bounds.get(key, Bounds()),
            in_hand=arrived[key] + view.running.get(key, 0) * env.group_size,
        )
        for key, env in alive.items()
    }
    others = sum(sequences for key, sequences in arrived.items() if key not in alive)
    answer = credit(batch_size, horizon, claims, caller, others)
    group_size = max(1, view.environments[caller].group_size)
    return Grant(-(-answer.sequences // group_size), answer, horizon, view.policy_version)


def _arrived(view: RunView) -> Counter[int | None]:
    """Count the sequences that wait or are with trainers, by environment."""
    arrived: Counter[int | None] = Counter()
    for (environment, size), groups in chain(view.lanes.items(), view.buffers.items()):
        arrived[environment] += size * groups
    for lease in view.leases:
        for environment, _, sequences in lease.contents:
            arrived[environment] += sequences
        for environment, _, sequences in lease.replayed:
            arrived[environment] -= sequences
    return arrived
