"""Take in groups from environments of Atropos, and complete sets of groups smaller than declared."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.access.queue_limits import LimitedAccount
from app.core.environments.record import EnvironmentRecord
from app.core.groups.set_buffer import completed_set
from app.core.model import LaneId, PlannedGroup, sequences_in
from app.core.runs.view import QueueView
from app.services.groups.admission import Admission, GroupSubmission, MissingRun, checked
from app.store.groups.admission_context import AdmissionContext
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Placement
from app.store.groups.store import GroupStore
from app.store.redis.compare_and_swap import Attempts
from app.store.runs.store import RunStore
from lachesis.wire.errors import LachesisError

_MOST_BUFFERED = 256  # groups of one environment that may wait for a set; if more wait, all are released


@dataclass(frozen=True, slots=True)
class AtroposReceipt:
    """The receipt for a group. A group dropped by a filter counts as queued, because Atropos has no reply for it.

    Attributes:
        buffered: Whether its size differs from the declared one, even if it has completed a set.
        waiting_sequences: If it was buffered, the sequences of its environment that still wait for a set; 0 if Redis
            did not say.
    """

    buffered: bool
    waiting_sequences: int = 0


class AtroposIngest:
    """Takes in groups from environments of Atropos."""

    def __init__(self, runs: RunStore, groups: GroupStore, admission: Admission) -> None:
        self._runs = runs
        self._groups = groups
        self._admission = admission

    async def submit(
        self,
        run: str,
        groups: Sequence[EncodedGroup],
        only: str | None = None,
        account: LimitedAccount | None = None,
        *,
        makes_run: bool = True,
    ) -> list[AtroposReceipt]:
        """Store groups, all or none. Once this returns they survive any crash.

        A group smaller than its environment declared waits in that environment's buffer until others make a full set
        with it.

        Args:
            run: The run's name.
            groups: The groups.
            only: The only environment that the sender may act for, by name; None for any.
            account: The account of the sender, if its groups in the queue are limited.
            makes_run: Whether a run that does not exist is made. A trainer may register with it later.

        Raises:
            RunNotFound: There is no such run, and none is made.
            TooManyRuns: The run does not exist, and there are too many to make it.
            RunArchived: The run takes no groups.
            QueueFull: The account has as many groups in the queue as it may; nothing was stored.
            PermissionDenied: A group is not of environment ``only``.
            StoreFull: Redis is out of memory; nothing was stored.
            StoreUnavailable: Redis did not answer. The groups may be stored or not.
        """
        if not groups:
            return []
        if_missing = MissingRun.MAKE if makes_run else MissingRun.REFUSE
        submission = GroupSubmission(groups, _place, if_missing, limited=False, only=only, account=account)
        admitted = await self._admission.admit(run, submission)
        environments = admitted.context.environments
        waiting: dict[int, int] = {}
        receipts = []
        for group, placement in zip(groups, admitted.placements, strict=True):
            key = placement.environment
            if key is None or placement.dropped is not None or group.size == environments[key].group_size:
                receipts.append(AtroposReceipt(buffered=False))
                continue
            if key not in waiting:
                waiting[key] = await self._complete_after_admission(run, environments[key])
            receipts.append(AtroposReceipt(True, waiting[key]))
        return receipts

    async def _complete_after_admission(self, run: str, environment: EnvironmentRecord) -> int:
        """Release full sets as `complete_sets`. If that fails, the next group or maintenance releases them."""
        try:
            return await self.complete_sets(run, environment)
        except LachesisError:
            return 0  # the groups are stored, so the answer is a success; a repetition would store them twice

    async def complete_sets(self, run: str, environment: EnvironmentRecord) -> int:
        """Release every full set from an environment's buffer; return the sequences still waiting."""
        attempts = Attempts("complete sets of groups", run)
        while attempts.again():
            view = await self._runs.queue(run)
            own = {lane: count for lane, count in view.buffers.items() if lane[0] == environment.environment}
            if sum(own.values()) > _MOST_BUFFERED:
                await self._release(run, {lane: (count, count) for lane, count in own.items()}, view, 0)
                return 0
            wanted = {lane: (count, max(1, environment.group_size // lane[1])) for lane, count in own.items()}
            planned = completed_set(environment.group_size, await self._groups.buffer_heads(run, wanted))
            if not planned:
                return sequences_in(own)
            await self._groups.release_buffered(run, planned)

    async def release_overdue(self, run: str, view: QueueView, release_ms: int) -> int:
        """Queue groups that waited longer than ``release_ms`` for a set; return how many."""
        return await self._release(
            run, {lane: (n, _MOST_BUFFERED) for lane, n in view.buffers.items()}, view, release_ms
        )

    async def _release(self, run: str, wanted: dict[LaneId, tuple[int, int]], view: QueueView, release_ms: int) -> int:
        released = 0
        for lane in await self._groups.buffer_heads(run, wanted):
            entries = await self._groups.entries(run, [head.group_id for head in lane.heads])
            overdue = [
                PlannedGroup(head.arrival, head.group_id, lane.environment, lane.size)
                for head, entry in zip(lane.heads, entries, strict=True)
                if entry is not None and view.clock_ms - entry.accepted_ms >= release_ms
            ]
            if overdue and await self._groups.release_buffered(run, overdue):
                released += len(overdue)
        return released


def _place(group: EncodedGroup, context: AdmissionContext) -> Placement:
    """Decide which environment a group counts for, and whether it must wait for a set.

    A group with a sequence that is too long is always dropped, never refused: environments of Atropos do not repeat a
    refused request, so its other groups would be lost.

    An unregistered environment has no share. A group larger than declared can never be part of a set.
    """
    if group.environment is None or group.environment not in context.environments:
        return checked(group, Placement(None), context, "drop")
    declared = context.environments[group.environment].group_size
    place = Placement(group.environment, buffered=group.size < declared)
    return checked(group, place, context, "drop")
