"""Choose groups for batches that can be divided evenly, from a window of the queue."""

from collections import Counter
from collections.abc import Mapping

from app.core.model import BatchPlan, LaneId
from app.core.ranks.costs import CostModel
from app.core.ranks.lookahead import LookaheadCandidate, choose_balanced, delays_after
from app.core.ranks.sharding import ShardingSpec
from app.core.runs.view import QueueView
from app.services.groups.staleness import drop_reason_now
from app.services.threads import in_thread_if
from app.store.groups.store import GroupStore
from lachesis.wire.errors import InvalidField

_MANY_GROUPS = 2048


class Lookahead:
    """Looks further into the queue than one batch."""

    def __init__(self, groups: GroupStore) -> None:
        self._groups = groups

    async def choose(
        self, run: str, view: QueueView, plan: BatchPlan, spec: ShardingSpec | None
    ) -> tuple[BatchPlan, Mapping[str, int] | None]:
        """Exchange groups of a plan for others that load ranks more evenly, if the run has a window.

        Returns:
            The plan to carry out, and how often groups were passed over; None if that is unchanged.
        """
        depth = view.policy.balance_window
        if spec is None or depth < 2:
            return plan, None
        counts = Counter((group.environment, group.size) for group in plan.groups)
        wanted = {lane: (view.lanes.get(lane, count), depth * count) for lane, count in counts.items()}
        lanes = await self._groups.heads(run, wanted)
        heads = [(lane, head) for lane in lanes for head in lane.heads]
        asked = [*(head.group_id for _, head in heads), *view.delays]
        entries = dict(zip(asked, await self._groups.entries(run, asked), strict=True))
        fit = [
            (lane, head, entry.weight)
            for lane, head in heads
            if (entry := entries[head.group_id]) is not None and drop_reason_now(entry, view) is None
        ]
        if not {group.group_id for group in plan.groups} <= {head.group_id for _, head, _ in fit}:
            return plan, None  # some are gone or too old; the next step finds out and plans again
        try:
            costs = CostModel.parse(spec.cost).of_groups([weight for _, _, weight in fit])
        except InvalidField:
            return plan, None  # the division says why, unless groups from the replay buffer declare a cost
        window: dict[LaneId, list[LookaheadCandidate]] = {}
        for (lane, head, _), cost in zip(fit, costs.tolist(), strict=True):
            window.setdefault(lane.id, []).append(LookaheadCandidate(head.arrival, head.group_id, cost))
        chosen = await in_thread_if(
            len(fit) > _MANY_GROUPS, choose_balanced, plan, window, spec, view.delays, view.policy.max_delay_batches
        )
        waiting = [group_id for group_id in view.delays if entries[group_id] is not None]
        return chosen, delays_after(plan, chosen, view.delays, waiting)
