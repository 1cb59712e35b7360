"""Compute the credits of one environment from a view of its run, by the rules of `app.core.environments.credits`."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

from app.core.batches.diagnosis import limit_of, supplies_of, usable_groups
from app.core.batches.leases import LeaseState
from app.core.batches.subset_sum import attainable
from app.core.environments.completion import Completion, Maker, Needed, completion
from app.core.environments.credits import Claim, Credit, allowed_sequences, credit, horizon_of
from app.core.environments.pacing import live_shares
from app.core.environments.record import EnvironmentRecord
from app.core.environments.scarcity import no_longer_awaited, scarce_now
from app.core.environments.shares import bounds_for
from app.core.errors import RunNotFound
from app.core.model import Bounds, Lane
from app.core.replay.mixing import fresh_needed
from app.core.runs.view import RunView

_MOST_UNCERTAIN = 2
"""Limit for asking an environment for groups of a size that it did not declare: horizons of its sequences that are
queued, leased or running."""
_MOST_SIZES = 8  # in a sentence


@dataclass(frozen=True, slots=True)
class GroupAllowance:
    """The number of groups that an environment may start now, and why not more."""

    groups: int
    credit: Credit
    horizon_batches: int
    policy_version: int


def allowed_groups(run: str, view: RunView, caller: int, ttl_ms: int) -> GroupAllowance:
    """Return how many groups of its size an environment may start now.

    The groups hold at least the sequences that it may start. The last group may hold some more: if it were left out,
    environments that each lack a part of a group would never complete a batch. It can happen that no environment may
    start any group, no trainer holds a batch, and the existing groups complete no batch. Then one environment gets the
    groups that complete one (`app.core.environments.completion`).

    Args:
        run: The run's name.
        view: The run; the caller is one of its environments.
        caller: The environment that asks. It is alive, because it asks.
        ttl_ms: Silence after which an environment no longer counts as alive, milliseconds.

    Raises:
        RunNotFound: Nobody has configured the run.
    """
    if view.config is None:
        raise RunNotFound(f"there is no run {run}")
    seen = _Seen.of(view, view.config.batch_size, ttl_ms, caller)
    environment, usable = view.environments[caller], seen.usable[caller]
    group_size, limit = max(1, environment.group_size), limit_of(caller, view.config.batch_size, seen.limits)
    if seen.horizon == 0 or group_size > limit:
        reason = f"its groups have {group_size} sequences, and it may have at most {limit} of a batch"
        nothing = Credit(0, 0, usable, awaited_version(view) or reason)
        return GroupAllowance(0, nothing, seen.horizon, view.policy_version)
    answer = credit(seen.batch_size, seen.horizon, seen.claims, caller, seen.others)
    groups = -(-answer.sequences // group_size)
    if groups == 0 and seen.nobody_may_start(view) and not seen.holds_a_batch(view):
        needed = seen.completion(view).needed
        if needed is not None:
            groups = needed.groups if needed.environment == caller and seen.may_be_asked(view, needed) else 0
            reason = f"the queued, leased and running groups complete no batch: {_asked(view, needed)}"
            answer = Credit(groups * needed.size, answer.wanted, usable, reason)
    return GroupAllowance(groups, answer, seen.horizon, view.policy_version)


def who_must_act(view: RunView, ttl_ms: int) -> str | None:
    """Return who must act if credits alone never lead to a batch; None if they do.

    Args:
        view: The run; a trainer that asks now gets no batch.
        ttl_ms: Silence after which an environment no longer counts as alive, milliseconds.
    """
    if view.config is None or not view.environments or _in_hands(view):
        return None
    seen = _Seen.of(view, view.config.batch_size, ttl_ms)
    if not seen.alive:
        return "no environment is alive: start one"
    found = seen.completion(view)
    if not found.possible:
        sizes = sorted({env.group_size for env in seen.alive.values()})
        said = f"live environments make groups of {', '.join(map(str, sizes[:_MOST_SIZES]))}, which complete no batch"
        return f"{said}: start another environment, or change a group size, a max_share or the batch size"
    if seen.horizon == 0:
        return awaited_version(view)
    asked = found.needed if seen.nobody_may_start(view) else None
    return None if asked is None else _asked(view, asked)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The values that credits are computed from.

    Attributes:
        alive: The environments that are alive, including the caller.
        batch_size: Sequences of a batch that environments must make.
        horizon: Batches to look ahead.
        limits: Minimum and maximum of each environment in a whole batch.
        usable: Queued, leased and running sequences that can still enter a batch, by environment.
        claims: The claims that credits are split by.
        others: Queued, leased and running sequences without a live environment.
    """

    alive: Mapping[int, EnvironmentRecord]
    batch_size: int
    horizon: int
    limits: Mapping[int, Bounds]
    usable: Counter[int | None]
    claims: Mapping[int, Claim]
    others: int

    @classmethod
    def of(cls, view: RunView, whole: int, ttl_ms: int, caller: int | None = None) -> "_Seen":
        shares = live_shares(view, ttl_ms)
        gone = no_longer_awaited(view, scarce_now(view, ttl_ms)) - {caller}
        alive = {key: env for key, env in view.environments.items() if key in shares.keys() - gone or key == caller}
        shares |= {key: replace(shares[key], min_share=None) for key in gone}  # others make its part
        limits = bounds_for(whole, shares)
        usable = _usable(view, alive, whole, limits)
        batch_size = whole if view.unfilled else fresh_needed(whole, view.policy.fresh_fraction)  # the rest is replayed
        bounds = limits if batch_size == whole else bounds_for(batch_size, shares)
        claims = {}
        for key, env in alive.items():
            own = bounds.get(key, Bounds())
            if env.group_size <= limit_of(key, whole, limits):
                claims[key] = Claim(max(0.0, env.weight), own, usable[key])
            else:  # its groups fit no batch: others get its part
                claims[key] = Claim(0.0, Bounds(0, own.maximum), usable[key])
        others = sum(sequences for key, sequences in usable.items() if key not in alive)
        horizon = horizon_of(view.policy.max_staleness, view.trained, view.clock_ms)
        return cls(alive, batch_size, horizon, limits, usable, claims, others)

    def nobody_may_start(self, view: RunView) -> bool:
        """Whether no batch is leased, no group can be replayed, and no environment has credits."""
        if _in_hands(view) or view.config is None or self.batch_size != view.config.batch_size:
            return False
        allowed = allowed_sequences(self.batch_size, self.horizon, self.claims, self.others)
        return max(allowed.values(), default=0) <= 0

    def holds_a_batch(self, view: RunView) -> bool:
        """Whether the existing groups complete a batch within all bounds, as if no trainer took any."""
        groups = usable_groups(self.batch_size, _lanes(view, self.alive), self.limits)
        return attainable(self.batch_size, supplies_of(self.batch_size, groups, self.limits))

    def completion(self, view: RunView) -> Completion:
        """Decide which environment completes a batch. It costs about as much as choosing a batch."""
        return completion(self.batch_size, _lanes(view, self.alive), self.limits, _makers(view, self.alive))

    def may_be_asked(self, view: RunView, needed: Needed) -> bool:
        """Whether to ask an environment for groups. A size that it did not declare is asked for once at a time."""
        if needed.size == view.environments[needed.environment].group_size:
            return True
        most = _MOST_UNCERTAIN * self.horizon * self.batch_size
        return not view.running.get(needed.environment) and self.usable[needed.environment] < most


def awaited_version(view: RunView) -> str | None:
    """Return a sentence if credits wait for the version of acknowledged batches; None if they do not."""
    if horizon_of(view.policy.max_staleness, view.trained, view.clock_ms) > 0:
        return None
    count = view.trained.batches
    batches = "a batch" if count == 1 else f"{count} batches"
    said = f"the trainer acknowledged {batches} and has set no policy version since {view.policy_version}"
    return f"{said}: credits wait for PUT …/policy-version"


def _asked(view: RunView, needed: Needed) -> str:
    groups = "a group" if needed.groups == 1 else f"{needed.groups} groups"
    name = view.environments[needed.environment].name
    return f"environment {needed.environment} ({name}) must make {groups} of {needed.size}"


def _in_hands(view: RunView) -> bool:
    """Whether a trainer holds a batch, or a batch waits to be handed out again."""
    return any(lease.state is not LeaseState.QUARANTINED for lease in view.leases)


def _usable(
    view: RunView, alive: Mapping[int, EnvironmentRecord], batch_size: int, limits: Mapping[int, Bounds]
) -> Counter[int | None]:
    """Count the queued, leased and running sequences that can still enter a batch, by environment."""
    usable: Counter[int | None] = Counter()
    for lane in _lanes(view, alive):
        if lane.size <= limit_of(lane.environment, batch_size, limits):
            usable[lane.environment] += lane.size * lane.queued
    for lease in view.leases:
        if lease.state is not LeaseState.QUARANTINED:
            for environment, _, sequences in lease.contents:
                usable[environment] += sequences
            for environment, _, sequences in lease.replayed:
                usable[environment] -= sequences
    return usable


def _lanes(view: RunView, alive: Mapping[int, EnvironmentRecord]) -> list[Lane]:
    """Return waiting and running groups, as lanes without heads."""
    waiting = [Lane(*lane, groups, ()) for lane, groups in chain(view.lanes.items(), view.buffers.items())]
    made = ((alive[key], groups) for key, groups in view.running.items() if key in alive and groups > 0)
    return waiting + [Lane(env.environment, env.group_size, groups, ()) for env, groups in made]


def _makers(view: RunView, alive: Mapping[int, EnvironmentRecord]) -> list[Maker]:
    """Return the environments that can make groups, the largest weight first."""
    seen: defaultdict[int | None, set[int]] = defaultdict(set)
    for environment, size in chain(view.lanes, view.buffers):
        seen[environment].add(size)
    order = sorted(alive.values(), key=lambda env: (-env.weight, env.environment))
    return [Maker(env.environment, env.group_size, sorted(seen[env.environment])) for env in order]
