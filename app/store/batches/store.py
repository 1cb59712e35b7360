"""Store batches: commit, lease, end and keep them, and bring them back for a rewind."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic_core import to_json

from app.core.batches.leases import Lease, LeasedGroup, Replayed, as_returned
from app.core.ranks.sharding import BalanceHistory
from app.core.runs.settings import Policy
from app.core.runs.view import RunView
from app.store.batches import scripts
from app.store.batches.records import MOST_RECORDS, record_text
from app.store.batches.view import BatchEnd, BatchView, batch_commands, parse_end, read_batch_view
from app.store.redis.client import RedisClient
from app.store.redis.keys import NONE, RunKeys, lane_name, or_none
from app.store.redis.pipeline import Command
from app.store.runs.lease_codec import lease_text, parse_lease, stored_text
from app.store.runs.view import balance_text, parse_policy, reading
from lachesis.wire.errors import RunNotFound, RunRewound
from lachesis.wire.states import DropReason

_FIELDS = tuple(field.name for field in fields(LeasedGroup) if field.name != "replayed")
_values = attrgetter(*_FIELDS)

OLDEST_KEPT_READ = 16
"""How many of the oldest kept batches to read when a batch ends. Usually one of them is released."""

_KEPT_LEASES_READ_AT_ONCE = 16  # to release kept batches
_GROUPS_RELEASED_AT_ONCE = 512  # others wait as long


class Kept(NamedTuple):
    """The batches kept for a rewind.

    Attributes:
        batches: Ids and steps, by step: of all, or of the oldest.
        total: Number of all.
        payload_bytes: The payload of all.
        policy: The run's policy, read after them; None without settings.
    """

    batches: list[tuple[str, int]]
    total: int
    payload_bytes: int
    policy: Policy | None


class KeptLease(NamedTuple):
    """The lease under which a kept batch was acknowledged, and the policy version in force then."""

    policy_version: int
    lease: Lease


class Acknowledged(NamedTuple):
    """What an acknowledgement changed.

    Attributes:
        batches: Ids of the acknowledged batches.
        entered_groups: How many of their groups entered the replay buffer.
        replayed_groups: How many of their groups were replayed.
        kept: The batches that are kept now; None if batches are not kept.
    """

    batches: tuple[str, ...]
    entered_groups: int
    replayed_groups: int
    kept: Kept | None


class BatchStore:
    """Moves groups between the queue and leased batches."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def commit(
        self,
        run: str,
        lease: Lease,
        groups: Sequence[LeasedGroup],
        *,
        epoch: int,
        policy_version: int,
        seen_debts: Mapping[int, int],
        debts: Mapping[int, int],
        clock_ms: int,
        balance: BalanceHistory | None = None,
        delays: Mapping[str, int] | None = None,
        scarce: Mapping[int, int] | None = None,
    ) -> bool:
        """Take the planned groups out of the queue, all or none, into a new lease.

        One atomic step (`lua/batches/commit_batch.lua`): of two trainers that planned on the same view, one wins.

        Args:
            run: The run's name.
            lease: The lease; its step is one more than that of the view the plan was made on.
            groups: The planned groups, in training order; those from the replay buffer are reserved for it.
            epoch: The view's epoch.
            policy_version: The view's policy version.
            seen_debts: The view's debts.
            debts: Sequences owed to environments after this batch.
            clock_ms: Run clock at planning.
            balance: For a divided batch: the history of balances, this batch included. Its ranks are notified.
            delays: How often groups were passed over so far; None: unchanged.
            scarce: Since when batches wait for environments that send too little; None: they wait for none.

        Returns:
            False if the run or its queue changed since the plan was made: read it and plan again.
        """
        keys = RunKeys(run)
        queued = [(lane_name(group.environment, group.size), group) for group in _from_queue(groups)]
        command = scripts.commit_batch(
            keys,
            lane_keys=[keys.lane(lane) for lane, _ in queued],
            batch_id=lease.batch_id,
            lease=lease_text(lease),
            manifest=_manifest(groups),
            epoch=epoch,
            step=lease.step - 1,
            policy_version=policy_version,
            debts=json.dumps(debts),
            clock_ms=clock_ms,
            relaxed=lease.relaxed,
            balance=None if balance is None else balance_text(balance),
            delays=None if delays is None else json.dumps(delays),
            replayed_ids=[group.group_id for group in groups if group.replayed],
            scarce=json.dumps(scarce or {}),
            record=record_text(lease, clock_ms),
            most_records=MOST_RECORDS,
            seen_debts=seen_debts,
            queued_groups=[
                scripts.PlannedRow(
                    group.group_id, lane, group.payload_bytes, or_none(group.environment), group.size, group.tokens
                )
                for lane, group in queued
            ],
        )
        return bool(await self._connection.run(command))

    async def view(self, run: str, batch_id: str) -> BatchView:
        """Read a batch and the values needed to end it, in one round trip, even if it ended long ago.

        Raises:
            RunNotFound: There is no such run.
        """
        found = await self._connection.pipeline(batch_commands(RunKeys(run), batch_id))
        with reading(run):
            view = read_batch_view(batch_id, found)
        if view is None:
            raise RunNotFound.named(run)
        return view

    async def groups_of(self, run: str, batch_id: str) -> list[LeasedGroup] | None:
        """Read the groups of a leased batch, in training order; None if it has ended."""
        found = await self._connection.call("HGET", RunKeys(run).leases, batch_id)
        return None if found is None else _groups(found)

    async def leased_groups(self, run: str, batch_ids: Sequence[str]) -> list[list[LeasedGroup]]:
        """Read the groups of leased batches, in training order; none for a batch that has ended."""
        return await self._manifests(RunKeys(run).leases, batch_ids)

    async def batch_of(self, run: str, group_id: str, batch_ids: Sequence[str]) -> str | None:
        """Find which of these leased batches holds a group, in one round trip; None if none does."""
        found = await self._connection.call("HMGET", RunKeys(run).leases, *batch_ids) if batch_ids else []
        named = to_json(group_id)  # decoding takes long, and most manifests do not have the id
        for batch_id, manifest in zip(batch_ids, found, strict=True):
            if not manifest or named not in manifest:
                continue
            if any(group.group_id == group_id for group in _from_queue(_groups(manifest))):
                return batch_id
        return None

    async def mark_sent(self, run: str, lease: Lease) -> bool:
        """Note that a batch's reply was written out whole."""
        return await self.change(run, lease, replace(lease, state="sent"))

    async def mark_returned(self, run: str, lease: Lease) -> bool:
        """Note that a batch did not reach its trainer, if its lease is as it was read. It is handed out again."""
        return await self.change(run, lease, as_returned(lease))

    async def change(self, run: str, seen: Lease, new: Lease, epoch: int | None = None) -> bool:
        """Replace a lease that was read.

        Args:
            run: The run's name.
            seen: The lease as it was read.
            new: The lease from now on.
            epoch: The epoch that the change depends on; None if it depends on the lease alone.

        Returns:
            False if the lease is now neither the old nor the new one, or the epoch has changed.
        """
        keys = RunKeys(run)
        command = scripts.change_lease(
            keys,
            lease_states=keys.lease_states,
            batch_id=seen.batch_id,
            seen=stored_text(seen),
            new=lease_text(new),
            notify=new.state == "returned",
            epoch=epoch,
        )
        return bool(await self._connection.run(command))

    async def acknowledge(
        self, run: str, leases: Sequence[Lease], *, keep: bool, remembered_ms: int, epoch: int | None = None
    ) -> Acknowledged:
        """End leases that are still as they were read. Their groups are delivered.

        Args:
            run: The run's name.
            leases: The leases.
            keep: Whether their batches are kept for a rewind.
            remembered_ms: How long the ends of the batches are remembered, `Policy.remembered_ms`.
            epoch: The epoch that ``keep`` and ``remembered_ms`` depend on. If it has changed, no lease ends. None if
                they were just read.

        Returns:
            Which ended; how many of their groups entered the replay buffer, in no chunk yet; how many came from
            there; and, if ``keep``, the batches kept now.
        """
        keys = RunKeys(run)
        command = scripts.acknowledge_batches(
            keys,
            keep=keep,
            remembered_ms=remembered_ms,
            epoch=epoch,
            batches=[
                scripts.EndedLease(lease.batch_id, stored_text(lease), lease.step, lease.lease_id or NONE)
                for lease in leases
            ],
        )
        kept_commands = _kept_commands(keys, OLDEST_KEPT_READ) if keep else []
        ended, *kept = await self._connection.pipeline([command, *kept_commands])
        batches, entered_groups, replayed_groups = ended
        ids = tuple(map(bytes.decode, batches))
        return Acknowledged(ids, int(entered_groups), int(replayed_groups), _read_kept(*kept) if keep else None)

    async def dissolve(self, run: str, lease: Lease, groups: Sequence[LeasedGroup], remembered_ms: int) -> bool:
        """End a lease without delivering its batch. Its groups return to their places in their lanes."""
        keys = RunKeys(run)
        queued = [(lane_name(group.environment, group.size), group) for group in _from_queue(groups)]
        command = scripts.requeue_batch(
            keys,
            lane_keys=[keys.lane(lane) for lane, _ in queued],
            batch_id=lease.batch_id,
            seen=stored_text(lease),
            lease_id=lease.lease_id or NONE,
            step=lease.step,
            remembered_ms=remembered_ms,
            debt_changes=lease.debts,
            queued_groups=[
                scripts.RequeuedRow(
                    group.group_id,
                    lane,
                    group.arrival,
                    group.payload_bytes,
                    or_none(group.environment),
                    group.size,
                    group.tokens,
                )
                for lane, group in queued
            ],
        )
        return bool(await self._connection.run(command))

    async def discard(self, run: str, lease: Lease, reason: DropReason, remembered_ms: int) -> bool:
        """End a lease and drop its groups for a reason; False if the lease has changed since it was read."""
        command = scripts.discard_batch(
            RunKeys(run),
            batch_id=lease.batch_id,
            seen=stored_text(lease),
            step=lease.step,
            reason=reason,
            remembered_ms=remembered_ms,
            debt_changes=lease.debts,
        )
        return bool(await self._connection.run(command))

    async def with_lease(self, run: str, batch_ids: Sequence[str]) -> set[str]:
        """Return which of these batches have a lease."""
        found = await self._connection.call("HMGET", RunKeys(run).lease_states, *batch_ids) if batch_ids else []
        return {batch_id for batch_id, text in zip(batch_ids, found, strict=True) if text}

    async def end_of(self, run: str, batch_id: str) -> BatchEnd | None:
        """Read how a batch ended; None if it has not ended, or ended long ago."""
        (end,) = await self.ends_of(run, [batch_id])
        return end

    async def ends_of(self, run: str, batch_ids: Sequence[str]) -> list[BatchEnd | None]:
        """Read how batches ended, as `end_of`."""
        found = await self._connection.call("HMGET", RunKeys(run).history, *batch_ids) if batch_ids else []
        return list(map(parse_end, found))

    # Batches that are kept for a rewind

    async def kept(self, run: str, most: int | None = None) -> Kept:
        """Read which batches are kept: all, or the ``most`` oldest."""
        return _read_kept(*await self._connection.pipeline(_kept_commands(RunKeys(run), most)))

    async def kept_groups(self, run: str, batch_ids: Sequence[str]) -> list[list[LeasedGroup]]:
        """Read the groups of kept batches; none for a batch that is no longer kept."""
        return await self._manifests(RunKeys(run).kept, batch_ids)

    async def kept_from(self, run: str, step: int | None, most: int) -> list[KeptLease]:
        """Read the acknowledgements of the latest kept batches.

        Args:
            run: The run's name.
            step: Only batches of this step, all of them, and of steps before it. None: of any step.
            most: Most batches of other steps.
        """
        key, last = RunKeys(run).kept_steps, "+inf" if step is None else step
        found = await self._connection.pipeline(
            [
                ("ZRANGE", key, last, last, "BYSCORE"),
                ("ZRANGE", key, f"({last}", "-inf", "BYSCORE", "REV", "LIMIT", 0, most),
            ]
        )
        return await self.kept_leases(run, [batch_id.decode() for part in found for batch_id in part])

    async def _manifests(self, key: str, batch_ids: Sequence[str]) -> list[list[LeasedGroup]]:
        found = await self._connection.call("HMGET", key, *batch_ids) if batch_ids else []
        return [_groups(manifest or "[]") for manifest in found]

    async def kept_leases(self, run: str, batch_ids: Sequence[str]) -> list[KeptLease]:
        """Read the acknowledgements of kept batches; those no longer kept are left out."""
        found = await self._connection.call("HMGET", RunKeys(run).kept_leases, *batch_ids) if batch_ids else []
        return [_kept_lease(batch_id, text.decode()) for batch_id, text in zip(batch_ids, found, strict=True) if text]

    async def release_kept(
        self,
        run: str,
        batch_ids: Sequence[str],
        checkpoint: int | None = None,
        policy_version: int | None = None,
        rewinds: int | None = None,
    ) -> int:
        """Release kept batches, some at a time; returns how many.

        Args:
            run: The run's name.
            batch_ids: The batches.
            checkpoint: Step of the checkpoint that covers them; it is stored.
            policy_version: The policy version of that checkpoint; None: the one in force.
            rewinds: Number of rewinds of the run when the trainer began; None: unknown.

        Raises:
            RunRewound: It was rewound after that. Batches that were not released before are kept.
        """
        keys, total = RunKeys(run), 0
        async for part in self._parts(run, batch_ids):
            command = scripts.release_kept_batches(
                keys, checkpoint=checkpoint, policy_version=policy_version, rewinds=rewinds, batch_ids=part
            )
            released = await self._connection.run(command)
            if released < 0:
                raise RunRewound(f"run {run} was rewound after this trainer began")
            total += released
        return total

    async def _parts(self, run: str, batch_ids: Sequence[str]) -> AsyncIterator[list[str]]:
        """Divide kept batches into parts with few groups, at least one part."""
        part, groups = list[str](), 0
        for first in range(0, len(batch_ids), _KEPT_LEASES_READ_AT_ONCE):
            ids = batch_ids[first : first + _KEPT_LEASES_READ_AT_ONCE]
            kept = await self.kept_leases(run, ids) if len(batch_ids) > 1 else []
            sizes = {one.lease.batch_id: one.lease.groups for one in kept}
            for batch_id in ids:
                own = sizes.get(batch_id, 0)
                if part and groups + own > _GROUPS_RELEASED_AT_ONCE:
                    yield part
                    part, groups = [], 0
                part.append(batch_id)
                groups += own
        yield part

    async def rewind(
        self,
        run: str,
        step: int,
        view: RunView,
        leases: Iterable[tuple[Lease | None, Lease]],
        policy_version: int,
        request_id: str,
    ) -> bool:
        """Make every batch after ``step`` wait to be handed out again, and count the rewind.

        This is one atomic step (`lua/batches/rewind_run.lua`). It invalidates all decisions made before, and every
        lease of these batches: trainers that held one before can no longer change which batches come, and in which
        order.

        Args:
            run: The run's name.
            step: The step to go back to.
            view: The run this was decided on.
            leases: For each batch after that step, its lease as read (None if it is kept), and its new lease.
            policy_version: The policy version from now on.
            request_id: The id of the request, for `RunView.rewound_by`.

        Returns:
            False if the run has changed: read it and decide again.
        """
        command = scripts.rewind_run(
            RunKeys(run),
            step=step,
            seen_step=view.step,
            seen_rewinds=view.rewinds,
            policy_version=policy_version,
            request_id=request_id,
            batches=[
                scripts.RewoundLease(new.batch_id, "" if seen is None else stored_text(seen), lease_text(new))
                for seen, new in leases
            ],
        )
        return bool(await self._connection.run(command))


def _kept_commands(keys: RunKeys, most: int | None) -> list[Command]:
    return [
        ("ZRANGE", keys.kept_steps, 0, -1 if most is None else most - 1, "WITHSCORES"),
        ("ZCARD", keys.kept_steps),
        ("HMGET", keys.run, "config", "policy", "kept_bytes"),
    ]


def _read_kept(batches: Sequence[tuple[bytes, float]], count: int, of_run: Sequence[bytes | None]) -> Kept:
    config, policy, payload_bytes = of_run
    ids_and_steps = [(batch_id.decode(), int(step)) for batch_id, step in batches]
    return Kept(ids_and_steps, count, int(payload_bytes or 0), None if config is None else parse_policy(policy))


def _kept_lease(batch_id: str, text: str) -> KeptLease:
    version, _, lease = text.partition(" ")
    return KeptLease(int(version), parse_lease(batch_id, lease))


def _manifest(groups: Sequence[LeasedGroup]) -> str:
    """Encode the groups of a batch. The deep copies of `dataclasses.asdict` took a tenth of the time of a take."""
    values = [dict(zip(_FIELDS, _values(group), strict=True)) | _replay_part(group) for group in groups]
    return to_json(values).decode()


def _replay_part(group: LeasedGroup) -> dict[str, Any]:
    return {} if group.replayed is None else {"replayed": asdict(group.replayed)}


def _groups(manifest: str | bytes) -> list[LeasedGroup]:
    """Decode what `_manifest` encoded."""
    return [
        LeasedGroup(**group | ({"replayed": Replayed(**group["replayed"])} if "replayed" in group else {}))
        for group in json.loads(manifest)
    ]


def _from_queue(groups: Iterable[LeasedGroup]) -> list[LeasedGroup]:
    """Return the groups that are not from the replay buffer. Only these count in the run's totals and lanes."""
    return [group for group in groups if group.replayed is None]
