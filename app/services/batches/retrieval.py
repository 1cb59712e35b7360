"""Looking at groups before they are handed out: are they there, undamaged, and still to be trained on?"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.batches.leases import LeasedGroup
from app.core.groups.staleness import drop_reason
from app.core.model import BatchPlan, DropReason, Lane, LaneId, PlannedGroup
from app.core.runs.view import RunView
from app.store.groups.codec import checksum
from app.store.groups.entries import StoredGroup
from app.store.groups.store import GroupStore


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Groups with their payloads, or why those of some cannot be sent.

    Attributes:
        groups: The groups.
        payloads: Their columns; where some are damaged, of no use.
        damage: Whose payloads are missing or not what was stored.
    """

    groups: tuple[LeasedGroup, ...]
    payloads: tuple[bytes, ...]
    damage: Mapping[LeasedGroup, DropReason]


class Retrieval:
    """Reads what is planned, and drops what nobody should have."""

    def __init__(self, groups: GroupStore) -> None:
        self._groups = groups

    async def lanes(self, run: str, view: RunView) -> list[Lane]:
        """Read each lane's heads: no more of them than fit into one batch."""
        batch_size = 0 if view.config is None else view.config.batch_size
        return await self._groups.heads(
            run, {lane: (queued, max(1, batch_size // lane[1])) for lane, queued in view.lanes.items()}
        )

    async def leasable(
        self, run: str, view: RunView, plan: BatchPlan, replayed: Sequence[LeasedGroup]
    ) -> Retrieved | None:
        """Read what is planned, and what is to go with it; None if some should not be trained on, which is dropped."""
        planned, others = [group.group_id for group in plan.groups], [group.group_id for group in replayed]
        entries, payloads = await self._groups.entries_and_payloads(run, planned, others)
        if await self._drop_unfit(run, view, plan, entries):
            return None
        groups = [_leased(group, entry) for group, entry in zip(plan.groups, entries, strict=True) if entry is not None]
        return _checked((*groups, *replayed), payloads)

    async def still_fit(self, run: str, view: RunView, plan: BatchPlan) -> bool:
        """Whether all planned groups may still be trained on; drops those that may not, as a take does."""
        entries = await self._groups.entries(run, [group.group_id for group in plan.groups])
        return not await self._drop_unfit(run, view, plan, entries)

    async def _drop_unfit(
        self, run: str, view: RunView, plan: BatchPlan, entries: Sequence[StoredGroup | None]
    ) -> bool:
        reasons: dict[PlannedGroup, DropReason] = {}
        for group, entry in zip(plan.groups, entries, strict=True):
            # Without an entry it was taken meanwhile; were it still in its lane, it would be chosen again for ever.
            reason = DropReason.PAYLOAD_LOST if entry is None else unfit_now(entry, view)
            if reason is not None:
                reasons[group] = reason
        await self.drop(run, view, reasons)
        return bool(reasons)

    async def retrieve(self, run: str, groups: Sequence[LeasedGroup]) -> Retrieved:
        """Read the payloads of groups that are leased."""
        return _checked(groups, await self._groups.payloads(run, [group.group_id for group in groups]))

    async def drop(
        self, run: str, view: RunView, reasons: Mapping[PlannedGroup, DropReason] | Mapping[LeasedGroup, DropReason]
    ) -> None:
        """Drop groups that wait, each for its own reason."""
        dropped: defaultdict[DropReason, list[tuple[str, LaneId]]] = defaultdict(list)
        for group, reason in reasons.items():
            dropped[reason].append((group.group_id, (group.environment, group.size)))
        for reason, groups in dropped.items():
            await self._groups.drop(run, groups, reason, view.policy.history_ms)


def unfit_now(entry: StoredGroup, view: RunView) -> DropReason | None:
    """Say why a group that waits should not be trained on any more, if so."""
    return drop_reason(entry.policy_version, view.policy_version, view.policy, view.clock_ms - entry.accepted_ms)


def _leased(group: PlannedGroup, entry: StoredGroup) -> LeasedGroup:
    mark = entry.mark
    return LeasedGroup(
        group.group_id,
        group.arrival,
        group.environment,
        group.size,
        entry.payload_bytes,
        entry.checksum,
        entry.accepted_ms,
        entry.policy_version,
        entry.given_id,
        None if mark is None else mark.filtered_by,
        1.0 if mark is None else mark.loss_weight,
    )


def _checked(groups: Sequence[LeasedGroup], payloads: Sequence[bytes | None]) -> Retrieved:
    pairs = zip(groups, payloads, strict=True)
    damage = {group: reason for group, payload in pairs if (reason := _damage(group, payload))}
    return Retrieved(tuple(groups), tuple(payload for payload in payloads if payload is not None), damage)


def _damage(group: LeasedGroup, payload: bytes | None) -> DropReason | None:
    if payload is None:
        return DropReason.PAYLOAD_LOST
    return None if checksum(payload) == group.checksum else DropReason.CORRUPT
