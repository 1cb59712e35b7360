"""Credits from a view of a run: what `app.core.credits` decides, asked about one environment."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from app.core.allocation import bounds_for
from app.core.credits import Claim, Credit, credit, horizon_of
from app.core.errors import RunNotFound
from app.core.model import Bounds, Environment, RunView
from app.core.pacing import live_shares


@dataclass(frozen=True, slots=True)
class Grant:
    """How many groups an environment may start now, and why not more."""

    groups: int
    credit: Credit
    horizon_batches: int
    policy_version: int


def granted(run: str, view: RunView, caller: int, ttl_ms: int) -> Grant:
    """Return how many groups of its size an environment may start now.

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
    batch_size, horizon = view.config.batch_size, horizon_of(view.policy.max_staleness)
    leased = _leased(view)
    alive = {key: env for key, env in view.environments.items() if key == caller or env.alive(view.clock_ms, ttl_ms)}
    bounds = bounds_for(batch_size, live_shares(view, ttl_ms))
    claims = {
        key: Claim(max(0.0, env.weight), bounds.get(key, Bounds()), _in_hand(view, env, leased))
        for key, env in alive.items()
    }
    waiting = sum(size * count for lanes in (view.lanes, view.buffers) for (_, size), count in lanes.items())
    own = sum(_in_hand(view, env, leased) - _running(view, env) for env in alive.values())
    others = waiting + sum(leased.values()) - own
    answer = credit(batch_size, horizon, claims, caller, max(0, others))
    group_size = max(1, view.environments[caller].group_size)
    return Grant(answer.sequences // group_size, answer, horizon, view.policy_version)


def _leased(view: RunView) -> Counter[int | None]:
    """Count the sequences with trainers, by environment."""
    leased: Counter[int | None] = Counter()
    for lease in view.leases:
        for environment, _, sequences in lease.contents:
            leased[environment] += sequences
    return leased


def _running(view: RunView, environment: Environment) -> int:
    return view.running.get(environment.environment, 0) * environment.group_size


def _in_hand(view: RunView, environment: Environment, leased: Mapping[int | None, int]) -> int:
    key = environment.environment
    waiting = sum(
        size * count for lanes in (view.lanes, view.buffers) for (owner, size), count in lanes.items() if owner == key
    )
    return waiting + leased.get(key, 0) + _running(view, environment)
