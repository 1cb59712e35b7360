"""Decide which batch a trainer gets, and when a minimum may be relaxed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.core.batches.diagnosis import explain
from app.core.batches.heads import with_unread
from app.core.batches.leases import LeasedGroup
from app.core.batches.relaxation import queued_shortfall, select_relaxed, smallest_shortfall
from app.core.batches.selection import select
from app.core.environments.live import declared_sizes, known_sizes
from app.core.environments.scarcity import lowered, no_longer_awaited, relaxed_in_ms, scarce_after, scarce_since
from app.core.environments.shares import minimums_conflict, settle_debts
from app.core.groups.staleness import drop_reason
from app.core.model import BatchPlan, Lane, LaneId, NotReady, QueuedGroup
from app.core.replay.mixing import has_fresh_part
from app.core.runs.view import QueueView
from app.core.wording import listed
from lachesis.wire.blockers import Blocker


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of one decision: a plan or a reason, and the values to store for the next decision.

    Attributes:
        plan: The batch to serve, or None.
        not_ready: The reason if there is no plan, else None.
        debts: Sequences owed to environments once the plan is carried out.
        conflict_since_ms: Since when minimums have been impossible together, or None if they are not.
        relaxes_in_ms: Time until a minimum is relaxed: because the minimums are impossible together, or because an
            environment sends too little.
        unfilled: Whether there is no batch although its fresh part is queued (`app.core.replay.mixing.has_fresh_part`).
        scarce: Since when batches wait for environments that send too little (`app.core.environments.scarcity`).
        replayed: The groups that the batch gets from the replay buffer.
    """

    plan: BatchPlan | None
    not_ready: NotReady | None = None
    debts: Mapping[int, int] = field(default_factory=dict)
    conflict_since_ms: int | None = None
    relaxes_in_ms: int | None = None
    unfilled: bool = False
    scarce: Mapping[int, int] = field(default_factory=dict)
    replayed: tuple[str, ...] = ()


def decide(view: QueueView, lanes: Sequence[Lane], relax_after_ms: int) -> Decision:
    """Choose the next batch of a run. If no batch can form, give the reason.

    Minimums of live environments bind. Group sizes can make them impossible together: the sizes that environments are
    known to send, or the queued sizes where no sequence is missing. Then the batch waits ``relax_after_ms`` from the
    first time this was seen. After that, batches form that leave the least owed. Their shortfall is owed by later
    batches. If a live environment has not sent enough, the shortfall is larger than sizes alone require. It is accepted
    only after another ``relax_after_ms`` without a batch. If only minimums of environments that send too little are
    missing, batches wait for them as long as the run says (`app.core.environments.scarcity`).

    Args:
        view: The run; ``view.config`` must be set.
        lanes: The lanes that `app.core.batches.heads.lanes_to_read` names, with their heads.
        relax_after_ms: How long the run waits before it relaxes impossible minimums, milliseconds.
    """
    batch_size = view.batch_size
    plan = select(batch_size, lanes, view.live.binding(batch_size))
    if plan is not None:
        return _planned(view, plan, view.scarce)
    every = with_unread(view.lanes, lanes)
    decision = _Impasse(view, every, relax_after_ms).relax()
    if decision.plan is not None:
        return decision
    return replace(decision, unfilled=has_fresh_part(batch_size, view.policy.fresh_fraction, every))


class _Impasse:
    """A queue that holds no batch with all minimums. Some of them may be relaxed."""

    def __init__(self, view: QueueView, lanes: Sequence[Lane], relax_after_ms: int) -> None:
        self._view, self._batch_size, self._lanes, self._relax_after_ms = view, view.batch_size, lanes, relax_after_ms
        self._bounds, self._binding = view.bounds, view.live.binding(view.batch_size)
        self._sizes = known_sizes(lanes, declared_sizes(view.environments))
        self._strict = explain(self._batch_size, lanes, self._binding, self._sizes, view.named)
        self._scarce = scarce_since(view, lanes)

    def relax(self) -> Decision:
        """Choose a batch that leaves some minimums out. If it is too early for one, or none exists, give the reason."""
        if self._strict.blocker is Blocker.NO_EXACT_FIT or self._minimums_conflict():
            return self._relax_conflict()
        return self._relax_scarce()

    def _relax_scarce(self) -> Decision:
        """Choose a batch that keeps all minimums, except of environments that batches no longer wait for.

        Those environments contribute all they have, if that fits.
        """
        view, missing, scarce = self._view, self._strict.missing_by_environment, self._scarce
        gone = no_longer_awaited(view, scarce) & missing.keys()
        if gone:
            available = {key: self._bounds[key].minimum - missing[key] for key in gone}
            for minimums in (available, dict.fromkeys(gone, 0)):
                plan = select(self._batch_size, self._lanes, lowered(self._bounds, minimums))
                if plan is not None:
                    return self._planned(replace(plan, relaxed=True))
        left = {key: left_ms for key in scarce.keys() & missing if (left_ms := relaxed_in_ms(view, scarce[key]))}
        if not left:
            return self._refused(self._strict)
        whose, left_ms = listed([view.named(key) for key in sorted(left)]), max(left.values())
        relaxing = self._strict.adding(f"relaxing the minimum of {whose} in {left_ms / 1000:.1f} s")
        return self._refused(relaxing, relaxes_in_ms=left_ms)

    def _relax_conflict(self) -> Decision:
        """Relax the minimums that group sizes make impossible together, after waiting ``relax_after_ms``."""
        view, strict = self._view, self._strict
        least = queued_shortfall(self._batch_size, self._lanes, self._binding)
        if least is None:
            goes_on = strict.blocker is not Blocker.NO_EXACT_FIT
            return self._refused(strict, view.conflict_since_ms if goes_on else None)
        since = view.clock_ms if view.conflict_since_ms is None else view.conflict_since_ms
        waited_from = max(since, view.last_batch_ms or since)
        if waited_from > since and least <= (smallest_shortfall(self._batch_size, self._sizes, self._binding) or 0):
            waited_from = since
        left_ms = waited_from + self._relax_after_ms - view.clock_ms
        if left_ms > 0:
            names_it = strict.blocker in (Blocker.NO_EXACT_FIT, Blocker.MINIMUMS_CONFLICT)
            detail = strict.detail if names_it else "group sizes make the minimums impossible together"
            conflict = replace(strict, blocker=Blocker.MINIMUMS_CONFLICT, detail=detail)
            return self._refused(conflict.adding(f"relaxing in {left_ms / 1000:.1f} s"), since, left_ms)
        # Selecting groups costs far more than checking that a batch exists, so it comes last.
        relaxed = select_relaxed(self._batch_size, self._lanes, self._binding, view.debts)
        assert relaxed is not None, "an exact batch exists without minimums"  # noqa: S101
        return replace(self._planned(relaxed), conflict_since_ms=since)

    def _minimums_conflict(self) -> bool:
        return minimums_conflict(self._batch_size, self._sizes, self._binding)

    def _planned(self, plan: BatchPlan) -> Decision:
        return _planned(self._view, plan, self._scarce)

    def _refused(
        self, reason: NotReady, conflict_since_ms: int | None = None, relaxes_in_ms: int | None = None
    ) -> Decision:
        return Decision(None, reason, self._view.debts, conflict_since_ms, relaxes_in_ms, scarce=self._scarce)


def _planned(view: QueueView, plan: BatchPlan, scarce: Mapping[int, int]) -> Decision:
    got, bounds = plan.sequences_by_environment, view.bounds
    return Decision(plan, debts=settle_debts(view.debts, bounds, got), scarce=scarce_after(scarce, bounds, got))


def with_returned(view: QueueView, lanes: Sequence[Lane], groups: Iterable[LeasedGroup]) -> list[Lane]:
    """Return the lanes after the groups of a dissolved batch are back in their places.

    Groups from the replay buffer do not go to a lane. Groups that are too old by now are left out. If another process
    has dissolved the batch in the meantime, its groups are in the lanes already: they count once.
    """
    returned: defaultdict[LaneId, list[QueuedGroup]] = defaultdict(list)
    for group in groups:
        waited_ms = view.clock_ms - group.accepted_ms
        if group.replayed is None and not drop_reason(
            group.policy_version, view.policy_version, view.policy, waited_ms
        ):
            returned[group.environment, group.size].append(QueuedGroup(group.arrival, group.group_id))
    joined: list[Lane] = []
    for lane in lanes:
        back = set(returned.pop(lane.id, ())).difference(lane.heads)
        joined.append(replace(lane, queued=lane.queued + len(back), heads=tuple(sorted((*back, *lane.heads)))))
    for lane_id, groups_back in returned.items():  # lanes without other groups, or whose heads were not read
        joined.append(Lane(*lane_id, view.lanes.get(lane_id, 0) + len(groups_back), tuple(sorted(groups_back))))
    return joined
