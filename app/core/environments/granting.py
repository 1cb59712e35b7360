"""Turn the sequences that environments may start (`app.core.environments.credits`) into credits: whole groups."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from app.core.batches.leases import Lease, seconds_left
from app.core.environments.completion import Completion, Maker, Needed, completion
from app.core.environments.credits import Claim, Credit, RunCredits
from app.core.environments.horizon import horizon_of
from app.core.environments.live import LiveEnvironments, declared_sizes, known_sizes
from app.core.environments.record import EnvironmentRecord
from app.core.environments.scarcity import no_longer_awaited, scarce_now
from app.core.environments.shares import is_oversized, limit_of, minimums_conflict
from app.core.model import NO_BOUNDS, Bounds, Lane, lanes_of, sequences_by_environment
from app.core.replay.mixing import fresh_needed
from app.core.runs.view import DemandView
from app.core.wording import listed
from lachesis.wire.errors import RunNotFound

_MOST_UNCERTAIN = 2
"""Limit of an environment's queued, leased and running sequences, in horizons. Above it, the run asks the environment
only for groups of its declared size."""

TRIAL_PAUSE_MS = 1_000
"""How long an environment whose last group fits no batch waits before it may start the next one, milliseconds."""

NO_ENVIRONMENT = "no environment has joined"
"""How the sentence begins that asks for a first environment. The operators' page looks for it (`lib/health.js`)."""

NONE_ALIVE = "no environment is alive: start one"
"""Asks for an environment when all are silent or have left. The operators' page looks for it, too."""


@dataclass(frozen=True, slots=True)
class GroupAllowance:
    """The number of groups that an environment may start now, and what limits it."""

    groups: int
    credit: Credit
    horizon_batches: int
    policy_version: int


class Demand:
    """The sequences that a run wants from its environments now: the part of credits that all environments share.

    The cost is linear in the number of environments and lanes. After that, the answer for one environment has a
    constant cost, unless it is not alive or batches no longer wait for it.

    Args:
        run: The run's name.
        view: The run.
        caller: The environment that asks. It counts as alive, and batches wait for it.

    Raises:
        RunNotFound: The run has no settings yet.
    """

    def __init__(self, run: str, view: DemandView, caller: int | None = None) -> None:
        if view.config is None:
            raise RunNotFound.named(run)
        self._run = run
        self._callers: dict[int, Demand] = {}
        self.view = view
        batch_size = self._batch_size = view.batch_size
        live = view.live
        gone = no_longer_awaited(view, scarce_now(view)) - {caller}
        self._alive = {key: env for key, env in live.records.items() if key not in gone}
        if caller is not None and caller not in self._alive:
            self._alive[caller] = view.environments[caller]
        if gone:  # other environments make their part
            without = {key: replace(live.records[key], min_share=None) for key in gone}
            live = LiveEnvironments({**live.records, **without})
        self._limits = live.bounds(batch_size)
        self._horizon = horizon_of(view.policy.max_staleness, view.trained, view.clock_ms)
        self._live_leases = [lease for lease in view.leases if lease.state != "quarantined"]
        self._unfit = _unfit_sizes(view, self._alive, batch_size, self._limits)
        self._queued_or_running = sequences_by_environment(
            lane for lane in self._lanes if not is_oversized(lane.id, batch_size, self._limits)
        )
        fresh = fresh_needed(batch_size, view.policy.fresh_fraction)
        self._compute_credits(fresh, live)
        if view.unfilled and fresh < batch_size and not self._waits_for_minimum(live.bounds(fresh)):
            self._compute_credits(batch_size, live)
        self._is_whole = self._needed_from_queue == batch_size  # the rest is replayed

    def _compute_credits(self, needed: int, live: LiveEnvironments) -> None:
        """Compute the credits for batches that need this many sequences from the queue each."""
        bounds = live.bounds(needed)
        self._needed_from_queue = needed
        self._leased = Counter[int | None]()
        for lease in self._live_leases:
            for environment, sequences in _counted(lease, needed).items():
                self._leased[environment] += sequences
        self._usable = self._leased + self._queued_or_running
        claims = {key: self._claim(key, env, bounds, self._batch_size) for key, env in self._alive.items()}
        others = sum(sequences for key, sequences in self._usable.items() if key not in self._alive)
        self._credits = RunCredits(needed, self._horizon, claims, others, len(self._live_leases))

    def _waits_for_minimum(self, bounds: Mapping[int, Bounds]) -> bool:
        """Return whether an environment lacks its minimum of the fresh part, and runs groups or may start some.

        Until these groups arrive, no batch can form, so other environments need not make more. But a relaxed batch has
        fresh groups only. So this is False where batches relax: for environments that send too little, or because group
        sizes make the minimums impossible together.

        Args:
            bounds: What each environment must and may have of the fresh part.
        """
        view = self.view
        if view.policy.relax_scarce_after_s is not None or view.conflict_since_ms is not None:
            return False
        waiting = lanes_of(view.lanes)
        queued = sequences_by_environment(waiting)
        lacking = [key for key, own in bounds.items() if key in self._alive and queued[key] < own.minimum]
        if not any(view.running.get(key, 0) > 0 or self._credits.of(key, 0).sequences > 0 for key in lacking):
            return False
        sizes = known_sizes(waiting, declared_sizes(view.environments))
        return not minimums_conflict(self._batch_size, sizes, view.live.binding(self._batch_size))

    def _claim(self, key: int, env: EnvironmentRecord, bounds: Mapping[int, Bounds], batch_size: int) -> Claim:
        own = bounds.get(key, NO_BOUNDS)
        if key in self._unfit or is_oversized((key, env.group_size), batch_size, self._limits):
            return Claim(0.0, Bounds(0, own.maximum), self._usable[key])  # its groups fit no batch: others get its part
        return Claim(env.weight, own, self._usable[key], self._leased[key])

    def of(self, caller: int, running: int | None = None, *, is_new: bool = True) -> GroupAllowance:
        """Return how many groups of its size an environment may start now.

        The groups hold at least the sequences that the environment may start. The last group may hold more sequences,
        because otherwise several environments that each lack a part of a group could not complete a batch. Sometimes no
        environment may start a group, trainers hold fewer batches than the horizon, and the other groups complete no
        batch. Then one environment gets the groups that complete a batch (`app.core.environments.completion`).

        If the last group of an environment fits no batch, it may start one group at a time, until one fits.

        Args:
            caller: The environment that asks. It counts as alive.
            running: Number of groups that its members run. None means the number in the view.
            is_new: Whether the view is as new as ``running``. The search for groups that complete a batch is expensive.
                So with an older view that has another number, the answer omits these groups. A later call with a newer
                view returns them.
        """
        if caller not in self._alive:
            return self.seen_by(caller).of(caller, running, is_new=is_new)
        known = max(0, self.view.running.get(caller, 0))
        now = known if running is None else max(0, running)
        if caller in self._unfit and self._refusal(caller) is None:
            return self._trial(caller, now)
        credit = self._credit(caller, now - known)
        groups = -(-credit.sequences // max(1, self._alive[caller].group_size))
        if groups or not self._may_complete(caller, now - known):
            return self._allowance(groups, credit)
        if now == known:
            return self._completing(caller, credit)
        if is_new:
            changed = replace(self.view, running={**self.view.running, caller: now})
            return Demand(self._run, changed, caller).of(caller)
        return self._allowance(0, credit)

    def _trial(self, caller: int, running: int) -> GroupAllowance:
        """Return whether an environment whose last group fits no batch may start one: the next group may fit."""
        limit = limit_of(caller, self._batch_size, self._limits)
        reason = (
            f"its last group has {self._unfit[caller]} sequences, and it may have at most {limit} of a batch: until a "
            f"group fits, it may start one at a time, at most one every {TRIAL_PAUSE_MS / 1000:g} s"
        )
        is_due = self.view.clock_ms - self.view.sent[caller].last_ms >= TRIAL_PAUSE_MS
        groups = 1 if is_due and not running else 0
        wanted = groups * self._alive[caller].group_size
        return self._allowance(groups, Credit(wanted, wanted, self._usable[caller], reason))

    def _allowance(self, groups: int, credit: Credit) -> GroupAllowance:
        return GroupAllowance(groups, credit, self._horizon, self.view.policy_version)

    def _credit(self, caller: int, more_groups: int) -> Credit:
        """Return what an environment may start if its members run so many groups more than in the view."""
        more = self._usable_sequences(caller, more_groups)
        refusal = self._refusal(caller)
        if refusal is None:
            return self._credits.of(caller, more)
        return Credit(0, 0, self._usable[caller] + more, refusal)

    def _refusal(self, caller: int) -> str | None:
        """Return why an environment may start nothing, whatever is queued. None if credits decide."""
        if self.view.intake_closed is not None:
            return self.view.intake_closed
        if self._horizon == 0:
            return awaited_version(self.view)
        group_size, limit = max(1, self._alive[caller].group_size), limit_of(caller, self._batch_size, self._limits)
        if group_size <= limit:
            return None
        return f"its groups have {group_size} sequences, and it may have at most {limit} of a batch"

    def _usable_sequences(self, caller: int, groups: int) -> int:
        """Return how many sequences of groups of an environment can enter a batch."""
        group_size = self._unfit.get(caller, self._alive[caller].group_size)
        return 0 if is_oversized((caller, group_size), self._batch_size, self._limits) else groups * group_size

    def _may_complete(self, caller: int, more_groups: int) -> bool:
        """Return whether no environment has credits to start a group. Then one may have to complete a batch."""
        if self.view.intake_closed is not None:
            return False
        return self._nobody_may_start(caller, self._usable_sequences(caller, more_groups))

    def _completing(self, caller: int, credit: Credit) -> GroupAllowance:
        """Return the groups that complete a batch if an environment has to make them, and none for the others."""
        needed = self._needed
        if needed is None:
            return self._allowance(0, credit)
        groups = needed.groups if needed.environment == caller and self._may_be_asked(needed) else 0
        reason = f"the queued and running groups complete no batch: {self.asked(needed)}"
        return self._allowance(groups, replace(credit, sequences=groups * needed.size, reason=reason))

    def seen_by(self, caller: int) -> "Demand":
        """Return the demand as an environment sees it: it counts as alive, and batches wait for it."""
        if caller in self._alive:
            return self
        if caller not in self._callers:
            self._callers[caller] = Demand(self._run, self.view, caller)
        return self._callers[caller]

    def who_must_act(self) -> str | None:
        """Return who must act if credits alone lead to no batch. None means that more groups may start, or may come.

        Call this method if a trainer that asks now gets no batch.
        """
        if self.view.intake_closed is not None:
            return self.view.intake_closed
        if self._live_leases:
            return self._who_holds_batches()
        if not self.view.environments:  # groups may come without one
            return None if self.view.totals.accepted_groups else f"{NO_ENVIRONMENT}: start one"
        if not self._alive:
            return self._nobody_is_awaited()
        if not self._can_complete:
            sizes = sorted({env.group_size for env in self._alive.values()})
            said = f"live environments make groups of {listed(sizes)}, which complete no batch"
            return f"{said}: start another environment, or change a group size, a max_share or the batch size"
        if self._horizon == 0:
            return awaited_version(self.view)
        if not self._nobody_may_start():
            return None
        needed = self._needed
        return self._who_is_awaited() if needed is None else self.asked(needed)

    def _who_holds_batches(self) -> str | None:
        """Return that trainers must acknowledge. None if groups may start or arrive before they do."""
        if not self._alive:
            return None
        left_s = [left for lease in self.view.leases if (left := seconds_left(lease, self.view.clock_ms)) is not None]
        if not left_s or self._replay_may_help or any(self.view.running.values()) or not self._credits.is_exhausted():
            return None
        if self._has_room and self._needed is not None:
            return self.asked(self._needed)
        held = "1 batch is leased," if len(left_s) == 1 else f"{len(left_s)} batches are leased, the first"
        return f"no group may start until a trainer acknowledges: {held} for {min(left_s):.0f} s more"

    def _who_is_awaited(self) -> str | None:
        """Return which environment runs the most sequences. A worker may report groups that never come."""
        running = {key: self.view.running.get(key, 0) * env.group_size for key, env in self._alive.items()}
        most = max(running, key=running.__getitem__)
        if running[most] <= 0:
            return None
        whose = f"{self.view.named(most)} runs the most"
        return f"no group may start until running ones arrive; {whose}, {self.view.running[most]}"

    def _nobody_is_awaited(self) -> str:
        alive = sorted(self.view.live.records)
        if not alive:
            return NONE_ALIVE
        whose = listed([self.view.named(key) for key in alive])
        return f"these live environments send too little, and batches no longer wait for them: {whose}. Start another"

    def asked(self, needed: Needed) -> str:
        """Return the sentence that names the environment that must make groups."""
        groups = "a group" if needed.groups == 1 else f"{needed.groups} groups"
        return f"{self.view.named(needed.environment)} must make {groups} of {needed.size}"

    @cached_property
    def completion(self) -> Completion:
        """The environment that completes a batch. The cost is about that of choosing a batch."""
        return self._completion_of(self._needed_from_queue)

    @property
    def _can_complete(self) -> bool:
        """Whether groups of live environments can complete a batch: its fresh part, or all of it."""
        return self.completion.possible or (not self._is_whole and self._completion_of(self._batch_size).possible)

    def _completion_of(self, batch_size: int) -> Completion:
        """Return who completes a batch. Environments whose last group fits no batch do so only if no others can."""
        fit = {key: env for key, env in self._alive.items() if key not in self._unfit}
        found = completion(batch_size, self._lanes, self._limits, _makers(self.view, fit))
        if found.possible or not self._unfit:
            return found
        return completion(batch_size, self._lanes, self._limits, _makers(self.view, self._alive))

    @cached_property
    def _lanes(self) -> Sequence[Lane]:
        """The waiting and running groups, as lanes without heads."""
        view = self.view
        made = ((key, groups) for key, groups in view.running.items() if key in self._alive and groups > 0)
        sizes = {key: env.group_size for key, env in self._alive.items()} | self._unfit
        return lanes_of(view.lanes) + lanes_of(view.buffers) + [Lane(key, sizes[key], n, ()) for key, n in made]

    @cached_property
    def _replay_may_help(self) -> bool:
        """Whether the fresh part of a batch is queued or runs. Then the replay buffer may fill the batch up."""
        return not self._is_whole and sequences_by_environment(self._lanes).total() >= self._needed_from_queue

    @property
    def _needed(self) -> Needed | None:
        """The groups that complete a batch. None if the existing groups hold one, or none can complete it."""
        whole = not self._is_whole and not self.completion.possible
        return self._completion_of(self._batch_size).needed if whole else self.completion.needed

    @property
    def _has_room(self) -> bool:
        """Whether trainers hold fewer batches than the horizon. With as many, they must acknowledge some first."""
        return len(self._live_leases) < self._horizon

    def _nobody_may_start(self, caller: int | None = None, more: int = 0) -> bool:
        """Return whether no environment has credits, and no group can be replayed, but there is room for a batch."""
        return self._has_room and not self._replay_may_help and self._credits.is_exhausted(caller, more)

    def _may_be_asked(self, needed: Needed) -> bool:
        """Return whether to ask an environment for groups.

        For an undeclared size, only one such request is open at a time.
        """
        if needed.size == self.view.environments[needed.environment].group_size:
            return True
        most = _MOST_UNCERTAIN * self._horizon * self._needed_from_queue
        return not self.view.running.get(needed.environment) and self._usable[needed.environment] < most


def awaited_version(view: DemandView) -> str | None:
    """Return a sentence if credits wait for a new policy version after acknowledged batches. Else return None."""
    if horizon_of(view.policy.max_staleness, view.trained, view.clock_ms) > 0:
        return None
    count = view.trained.batches
    batches = "a batch" if count == 1 else f"{count} batches"
    said = f"the trainer acknowledged {batches} and has set no policy version since {view.policy_version}"
    return f"{said}: credits wait for PUT …/policy-version"


def _unfit_sizes(
    view: DemandView, alive: Mapping[int, EnvironmentRecord], batch_size: int, limits: Mapping[int, Bounds]
) -> dict[int, int]:
    """Return the sizes of last groups that fit no batch, of environments that declare a size which fits.

    Those without such groups in the queue are left out: to delete the groups gives them their credits back.
    Their running groups are expected to have these sizes, too.
    """
    return {
        key: view.sent[key].last_size
        for key in view.oversized_senders & view.sent.keys() & alive.keys()
        if is_oversized((key, view.sent[key].last_size), batch_size, limits)
        and not is_oversized((key, alive[key].group_size), batch_size, limits)
    }


def _counted(lease: Lease, needed: int) -> Mapping[int | None, int]:
    """Count the fresh sequences of a leased batch, by environment, at most what a batch needs from the queue.

    So a batch takes up the credits of one batch, also if the replay buffer could not fill it.
    """
    fresh = {portion.environment: portion.sequences for portion in lease.contents}
    for portion in lease.replayed:
        fresh[portion.environment] -= portion.sequences
    total = sum(fresh.values())
    return fresh if total <= needed else {key: own * needed // total for key, own in fresh.items()}


def _makers(view: DemandView, alive: Mapping[int, EnvironmentRecord]) -> list[Maker]:
    """Return the environments that can make groups, the largest weight first."""
    seen: defaultdict[int | None, set[int]] = defaultdict(set)
    for environment, size in chain(view.lanes, view.buffers):
        seen[environment].add(size)
    order = sorted(alive.values(), key=lambda env: (-env.weight, env.environment))
    return [Maker(env.environment, env.group_size, sorted(seen[env.environment])) for env in order]
