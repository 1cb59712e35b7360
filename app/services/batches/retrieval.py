"""Check groups before they are handed out: they exist, are not damaged, and should still be trained on."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from app.core.batches.diagnosis import old_groups
from app.core.batches.heads import lanes_to_read
from app.core.batches.leases import LeasedGroup
from app.core.model import BatchPlan, Lane, LaneId, NotReady, PlannedGroup
from app.core.runs.view import QueueView
from app.events import GroupsLost, emit
from app.services.batches.request import ReadAgain
from app.services.groups.staleness import drop_reason_now
from app.services.threads import MANY_GROUPS, MANY_LANES, in_thread_if
from app.store.groups.checksums import damage
from app.store.groups.entries import GroupAge, StoredGroup
from app.store.groups.store import GroupStore
from lachesis.wire.states import DropReason

_GONE: DropReason = "payload_lost"  # of a group without an entry
_DAMAGED: tuple[DropReason, ...] = ("payload_lost", "corrupt")
_LANES_AT_FIRST = 2  # for each sequence of a batch: mostly, the oldest lanes are enough


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Groups with their payloads.

    Attributes:
        groups: The groups.
        payloads: Their columns.
        rewards: The mean reward of each group that was just planned, in the same order, where it is known.
    """

    groups: tuple[LeasedGroup, ...]
    payloads: tuple[bytes, ...]
    rewards: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class DamagedGroups:
    """Groups whose payloads are missing or differ from what was stored, and why. Their batch cannot be sent."""

    reasons: Mapping[LeasedGroup, DropReason]


class Retrieval:
    """Reads planned groups, and drops those that should not be trained on."""

    def __init__(self, groups: GroupStore) -> None:
        self._groups = groups

    async def lanes(self, run: str, view: QueueView) -> list[Lane]:
        """Read the oldest groups of the lanes that a batch may take groups from, as many as fit into one batch.

        Args:
            run: The run's name.
            view: The run; ``view.config`` must be set.
        """
        batch_size = view.batch_size
        chosen: Collection[LaneId] = view.lanes
        if len(view.lanes) >= MANY_LANES:
            limited = view.live.limited
            by_age = await self._groups.lanes_by_age(run, _LANES_AT_FIRST * batch_size)
            chosen = lanes_to_read(batch_size, view.lanes, limited, by_age)
            if len(chosen) == len(view.lanes) and next(by_age, None) is None:  # the oldest lanes were too few
                chosen = lanes_to_read(batch_size, view.lanes, limited, await self._groups.lanes_by_age(run))
        lanes = await self._heads(run, view, chosen, batch_size)
        if len(chosen) == len(view.lanes) or all(lane.heads for lane in lanes):
            return lanes
        # The queue has changed in between: lanes that were not read may matter now.
        return await self._heads(run, view, view.lanes, batch_size)

    async def _heads(self, run: str, view: QueueView, lanes: Collection[LaneId], batch_size: int) -> list[Lane]:
        wanted = {lane: (view.lanes[lane], max(1, batch_size // lane[1])) for lane in lanes}
        return await self._groups.heads(run, wanted)

    async def leasable(
        self, run: str, view: QueueView, plan: BatchPlan, replayed: Sequence[LeasedGroup]
    ) -> Retrieved | DamagedGroups | NotReady | ReadAgain:
        """Read planned groups and those added to them.

        Returns:
            The groups, or those that are damaged. Or that some were dropped, because they should not be trained on.
            `ReadAgain.CONFLICT` means that one has left.
        """
        planned, others = [group.group_id for group in plan.groups], [group.group_id for group in replayed]
        entries, payloads = await self._groups.entries_and_payloads(run, planned, others)
        if reasons := await self._drop_undeliverable(run, view, plan, entries):
            return ReadAgain.CONFLICT if reasons == {_GONE} else old_groups()
        groups = [_leased(group, entry) for group, entry in zip(plan.groups, entries, strict=True) if entry is not None]
        rewards = tuple(entry.reward for entry in entries if entry is not None)
        return _checked((*groups, *replayed), payloads, rewards)

    async def still_fit(self, run: str, view: QueueView, plan: BatchPlan) -> bool:
        """Return whether all planned groups may still be trained on; drop those that may not, as a take does."""
        ages = await self._groups.ages(run, [group.group_id for group in plan.groups])
        return not await self._drop_undeliverable(run, view, plan, ages)

    async def _drop_undeliverable(
        self, run: str, view: QueueView, plan: BatchPlan, entries: Sequence[StoredGroup | GroupAge | None]
    ) -> set[DropReason]:
        is_large = len(entries) >= MANY_GROUPS
        reasons = await in_thread_if(is_large, _undeliverable, view, plan, entries)
        await self.drop(run, reasons)
        return set(reasons.values())

    async def retrieve(self, run: str, groups: Sequence[LeasedGroup]) -> Retrieved | DamagedGroups:
        """Read the payloads of leased groups."""
        return _checked(groups, await self._groups.payloads(run, [group.group_id for group in groups]))

    async def drop(
        self, run: str, reasons: Mapping[PlannedGroup, DropReason] | Mapping[LeasedGroup, DropReason]
    ) -> None:
        """Drop waiting groups, each for its own reason."""
        dropped: defaultdict[DropReason, list[tuple[str, LaneId]]] = defaultdict(list)
        for group, reason in reasons.items():
            dropped[reason].append((group.group_id, (group.environment, group.size)))
        for reason, groups in dropped.items():
            lost = await self._groups.drop(run, groups, reason)
            if lost and reason in _DAMAGED:
                emit(GroupsLost(run=run, reason=reason, groups=lost, first=groups[0][0]))


def _undeliverable(
    view: QueueView, plan: BatchPlan, entries: Sequence[StoredGroup | GroupAge | None]
) -> dict[PlannedGroup, DropReason]:
    reasons: dict[PlannedGroup, DropReason] = {}
    for group, entry in zip(plan.groups, entries, strict=True):
        # A group without an entry was taken in the meantime. Left in its lane, it would be chosen again forever.
        reason = _GONE if entry is None else drop_reason_now(entry, view)
        if reason is not None:
            reasons[group] = reason
    return reasons


def _leased(group: PlannedGroup, entry: StoredGroup) -> LeasedGroup:
    mark = entry.mark
    return LeasedGroup(
        group_id=group.group_id,
        arrival=group.arrival,
        environment=group.environment,
        size=group.size,
        payload_bytes=entry.payload_bytes,
        checksum=entry.checksum,
        accepted_ms=entry.accepted_ms,
        policy_version=entry.policy_version,
        given_id=entry.given_id,
        filtered_by=None if mark is None else mark.filtered_by,
        loss_weight=1.0 if mark is None else mark.loss_weight,
        tokens=entry.weight.tokens,
    )


def _checked(
    groups: Sequence[LeasedGroup], payloads: Sequence[bytes | None], rewards: tuple[float | None, ...] = ()
) -> Retrieved | DamagedGroups:
    pairs = zip(groups, payloads, strict=True)
    damaged = {group: reason for group, payload in pairs if (reason := damage(payload, group.checksum))}
    if damaged:
        return DamagedGroups(damaged)
    return Retrieved(tuple(groups), tuple(payload for payload in payloads if payload is not None), rewards)
