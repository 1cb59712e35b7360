"""Decide which batch a trainer gets, and when a minimum may be relaxed."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.core.batches.diagnosis import explain, known_sizes, minimums_conflict
from app.core.batches.heads import with_unread
from app.core.batches.leases import LeasedGroup
from app.core.batches.relaxation import queued_shortfall, select_relaxed, smallest_shortfall
from app.core.batches.selection import select
from app.core.environments.live import LiveEnvironments, declared_sizes
from app.core.environments.scarcity import lowered, no_longer_awaited, relaxed_in_ms, scarce_after, scarce_since
from app.core.environments.shares import settle_debts
from app.core.groups.staleness import drop_reason
from app.core.model import BatchPlan, Bounds, Lane, LaneId, NotReady, QueuedGroup
from app.core.replay.mixing import has_fresh_part
from app.core.runs.view import QueueView
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
        unfilled: Whether there is no batch although its fresh part is queued (`app.core.replay.mixing.unfilled`).
        scarce: Since when batches wait for environments that send too little (`app.core.environments.scarcity`).
    """

    plan: BatchPlan | None
    not_ready: NotReady | None = None
    debts: Mapping[int, int] = field(default_factory=dict)
    conflict_since_ms: int | None = None
    relaxes_in_ms: int | None = None
    unfilled: bool = False
    scarce: Mapping[int, int] = field(default_factory=dict)


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
    assert view.config is not None, "only a configured run can be decided on"  # noqa: S101
    decision = _decide(view, view.config.batch_size, lanes, relax_after_ms)
    if decision.plan is not None:
        return decision
    every = with_unread(view.lanes, lanes)
    return replace(decision, unfilled=has_fresh_part(view.config.batch_size, view.policy.fresh_fraction, every))


def _decide(view: QueueView, batch_size: int, lanes: Sequence[Lane], relax_after_ms: int) -> Decision:
    live = view.live
    bounds, binding = live.bounds(batch_size), live.binding(batch_size)
    plan = select(batch_size, lanes, binding)
    if plan is not None:
        return _planned(view, bounds, plan, view.scarce)
    lanes = with_unread(view.lanes, lanes)
    sizes = known_sizes(lanes, declared_sizes(view.environments))
    strict = explain(batch_size, lanes, binding, sizes)
    scarce = scarce_since(view, lanes, live)
    if strict.blocker is not Blocker.NO_EXACT_FIT and not minimums_conflict(batch_size, sizes, binding):
        return _relaxing_scarce(view, batch_size, lanes, bounds, strict, scarce)
    return _relaxing_conflict(view, batch_size, lanes, live, strict, sizes, scarce, relax_after_ms)


def _relaxing_scarce(
    view: QueueView,
    batch_size: int,
    lanes: Sequence[Lane],
    bounds: Mapping[int, Bounds],
    strict: NotReady,
    scarce: Mapping[int, int],
) -> Decision:
    """Choose a batch that keeps all minimums, except of environments that batches no longer wait for.

    Those environments contribute all they have, if that fits.
    """
    missing = strict.missing_by_environment
    gone = no_longer_awaited(view, scarce) & missing.keys()
    if gone:
        available = {key: bounds[key].minimum - missing[key] for key in gone}
        for minimums in (available, dict.fromkeys(gone, 0)):
            plan = select(batch_size, lanes, lowered(bounds, minimums))
            if plan is not None:
                return _planned(view, bounds, replace(plan, relaxed=True), scarce)
    left = {key: left_ms for key in scarce.keys() & missing if (left_ms := relaxed_in_ms(view, scarce[key]))}
    if not left:
        return Decision(None, strict, view.debts, scarce=scarce)
    whose, left_ms = ", ".join(f"environment {key}" for key in sorted(left)), max(left.values())
    relaxing = strict.adding(f"relaxing the minimum of {whose} in {left_ms / 1000:.1f} s")
    return Decision(None, relaxing, view.debts, relaxes_in_ms=left_ms, scarce=scarce)


def _relaxing_conflict(
    view: QueueView,
    batch_size: int,
    lanes: Sequence[Lane],
    live: LiveEnvironments,
    strict: NotReady,
    sizes: Mapping[int | None, Collection[int]],
    scarce: Mapping[int, int],
    relax_after_ms: int,
) -> Decision:
    """Relax the minimums that group sizes make impossible together, after waiting `relax_after_ms`."""
    bounds = live.binding(batch_size)
    least = queued_shortfall(batch_size, lanes, bounds)
    if least is None:
        goes_on = view.conflict_since_ms is not None and minimums_conflict(batch_size, sizes, bounds)
        return Decision(None, strict, view.debts, view.conflict_since_ms if goes_on else None, scarce=scarce)
    since = view.clock_ms if view.conflict_since_ms is None else view.conflict_since_ms
    waited_from = max(since, view.last_batch_ms or since)
    if waited_from > since and least <= (smallest_shortfall(batch_size, sizes, bounds) or 0):
        waited_from = since
    left_ms = waited_from + relax_after_ms - view.clock_ms
    if left_ms > 0:
        names_it = strict.blocker in (Blocker.NO_EXACT_FIT, Blocker.MINIMUMS_CONFLICT)
        detail = strict.detail if names_it else "group sizes make the minimums impossible together"
        conflict = replace(strict, blocker=Blocker.MINIMUMS_CONFLICT, detail=detail)
        conflict = conflict.adding(f"relaxing in {left_ms / 1000:.1f} s")
        return Decision(None, conflict, view.debts, since, left_ms, scarce=scarce)
    # Selecting groups costs far more than checking that a batch exists, so it comes last.
    relaxed = select_relaxed(batch_size, lanes, bounds, view.debts)
    assert relaxed is not None, "an exact batch exists without minimums"  # noqa: S101
    return replace(_planned(view, live.bounds(batch_size), relaxed, scarce), conflict_since_ms=since)


def _planned(view: QueueView, bounds: Mapping[int, Bounds], plan: BatchPlan, scarce: Mapping[int, int]) -> Decision:
    got = plan.sequences_by_environment
    return Decision(plan, debts=settle_debts(view.debts, bounds, got), scarce=scarce_after(scarce, bounds, got))


def with_returned(view: QueueView, lanes: Sequence[Lane], groups: Iterable[LeasedGroup]) -> list[Lane]:
    """Return the lanes after the groups of a dissolved batch are back in their places.

    Groups from the replay buffer do not go to a lane. Groups that are too old by now are left out. If another process
    has dissolved the batch in the meantime, its groups are in the lanes already: they count once.
    """
    heads: defaultdict[LaneId, list[QueuedGroup]] = defaultdict(list)
    for group in groups:
        waited_ms = view.clock_ms - group.accepted_ms
        if group.replayed is None and not drop_reason(
            group.policy_version, view.policy_version, view.policy, waited_ms
        ):
            heads[group.environment, group.size].append(QueuedGroup(group.arrival, group.group_id))
    joined = [
        replace(lane, queued=lane.queued + len(back), heads=tuple(sorted((*back, *lane.heads))))
        for lane in lanes
        for back in [set(heads.pop(lane.id, [])).difference(lane.heads)]
    ]
    others = ((lane, sorted(back), view.lanes.get(lane, 0)) for lane, back in heads.items())
    return joined + [Lane(*lane, unread + len(back), tuple(back)) for lane, back, unread in others]
