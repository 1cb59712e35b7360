"""Batches: committed all or nothing, leased, acknowledged, returned, dissolved."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from app.core.model import Lease, LeasedGroup, LeaseState
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
        lease: Lease,
        groups: Sequence[LeasedGroup],
        *,
        epoch: int,
        debts: Mapping[int, int],
        clock_ms: int,
    ) -> bool:
        """Take the planned groups out of the queue, all or none, into a new lease.

        One atomic step (`lua/commit_batch.lua`): of two trainers that planned on the same view, one wins.

        Args:
            run: The run's name.
            lease: The lease; its step is one more than that of the view the plan was made on.
            groups: The planned groups, in training order.
            epoch: The view's epoch.
            debts: Sequences owed to environments after this batch.
            clock_ms: Run clock at planning.

        Returns:
            False if the run or its queue moved on since the plan was made: look again, plan again.
        """
        keys = RunKeys(run)
        arguments: list[Argument] = [lease.batch_id, lease_text(lease), json.dumps([asdict(group) for group in groups])]
        arguments += [epoch, lease.step - 1, json.dumps(debts), clock_ms, int(lease.relaxed)]
        lanes = []
        for group in groups:
            name = lane_name(group.environment, group.size)
            lanes.append(keys.lane(name))
            arguments += [group.group_id, name, _environment(group), group.size]
        committed = await self._connection.run(
            "commit_batch",
            [keys.run, keys.groups, keys.lanes, keys.served, keys.leases, keys.lease_states, *lanes],
            arguments,
        )
        return bool(committed)

    async def groups_of(self, run: str, lease: Lease) -> list[LeasedGroup] | None:
        """Read which groups a lease holds, in training order; None if it has ended."""
        found = await self._connection.call("HGET", RunKeys(run).leases, lease.batch_id)
        return None if found is None else [LeasedGroup(**group) for group in json.loads(found)]

    async def mark_sent(self, run: str, lease: Lease) -> bool:
        """Note that a batch's reply was written out whole."""
        return await self.change(run, lease, replace(lease, state=LeaseState.SENT))

    async def give_back(self, run: str, lease: Lease) -> bool:
        """Note that a batch did not reach its trainer: it is served again. Only from the state it was seen in."""
        return await self.change(run, lease, replace(lease, state=LeaseState.RETURNED))

    async def change(self, run: str, seen: Lease, new: Lease) -> bool:
        """Move a lease on from the state it was seen in; False if it is in another one by now, but for the new one."""
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
