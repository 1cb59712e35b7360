"""Find where a group is, or what happened to it."""

from dataclasses import dataclass

from app.core.errors import GroupNotFound
from app.store.batches.store import BatchStore
from app.store.groups.entries import StoredGroup
from app.store.groups.store import GroupStore
from app.store.runs.store import RunStore


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """The history of a group.

    Attributes:
        group_id: The service's own id of the group.
        state: ``queued``, ``buffered``, ``leased``, ``delivered`` or ``dropped``.
        entry: The record made when it arrived.
        received_age_s: Seconds since it arrived.
        batch_id: The batch that it is or was in.
        step: The step of that batch.
        ended_age_s: Seconds since it was delivered or dropped.
        reason: Why it was dropped.
    """

    group_id: str
    state: str
    entry: StoredGroup
    received_age_s: float
    batch_id: str | None = None
    step: int | None = None
    ended_age_s: float | None = None
    reason: str | None = None


class GroupHistories:
    """Looks groups up by the ids that their senders or the service gave them."""

    def __init__(self, runs: RunStore, groups: GroupStore, batches: BatchStore) -> None:
        self._runs = runs
        self._groups = groups
        self._batches = batches

    async def of(self, run: str, given_id: str) -> GroupHistory:
        """Return the history of a group.

        Raises:
            RunNotFound: There is no such run.
            GroupNotFound: The run has no such group, or has forgotten it because it left long ago.
        """
        group_id = await self._groups.group_of(run, given_id) or given_id
        view = await self._runs.existing(run)
        ended = await self._groups.history(run, group_id)
        (entry,) = await self._groups.entries(run, [group_id])
        if entry is not None:
            received_age_s = (view.clock_ms - entry.accepted_ms) / 1000
            steps = {lease.batch_id: lease.step for lease in view.leases}
            batch_id = await self._batches.batch_of(run, group_id, list(steps))
            if batch_id is not None:
                return GroupHistory(group_id, "leased", entry, received_age_s, batch_id, steps[batch_id])
            waits = await self._groups.where(run, group_id, entry.lane)
            if waits is not None:
                return GroupHistory(group_id, waits, entry, received_age_s)
        if ended is not None:
            received_age_s = (view.clock_ms - ended.entry.accepted_ms) / 1000
            ended_age_s = max(0, view.clock_ms - ended.clock_ms) / 1000
            if ended.outcome == "delivered":
                return GroupHistory(
                    group_id, "delivered", ended.entry, received_age_s, ended.batch_id, ended.step, ended_age_s
                )
            return GroupHistory(
                group_id, "dropped", ended.entry, received_age_s, ended.batch_id, ended.step, ended_age_s, ended.outcome
            )
        raise GroupNotFound(f"run {run} knows no group {given_id}")
