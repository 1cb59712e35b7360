"""Batches: committed all or nothing, leased, acknowledged, returned, dissolved."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from app.core.model import BatchPlan, Lease, LeasedGroup, LeaseState
from app.store.connection import Argument, Connection
from app.store.keys import NO_ENVIRONMENT, RunKeys, lane_name
from app.store.runs import lease_text


class BatchStore:
    """Moves groups between the queue and trainers' hands."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def commit(
        self,
        run: str,
        *,
        batch_id: str,
        worker: str,
        plan: BatchPlan,
        groups: Sequence[LeasedGroup],
        epoch: int,
        step: int,
        debts: Mapping[int, int],
        clock_ms: int,
    ) -> Lease | None:
        """Take the planned groups out of the queue, all or none, into a new lease.

        One atomic step (`lua/commit_batch.lua`): of two trainers that planned on the same view, one wins.

        Returns:
            The lease, or None if the run or its queue moved on since the plan was made: look again, plan again.
        """
        keys = RunKeys(run)
        arguments: list[Argument] = [batch_id, worker, json.dumps([asdict(group) for group in groups]), epoch, step]
        arguments += [json.dumps(debts), clock_ms, int(plan.relaxed)]
        lanes = []
        for group in groups:
            name = lane_name(group.environment, group.size)
            lanes.append(keys.lane(name))
            arguments += [group.group_id, name, _environment(group), group.size]
        won, answer = await self._connection.run(
            "commit_batch",
            [keys.run, keys.groups, keys.lanes, keys.served, keys.leases, keys.lease_states, *lanes],
            arguments,
        )
        return Lease(batch_id, LeaseState.SENDING, worker, 1, int(answer)) if won else None

    async def groups_of(self, run: str, lease: Lease) -> list[LeasedGroup] | None:
        """Read which groups a lease holds, in training order; None if it has ended."""
        found = await self._connection.call("HGET", RunKeys(run).leases, lease.batch_id)
        return None if found is None else [LeasedGroup(**group) for group in json.loads(found)]

    async def claim(self, run: str, lease: Lease, worker: str) -> Lease | None:
        """Take a batch that waits to be handed out again; None if somebody else was faster."""
        claimed = replace(lease, state=LeaseState.SENDING, worker=worker, deliveries=lease.deliveries + 1)
        return claimed if await self._change(run, lease, claimed) else None

    async def mark_sent(self, run: str, lease: Lease) -> bool:
        """Note that a batch's reply was written out whole."""
        return await self._change(run, lease, replace(lease, state=LeaseState.SENT))

    async def give_back(self, run: str, lease: Lease) -> bool:
        """Note that a batch's reply broke off (in whatever state its worker last saw it): it is served again."""
        returned = replace(lease, state=LeaseState.RETURNED)
        seen = (replace(lease, state=state) for state in (LeaseState.SENDING, LeaseState.SENT))
        return any([await self._change(run, state, returned) for state in seen])

    async def _change(self, run: str, seen: Lease, new: Lease) -> bool:
        changed = await self._connection.run(
            "change_lease", [RunKeys(run).lease_states], [seen.batch_id, lease_text(seen), lease_text(new)]
        )
        return bool(changed)

    async def acknowledge(self, run: str, leases: Sequence[Lease]) -> int:
        """End leases in the state they were seen in; their groups are delivered. Returns how many ended."""
        keys = RunKeys(run)
        pairs = [text for lease in leases for text in (lease.batch_id, lease_text(lease))]
        ended = await self._connection.run(
            "acknowledge_batches", [keys.run, keys.groups, keys.leases, keys.lease_states, keys.unindexed], pairs
        )
        return int(ended)

    async def dissolve(self, run: str, lease: Lease, groups: Sequence[LeasedGroup]) -> bool:
        """End a lease that cannot be served as it was; its groups go back to where they were in their lanes."""
        keys = RunKeys(run)
        lanes: list[str] = []
        arguments: list[Argument] = [lease.batch_id, lease_text(lease)]
        for group in groups:
            name = lane_name(group.environment, group.size)
            lanes.append(keys.lane(name))
            arguments += [group.group_id, name, group.arrival, group.payload_bytes, _environment(group), group.size]
        dissolved = await self._connection.run(
            "dissolve_batch",
            [keys.run, keys.lanes, keys.leases, keys.lease_states, keys.served, *lanes],
            arguments,
        )
        return bool(dissolved)


def _environment(group: LeasedGroup) -> Argument:
    return NO_ENVIRONMENT if group.environment is None else group.environment
