"""Groups on their way in and out: payloads first, index second, garbage last."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.core.model import DropReason, Lane, LaneId, PlannedGroup, QueuedGroup
from app.store import scripts
from app.store.codec import EncodedGroup, checksum
from app.store.connection import Argument, Connection, Pipeline
from app.store.keys import RUNS, RunKeys, lane_name

WantedHeads = Mapping[LaneId, tuple[int, int]]
_SWEEP = 1000  # payloads removed per round trip


@dataclass(frozen=True, slots=True)
class Submission:
    """A group on its way in: its columns, and an id chosen by the caller so that a repetition stores nothing."""

    group_id: str
    encoded: EncodedGroup


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a submission goes: to which environment's account, and to its buffer or the queue.

    Attributes:
        environment: A registered environment, or None.
        buffered: Whether it waits in that environment's buffer for a set to complete.
    """

    environment: int | None
    buffered: bool


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group's index entry."""

    payload_bytes: int
    checksum: str
    accepted_ms: int


class GroupStore:
    """Takes groups in, reads them, and removes them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def admit(
        self, run: str, submissions: Sequence[Submission], placements: Sequence[Placement], epoch: int | None
    ) -> bool:
        """Store groups, all or none, in one round trip. Once this returns True they survive any crash.

        Each payload is written by a command of its own, then a small script indexes them: a write torn by a crash
        leaves an orphan, which is reaped, never half a group. Safe to repeat.

        Args:
            run: The run's name.
            submissions: What to store.
            placements: Where each goes.
            epoch: The run's epoch that placements were decided on, or None if they do not depend on it.

        Returns:
            False if the epoch has moved on, or a reservation was given up: nothing was stored; place and try again.

        Raises:
            StoreFull: Redis is out of memory; nothing was stored.
            StoreUnavailable: The outcome is unknown; repeat with the same ids.
        """
        keys = RunKeys(run)
        ids = [submission.group_id for submission in submissions]
        own_keys, own_arguments = _index_arguments(keys, submissions, placements)
        reserve, index = scripts.load("reserve_groups").digest, scripts.load("admit_groups").digest
        run_keys = (keys.run, keys.recent, keys.unindexed, keys.groups, keys.seen, keys.lanes, keys.buffers)

        def fill(pipe: Pipeline) -> None:
            pipe.evalsha(reserve, 3, keys.run, keys.recent, keys.unindexed, *ids)
            # Whoever announced the run may have done so before it was forgotten. Now it holds reservations, so that it
            # will not be; a name put in before them could still be taken out in between.
            pipe.sadd(RUNS, run)
            for submission in submissions:
                pipe.set(keys.payload(submission.group_id), submission.encoded.payload)
            every_key = (*run_keys, *own_keys)
            pipe.evalsha(index, len(every_key), *every_key, "" if epoch is None else epoch, *own_arguments)

        return bool((await self._connection.pipeline(fill))[-1])

    async def heads(self, run: str, wanted: WantedHeads) -> list[Lane]:
        """Read the oldest groups of lanes.

        Args:
            wanted: Lane -> (groups queued, most heads to read).
        """
        return await self._heads(wanted, RunKeys(run).lane)

    async def buffer_heads(self, run: str, wanted: WantedHeads) -> list[Lane]:
        """Read the oldest groups of buffers; like `heads`."""
        return await self._heads(wanted, RunKeys(run).buffer)

    async def _heads(self, wanted: WantedHeads, key_of: Callable[[str], str]) -> list[Lane]:
        def fill(pipe: Pipeline) -> None:
            for lane, (_, most) in wanted.items():
                pipe.zrange(key_of(lane_name(*lane)), 0, most - 1, withscores=True)

        replies = await self._connection.pipeline(fill) if wanted else []
        return [
            Lane(
                environment,
                size,
                max(queued, len(reply)),
                tuple(QueuedGroup(int(arrival), group.decode()) for group, arrival in reply),
            )
            for ((environment, size), (queued, _)), reply in zip(wanted.items(), replies, strict=True)
        ]

    async def release_buffered(self, run: str, groups: Sequence[PlannedGroup]) -> bool:
        """Move buffered groups to the queue, all or none; False if one of them is not buffered any more."""
        keys = RunKeys(run)
        places: list[str] = []
        arguments: list[Argument] = []
        for group in groups:
            name = lane_name(group.environment, group.size)
            places += [keys.buffer(name), keys.lane(name)]
            arguments += [group.group_id, name]
        reply = await self._connection.run(
            "release_buffered", [keys.run, keys.groups, keys.buffers, keys.lanes, *places], arguments
        )
        return bool(reply[0])

    async def entries(self, run: str, group_ids: Sequence[str]) -> list[StoredGroup | None]:
        """Read index entries; None where the run does not hold the group."""
        keys = RunKeys(run)
        replies = await self._connection.call("HMGET", keys.groups, *group_ids)
        return [None if reply is None else _stored_group(reply) for reply in replies]

    async def payloads(self, run: str, group_ids: Sequence[str]) -> list[bytes | None]:
        """Read payloads; None where one is missing."""
        keys = RunKeys(run)

        def fill(pipe: Pipeline) -> None:
            for group_id in group_ids:
                pipe.get(keys.payload(group_id))

        return await self._connection.pipeline(fill)

    async def latest(self, run: str) -> bytes | None:
        """Read the columns of the newest group (kept even if it has left the store), or None before there is one."""
        keys = RunKeys(run)
        group_id = await self._connection.call("HGET", keys.run, "latest")
        return None if group_id is None else (await self.payloads(run, [group_id.decode()]))[0]

    async def drop(self, run: str, group: PlannedGroup, reason: DropReason) -> bool:
        """Take a queued group out of the store for a stated reason; False if it was not queued any more."""
        keys = RunKeys(run)
        name = lane_name(group.environment, group.size)
        dropped = await self._connection.run(
            "drop_group",
            [keys.run, keys.groups, keys.lanes, keys.lane(name), keys.dropped, keys.unindexed],
            [group.group_id, name, reason.value],
        )
        return bool(dropped)

    async def give_up_orphans(self, run: str, before_ms: int) -> int:
        """Give up on payloads reserved before a run clock and never indexed; `sweep` then removes them."""
        return int(await self._connection.run("condemn_orphans", [RunKeys(run).unindexed], [before_ms, _SWEEP]))

    async def sweep(self, run: str) -> int:
        """Remove the payloads that no index entry names any more; returns how many."""
        keys = RunKeys(run)
        removed = 0
        while True:
            garbage = await self._connection.call("ZRANGEBYSCORE", keys.unindexed, -1, -1, "LIMIT", 0, _SWEEP)
            if garbage:
                await self._unlink(keys, garbage)
                await self._connection.call("ZREM", keys.unindexed, *garbage)
            removed += len(garbage)
            if len(garbage) < _SWEEP:
                return removed + await self._sweep_trash(keys)

    async def _sweep_trash(self, keys: RunKeys) -> int:
        """Remove the payloads of runs that were reset."""
        removed = 0
        for token in await self._connection.call("SMEMBERS", keys.trash):
            trashed = keys.trashed(token.decode())
            cursor = None
            while cursor != 0:
                cursor, entries = await self._connection.call("HSCAN", trashed, cursor or 0, "COUNT", _SWEEP)
                if entries:
                    await self._unlink(keys, list(entries))
                removed += len(entries)
            await self._connection.call("UNLINK", trashed)
            await self._connection.call("SREM", keys.trash, token)
        return removed

    async def _unlink(self, keys: RunKeys, group_ids: Sequence[bytes]) -> None:
        await self._connection.call("UNLINK", *(keys.payload(group_id.decode()) for group_id in group_ids))


def _index_arguments(
    keys: RunKeys, submissions: Sequence[Submission], placements: Sequence[Placement]
) -> tuple[list[str], list[Argument]]:
    own_keys: list[str] = []
    arguments: list[Argument] = []
    for submission, placement in zip(submissions, placements, strict=True):
        name = lane_name(placement.environment, submission.encoded.size)
        payload = submission.encoded.payload
        own_keys += [
            keys.buffer(name) if placement.buffered else keys.lane(name),
            keys.payload(submission.group_id),
        ]
        arguments += [submission.group_id, name, "buffered" if placement.buffered else "queued"]
        arguments += [len(payload), checksum(payload)]
        arguments.append("" if placement.environment is None else placement.environment)
    return own_keys, arguments


def _stored_group(entry: bytes) -> StoredGroup:
    size, digest, accepted = entry.decode().split()
    return StoredGroup(int(size), digest, int(accepted))
