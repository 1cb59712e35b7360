"""Store, read and delete groups: write payloads first, then the index; delete payloads last."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from weakref import WeakValueDictionary

from app.core.groups.deletion import QUEUED, SearchPosition
from app.core.model import DropReason, Lane, LaneId, PlannedGroup, QueuedGroup
from app.core.runs.counters import Starvation
from app.store.curriculum.groups import GroupObservations, observation_arguments
from app.store.groups import scripts
from app.store.groups.entries import (
    EndedGroup,
    Preconditions,
    Stored,
    StoredGroup,
    Submission,
    index_arguments,
    or_text,
    parse_entry,
    parse_history,
    parse_result,
)
from app.store.redis.client import RedisClient
from app.store.redis.keys import NONE, RunKeys, lane_name
from app.store.redis.payloads import write_then_index
from app.store.redis.pipeline import Command
from app.store.redis.scripts import positional
from app.store.runs import scripts as run_scripts
from app.store.runs.view import parse_starvation

WantedHeads = Mapping[LaneId, tuple[int, int]]
_SWEEP = 500  # payloads checked per round trip; Redis serves no other request during that time


@dataclass(frozen=True, slots=True)
class LaneSlice:
    """Groups of a lane or buffer after a position, oldest first, and how many follow them."""

    groups: tuple[QueuedGroup, ...]
    left: int


class GroupStore:
    """Takes groups in, reads them, and removes them."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # a run's, while somebody sweeps it

    async def admit(
        self,
        run: str,
        submissions: Sequence[Submission],
        preconditions: Preconditions,
        told: Sequence[GroupObservations] = (),
    ) -> Stored:
        """Store submissions, each all or none, in one round trip. After this returns, they survive any crash.

        Payloads and their index are written in one transaction. If transactions are unsafe (`RedisClient.transacts`) or
        payloads are very large, each payload is written by a command of its own, then indexed by a small script. A
        write torn by a crash then leaves a pending payload, which is deleted later, and never half a group. Safe to
        repeat.

        Args:
            run: The run's name.
            submissions: What to store; ids given by senders are unique among all of them.
            preconditions: What the places were decided on.
            told: What the groups tell curricula, counted in the same step, once; of those that are new. Positions are
                those of groups among all submissions.

        Returns:
            The result of each. A group repeated by its sender stores nothing and has the result of the first time.

        Raises:
            StoreFull: Redis is out of memory; nothing was stored.
            StoreUnavailable: The outcome is unknown; repeat with the same ids.
        """
        keys = RunKeys(run)
        payloads = {
            group.group_id: group.encoded.payload
            for submission in submissions
            for group in submission
            if not group.place.dropped
        }
        index = partial(_index, keys, submissions, preconditions, told)
        outcomes, starvation = await write_then_index(self._connection, keys, payloads, index)
        results = [parse_result(submission, own) for submission, own in zip(submissions, outcomes, strict=True)]
        return Stored(results, _starvation(starvation))

    async def heads(self, run: str, wanted: WantedHeads) -> list[Lane]:
        """Read the oldest groups of lanes.

        Args:
            wanted: Lane -> (groups queued, most heads to read).
        """
        return await self._heads(wanted, RunKeys(run).lane)

    async def queued(self, run: str, groups: Sequence[tuple[LaneId, str]]) -> list[bool]:
        """Tell which of some groups, by lane and id, wait in the queue."""
        keys = RunKeys(run)
        commands: list[Command] = [("ZSCORE", keys.lane(lane_name(*lane)), group_id) for lane, group_id in groups]
        return [score is not None for score in (await self._connection.pipeline(commands) if commands else [])]

    async def buffer_heads(self, run: str, wanted: WantedHeads) -> list[Lane]:
        """Read the oldest groups of buffers; like `heads`."""
        return await self._heads(wanted, RunKeys(run).buffer)

    async def slices(self, run: str, wanted: Sequence[tuple[SearchPosition, int]]) -> list[LaneSlice]:
        """Read the next groups of lanes and buffers, oldest first, in one round trip.

        Args:
            run: The run's name.
            wanted: The position in each to start from, and the most groups to read.
        """
        keys = RunKeys(run)
        commands: list[Command] = []
        for start, most in wanted:
            key = (keys.lane if start.state == QUEUED else keys.buffer)(lane_name(*start.lane))
            later = f"({start.arrival}"
            commands.append(("ZRANGEBYSCORE", key, later, "+inf", "WITHSCORES", "LIMIT", 0, most))
            commands.append(("ZCOUNT", key, later, "+inf"))
        replies = await self._connection.pipeline(commands) if commands else []
        return [
            LaneSlice(tuple(QueuedGroup(int(arrival), group.decode()) for group, arrival in found), count - len(found))
            for found, count in zip(replies[::2], replies[1::2], strict=True)
        ]

    async def _heads(self, wanted: WantedHeads, key_of: Callable[[str], str]) -> list[Lane]:
        commands: list[Command] = [
            ("ZRANGE", key_of(lane_name(*lane)), 0, most - 1, "WITHSCORES") for lane, (_, most) in wanted.items()
        ]
        replies = await self._connection.pipeline(commands) if commands else []
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
        lanes = [lane_name(group.environment, group.size) for group in groups]
        command = scripts.release_buffered(
            keys,
            places=[scripts.ReleasedPlace(keys.buffer(lane), keys.lane(lane)) for lane in lanes],
            released_groups=[
                scripts.ReleasedRow(group.group_id, lane) for lane, group in zip(lanes, groups, strict=True)
            ],
        )
        reply = await self._connection.run(command)
        return bool(reply[0])

    async def entries(self, run: str, group_ids: Sequence[str]) -> list[StoredGroup | None]:
        """Read index entries; None where the run does not hold the group."""
        (replies,) = await self._connection.pipeline([("HMGET", RunKeys(run).groups, *group_ids)])
        return [None if reply is None else parse_entry(reply.decode()) for reply in replies]

    async def entries_and_payloads(
        self, run: str, group_ids: Sequence[str], others: Sequence[str]
    ) -> tuple[list[StoredGroup | None], list[bytes | None]]:
        """Read index entries, and payloads of these and other groups, in one round trip; None where one is missing."""
        keys = RunKeys(run)
        own: Command = ("HMGET", keys.groups, *group_ids)
        entries, payloads = await self._connection.pipeline([own, ("MGET", *map(keys.payload, (*group_ids, *others)))])
        return [None if entry is None else parse_entry(entry.decode()) for entry in entries], list(payloads)

    async def payloads(self, run: str, group_ids: Sequence[str]) -> list[bytes | None]:
        """Read payloads; None where one is missing."""
        keys = RunKeys(run)
        return (await self._connection.pipeline([("MGET", *map(keys.payload, group_ids))]))[0] if group_ids else []

    async def payload_bytes(self, run: str, queued: Sequence[LaneId], buffered: Sequence[LaneId]) -> int:
        """Return the sum of the payload of all waiting groups in these lanes and buffers."""
        keys = RunKeys(run)
        places = [
            *(keys.lane(lane_name(*lane)) for lane in queued),
            *(keys.buffer(lane_name(*lane)) for lane in buffered),
        ]
        found = await self._connection.pipeline([("ZRANGE", place, 0, -1) for place in places]) if places else []
        group_ids = [group.decode() for groups in found for group in groups]
        entries = await self.entries(run, group_ids) if group_ids else []
        return sum(entry.payload_bytes for entry in entries if entry is not None)

    async def latest(self, run: str) -> bytes | None:
        """Read the columns of the newest group (kept even if it has left the store), or None before there is one."""
        group_id = await self._connection.call("HGET", RunKeys(run).run, "latest")
        return None if group_id is None else (await self.payloads(run, [group_id.decode()]))[0]

    async def drop(self, run: str, groups: Sequence[tuple[str, LaneId]], reason: DropReason, history_ms: int) -> int:
        """Take groups that wait, queued or buffered, out of the store for a stated reason.

        Args:
            run: The run's name.
            groups: Their ids and lanes.
            reason: Why.
            history_ms: How long that is remembered, milliseconds of run clock.

        Returns:
            How many there were; one that does not wait any more is passed over.
        """
        if not groups:
            return 0
        keys = RunKeys(run)
        lanes = [lane_name(*lane) for _, lane in groups]
        command = scripts.drop_groups(
            keys,
            places=[scripts.WaitingPlace(keys.lane(lane), keys.buffer(lane)) for lane in lanes],
            reason=reason.value,
            history_ms=history_ms,
            dropped_groups=[
                scripts.DroppedRow(group_id, name, or_text(environment, NONE))
                for name, (group_id, (environment, _)) in zip(lanes, groups, strict=True)
            ],
        )
        return int(await self._connection.run(command))

    async def of_versions(self, run: str, least: int | str, most: int | str, limit: int) -> list[str]:
        """Read ids of groups that wait and were sampled by a policy version from ``least`` to ``most``.

        Args:
            run: The run's name.
            least: Smallest version, or ``-inf``.
            most: Largest version, or ``+inf``.
            limit: Most ids to read.
        """
        found = await self._connection.call("ZRANGEBYSCORE", RunKeys(run).versions, least, most, "LIMIT", 0, limit)
        return [group_id.decode() for group_id in found]

    async def restamp(self, run: str, group_ids: Sequence[str], version: int) -> int:
        """Let groups that wait count as sampled by another policy version; returns how many there were."""
        command = run_scripts.set_group_versions(RunKeys(run), policy_version=version, group_ids=group_ids)
        return int(await self._connection.run(command))

    async def group_of(self, run: str, given_id: str) -> str | None:
        """Find the group its sender called ``given_id``; None if there is none, or it is long gone."""
        found = await self._connection.call("HGET", RunKeys(run).given_ids, given_id)
        return None if found is None else str(found.decode().split()[0])

    async def known(self, run: str, given_ids: Sequence[str]) -> frozenset[str]:
        """Return which of the sender's ids belong to groups that came before."""
        (found,) = await self._connection.pipeline([("HMGET", RunKeys(run).given_ids, *given_ids)])
        return frozenset(given for given, first in zip(given_ids, found, strict=True) if first is not None)

    async def history(self, run: str, group_id: str) -> EndedGroup | None:
        """Read the end of a group; None if it has not left, or left long ago."""
        found = await self._connection.call("HGET", RunKeys(run).history, group_id)
        return None if found is None else parse_history(found.decode())

    async def where(self, run: str, group_id: str, lane: LaneId) -> str | None:
        """Say where a group of this lane waits: ``queued``, ``buffered``, or None if it does not."""
        keys, name = RunKeys(run), lane_name(*lane)
        for place, key in (("queued", keys.lane(name)), ("buffered", keys.buffer(name))):
            if await self._connection.call("ZSCORE", key, group_id) is not None:
                return place
        return None

    async def mark_abandoned(self, run: str, before_ms: int) -> int:
        """Mark payloads that have been pending since before a run clock; `delete_marked` then deletes them."""
        command = scripts.mark_abandoned_payloads(RunKeys(run), before_ms=before_ms, most=_SWEEP)
        return int(await self._connection.run(command))

    async def delete_marked(self, run: str) -> int:
        """Delete the marked payloads that nothing names; returns how many."""
        async with self._turns.setdefault(run, asyncio.Lock()):
            return await self._delete_marked(RunKeys(run))

    async def _delete_marked(self, keys: RunKeys) -> int:
        find = scripts.find_marked_payloads(keys, naming=keys.naming_payloads(), most=_SWEEP)
        removed = 0
        removal: list[Command] = []
        while True:
            # In one round trip: what was found is removed, then more is looked for.
            *_, (looked_at, *unnamed), tokens = await self._connection.pipeline(
                [*removal, find, ("SMEMBERS", keys.marked_hashes)]
            )
            if not looked_at:
                break
            removed += len(unnamed)
            removal = [*_unlink(keys, unnamed), ("ZREM", keys.unreferenced, *unnamed)] if unnamed else []
        for token in tokens:
            removed += await self._delete_marked_hash(keys, token.decode())
        return removed

    async def _delete_marked_hash(self, keys: RunKeys, token: str) -> int:
        """Delete the payloads that only a marked hash names, then the hash. If interrupted, it starts again."""
        marked_hash, naming = keys.marked_hash(token), keys.naming_payloads()
        removed, cursor = 0, b"0"
        removal: list[Command] = []
        while True:
            find = scripts.scan_marked_hash(keys, marked_hash=marked_hash, naming=naming, cursor=cursor, about=_SWEEP)
            *_, (cursor, *unnamed) = await self._connection.pipeline([*removal, find])
            removed += len(unnamed)
            removal = _unlink(keys, unnamed)
            if cursor == b"0":
                break
        await self._connection.pipeline([*removal, ("UNLINK", marked_hash), ("SREM", keys.marked_hashes, token)])
        return removed


def _unlink(keys: RunKeys, unnamed: Sequence[bytes]) -> list[Command]:
    """Remove payloads that nothing names: none of these can be named again."""
    return [("UNLINK", *(keys.payload(one.decode()) for one in unnamed))] if unnamed else []


def _index(
    keys: RunKeys,
    submissions: Sequence[Submission],
    preconditions: Preconditions,
    told: Sequence[GroupObservations],
    *,
    reserved: bool,
) -> Command:
    common = [
        preconditions.epoch,
        or_text(preconditions.policy_version, ""),
        preconditions.dedup_ms,
        preconditions.history_ms,
    ]
    common += [or_text(preconditions.max_groups, ""), or_text(preconditions.max_bytes, ""), -1 if reserved else 0]
    common.append(" ".join(map(str, map(len, submissions))))
    own_keys, own_arguments = index_arguments(keys, chain.from_iterable(submissions))
    told_keys, told_arguments = observation_arguments(keys, told)
    every_key = (*_run_keys(keys), *own_keys, *told_keys)
    return positional("admit_groups", every_key, (*common, *own_arguments, *told_arguments))


@lru_cache(maxsize=64)  # the same for each submission to a run
def _run_keys(keys: RunKeys) -> tuple[str, ...]:
    first = (keys.run, keys.recent, keys.unreferenced, keys.groups, keys.seen, keys.sent, keys.lanes, keys.buffers)
    then = (
        keys.versions,
        keys.given_ids,
        keys.given_ids_until,
        keys.dropped,
        keys.history,
        keys.ended,
        keys.starvation,
    )
    return first + then


def _starvation(pairs: Sequence[bytes]) -> Starvation | None:
    words = [word.decode() for word in pairs]
    return parse_starvation(dict(zip(words[::2], words[1::2], strict=True))) if words else None
