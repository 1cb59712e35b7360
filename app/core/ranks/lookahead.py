"""Choose which waiting groups are trained on together, so that ranks are evenly loaded.

A batch with one group much larger than the others cannot be balanced by any division. But a queue holds more than one
batch. Among the oldest groups, enough for a few batches, groups of about equal cost can be trained on together.

The rule of `app.core.batches.selection` stays in force. A group is exchanged only for another one of its own lane, so
the batch has the same size and the same part of each environment. Only the order within a lane changes. A group that
the rule would take is passed over at most ``max_delay_batches`` times.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.core.model import BatchPlan, LaneId, PlannedGroup
from app.core.ranks.balancing import least_imbalance
from app.core.ranks.sharding import ShardingSpec

_POSITIONS = 9
_WORTH_IT = 0.01  # of the mean load: a smaller gain is not worth the delay of a group

Delays = Mapping[str, int]
"""How often groups that wait were passed over, by id."""


@dataclass(frozen=True, slots=True)
class LookaheadCandidate:
    """A waiting group and its cost. For ``arrival`` see `app.core.model.QueuedGroup`."""

    arrival: int
    group_id: str
    cost: float


def choose_balanced(
    plan: BatchPlan,
    window: Mapping[LaneId, Sequence[LookaheadCandidate]],
    spec: ShardingSpec,
    delays: Delays,
    max_delay_batches: int,
) -> BatchPlan:
    """Exchange groups of a plan for others of their lanes if that loads ranks more evenly.

    One candidate is the plan itself. For each other candidate, sort each lane by cost and take adjacent groups around
    one position between the cheapest and the costliest. Every candidate contains the groups that may not wait longer.
    Candidates are compared by the lower bound of their imbalance, because divisions come near this bound.

    Args:
        plan: The groups that the selection rule takes.
        window: The oldest groups of each lane in the plan, including those of the plan.
        spec: How the batch will be divided.
        delays: How often groups were passed over so far.
        max_delay_batches: How often a group may be passed over, ``>= 1``.

    Returns:
        A plan with as many groups of each lane. The given plan, if no other is better by a hundredth of the mean load.
    """
    taken: defaultdict[LaneId, set[str]] = defaultdict(set)
    for group in plan.groups:
        taken[group.environment, group.size].add(group.group_id)
    oldest = {lane: [one for one in window[lane] if one.group_id in ids] for lane, ids in taken.items()}
    best, least = oldest, _imbalance(oldest, spec) - _WORTH_IT
    if least > 0:
        rows = {lane: _row(window[lane], oldest[lane], delays, max_delay_batches) for lane in oldest}
        for position in np.linspace(0.0, 1.0, _POSITIONS):
            choice = {lane: row.around(float(position)) for lane, row in rows.items()}
            imbalance = _imbalance(choice, spec)
            if imbalance < least:
                best, least = choice, imbalance
    if best is oldest:
        return plan
    groups = [PlannedGroup(one.arrival, one.group_id, *lane) for lane, ones in best.items() for one in ones]
    return replace(plan, groups=tuple(sorted(groups, key=lambda group: group.arrival)))


def delays_after(oldest: BatchPlan, chosen: BatchPlan, before: Delays, waiting: Sequence[str]) -> dict[str, int]:
    """Return how often each waiting group was passed over, after this batch.

    Args:
        oldest: The plan of the selection rule.
        chosen: The plan that was taken instead.
        before: How often groups were passed over so far.
        waiting: The groups of ``before`` that still wait.
    """
    gone = {group.group_id for group in chosen.groups}
    after = {group_id: before[group_id] for group_id in waiting if group_id in before and group_id not in gone}
    for group in oldest.groups:
        if group.group_id not in gone:
            after[group.group_id] = before.get(group.group_id, 0) + 1
    return after


@dataclass(frozen=True, slots=True)
class _Row:
    """A lane's groups: those that may not wait longer, and the others in order of cost."""

    overdue: list[LookaheadCandidate]
    others: list[LookaheadCandidate]
    wanted: int

    def around(self, position: float) -> list[LookaheadCandidate]:
        """Return the overdue groups and adjacent others around a position: 0 is the cheapest, 1 the costliest."""
        start = round(position * (len(self.others) - self.wanted))
        return self.overdue + self.others[start : start + self.wanted]


def _row(
    window: Sequence[LookaheadCandidate], oldest: Sequence[LookaheadCandidate], delays: Delays, max_delay_batches: int
) -> _Row:
    overdue = [one for one in oldest if delays.get(one.group_id, 0) >= max_delay_batches]
    ids = {one.group_id for one in overdue}
    others = sorted((one for one in window if one.group_id not in ids), key=lambda one: (one.cost, one.arrival))
    return _Row(overdue, others, len(oldest) - len(overdue))


def _imbalance(choice: Mapping[LaneId, Sequence[LookaheadCandidate]], spec: ShardingSpec) -> float:
    lanes = sorted(choice.items(), key=lambda item: (item[0][0] is not None, item[0]))
    costs = np.array([one.cost for _, ones in lanes for one in ones])
    sizes = np.array([size for (_, size), ones in lanes for _ in ones])
    if spec.split_groups:
        costs, sizes = np.repeat(costs / sizes, sizes), np.ones(sizes.sum(), np.int64)
    return least_imbalance(costs, spec.world_size, equal=spec.wants_equal(int(sizes.sum())), sizes=sizes)
