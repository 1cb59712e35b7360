"""Store, read and drop groups: write payloads first, then the index."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from app.core.groups.deletion import SearchPosition
from app.core.model import Lane, LaneId, PlannedGroup, QueuedGroup
from app.core.runs.counters import Starvation
from app.core.runs.view import QueueView
from app.store.curriculum.groups import GroupObservations
from app.store.groups import scripts
from app.store.groups.admission import admission, parse_result
from app.store.groups.entries import (
    GroupAge,
    Preconditions,
    Stored,
    StoredGroup,
    Submission,
    parse_age,
    parse_entry,
)
from app.store.groups.payloads import write_then_index
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys, lane_name, or_none, parse_lane_name
from app.store.redis.pipeline import Command
from app.store.runs import scripts as run_scripts
from app.store.runs.view import parse_starvation
from lachesis.wire.states import QUEUED, DropReason

DROPPED_AT_ONCE = 192
"""Groups that a script drops, within about 4 ms. Redis serves no other request during that time."""

WantedHeads = Mapping[LaneId, tuple[int, int]]
_HEADS_AT_ONCE = 2000  # parsed before other requests have a turn
_ENTRIES_AT_ONCE = 1000  # read within about 4 ms; other requests wait for so long


@dataclass(frozen=True, slots=True)
class LaneSlice:
    """Groups of a lane or buffer after a position, oldest first, and how many follow them."""

    groups: tuple[QueuedGroup, ...]
    left: int


class GroupStore:
    """Takes groups in, reads them, and drops them."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def admit(
        self,
        run: str,
        submissions: Sequence[Submission],
        preconditions: Preconditions,
        observed: Sequence[GroupObservations] = (),
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
            observed: The observations that new groups bring to curricula. They are counted once, in the same step.
                Positions count the groups of all submissions.

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
        index = partial(admission, keys, submissions, preconditions, observed)
        outcomes, starvation = await write_then_index(self._connection, keys, payloads, index)
        accounts = preconditions.accounts or [None] * len(submissions)
        results = [
            parse_result(submission, outcome, preconditions, account)
            for submission, outcome, account in zip(submissions, outcomes, accounts, strict=True)
        ]
        return Stored(results, _starvation(starvation))

    async def heads(self, run: str, wanted: WantedHeads) -> list[Lane]:
        """Read the oldest groups of lanes.

        Args:
            wanted: Lane -> (groups queued when they were counted, most heads to read).

        Returns:
            The lanes as they are now: a lane without so many groups has as many as were read.
        """
        return await self._heads(wanted, RunKeys(run).lane)

    async def lanes_by_age(self, run: str, most: int | None = None) -> Iterator[LaneId]:
        """Read which lanes have groups, the one with the oldest group first: all lanes, or at most so many."""
        last = -1 if most is None else most - 1
        names = await self._connection.call("ZRANGE", RunKeys(run).lane_heads, 0, last)
        return map(parse_lane_name, names)

    async def queued(self, run: str, groups: Sequence[tuple[LaneId, str]]) -> list[bool]:
        """Return which of these groups, by lane and id, wait in the queue."""
        keys = RunKeys(run)
        commands: list[Command] = [("ZSCORE", keys.lane(lane_name(*lane)), group_id) for lane, group_id in groups]
        return [score is not None for score in await self._connection.pipeline(commands)]

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
        replies = await self._connection.pipeline(commands)
        return [
            LaneSlice(tuple(QueuedGroup(int(arrival), group.decode()) for group, arrival in found), count - len(found))
            for found, count in zip(replies[::2], replies[1::2], strict=True)
        ]

    async def _heads(self, wanted: WantedHeads, key_of: Callable[[str], str]) -> list[Lane]:
        commands: list[Command] = [
            ("ZRANGE", key_of(lane_name(*lane)), 0, most - 1, "WITHSCORES") for lane, (_, most) in wanted.items()
        ]
        replies = await self._connection.pipeline(commands)
        lanes, parsed = list[Lane](), 0
        for ((environment, size), (counted, most)), reply in zip(wanted.items(), replies, strict=True):
            heads: list[QueuedGroup] = []
            for first in range(0, len(reply), _HEADS_AT_ONCE):
                part = reply[first : first + _HEADS_AT_ONCE]
                heads += [QueuedGroup(int(arrival), group.decode()) for group, arrival in part]
                parsed += len(part)
                if parsed >= _HEADS_AT_ONCE:
                    await asyncio.sleep(0)
                    parsed = 0
            queued = max(counted, most) if len(reply) == most else len(reply)  # some may have left since the count
            lanes.append(Lane(environment, size, queued, tuple(heads)))
        return lanes

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
        """Read index entries; None where the run does not hold the group. Many are read in parts, not at one moment."""
        found: list[StoredGroup | None] = []
        async for replies in self._entries(run, group_ids):
            found += map(_entry, replies)
        return found

    async def ages(self, run: str, group_ids: Sequence[str]) -> list[GroupAge | None]:
        """Read what decides whether groups are too old; like `entries`."""
        found: list[GroupAge | None] = []
        async for replies in self._entries(run, group_ids):
            found += [None if reply is None else parse_age(reply.decode()) for reply in replies]
        return found

    async def _entries(self, run: str, group_ids: Sequence[str]) -> AsyncIterator[list[bytes | None]]:
        for first in range(0, len(group_ids), _ENTRIES_AT_ONCE):
            part = group_ids[first : first + _ENTRIES_AT_ONCE]
            yield await self._connection.call("HMGET", RunKeys(run).groups, *part)

    async def entries_and_payloads(
        self, run: str, group_ids: Sequence[str], others: Sequence[str]
    ) -> tuple[list[StoredGroup | None], list[bytes | None]]:
        """Read index entries, and payloads of these and other groups; None where one is missing.

        Many are read in parts, each in one round trip. The last part has the payloads of the other groups.
        """
        keys = RunKeys(run)
        entries: list[StoredGroup | None] = []
        payloads: list[bytes | None] = []
        for first in range(0, len(group_ids), _ENTRIES_AT_ONCE):
            part = group_ids[first : first + _ENTRIES_AT_ONCE]
            with_payload = part if first + _ENTRIES_AT_ONCE < len(group_ids) else [*part, *others]
            own: Command = ("HMGET", keys.groups, *part)
            found, held = await self._connection.pipeline([own, ("MGET", *map(keys.payload, with_payload))])
            entries += map(_entry, found)
            payloads += held
        return entries, payloads

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
        found = await self._connection.pipeline([("ZRANGE", place, 0, -1) for place in places])
        group_ids = [group.decode() for groups in found for group in groups]
        entries = await self.entries(run, group_ids)
        return sum(entry.payload_bytes for entry in entries if entry is not None)

    async def latest(self, run: str, admit: Callable[[int], Awaitable[None]] | None = None) -> bytes | None:
        """Read the columns of the newest group (kept even if it has left the store), or None before there is one.

        Args:
            run: The run's name.
            admit: Awaited with the bytes of the columns before they are read. An error of it is raised.
        """
        group_id = await self._connection.call("HGET", RunKeys(run).run, "latest")
        if group_id is None:
            return None
        if admit is not None:
            await admit(int(await self._connection.call("STRLEN", RunKeys(run).payload(group_id.decode()))))
        return (await self.payloads(run, [group_id.decode()]))[0]

    async def drop(self, run: str, groups: Sequence[tuple[str, LaneId]], reason: DropReason) -> int:
        """Drop groups that wait, queued or buffered, for a reason.

        Args:
            run: The run's name.
            groups: Their ids and lanes.
            reason: Why.

        Returns:
            How many were dropped. Groups that no longer wait are skipped.
        """
        parts = (groups[first : first + DROPPED_AT_ONCE] for first in range(0, len(groups), DROPPED_AT_ONCE))
        return sum([await self._drop(run, part, reason) for part in parts])

    async def _drop(self, run: str, groups: Sequence[tuple[str, LaneId]], reason: DropReason) -> int:
        keys = RunKeys(run)
        by_lane: defaultdict[LaneId, dict[str, None]] = defaultdict(dict)
        for group_id, lane in groups:
            by_lane[lane][group_id] = None
        names = {lane: lane_name(*lane) for lane in by_lane}
        command = scripts.drop_groups(
            keys,
            reason=reason,
            dropped_lanes=[
                scripts.DroppedLane(name=names[lane], environment=str(or_none(lane[0])), groups=len(group_ids))
                for lane, group_ids in by_lane.items()
            ],
            places=[scripts.WaitingPlace(keys.lane(name), keys.buffer(name)) for name in names.values()],
            group_ids=[group_id for group_ids in by_lane.values() for group_id in group_ids],
        )
        return int(await self._connection.run(command))

    async def drop_versions(
        self, run: str, versions: tuple[int | str, int | str], limit: int, reason: DropReason, view: QueueView
    ) -> int | None:
        """Drop groups that wait and were sampled by some policy versions.

        Args:
            run: The run's name.
            versions: The smallest and the greatest version, as Redis writes the bounds of a range.
            limit: Most groups to drop.
            reason: Why.
            view: What the versions were decided on.

        Returns:
            How many groups there were; None if the run has changed since the view was read, and nothing was dropped.
        """
        least, greatest = versions
        command = scripts.drop_versions(
            RunKeys(run),
            reason=reason,
            epoch=view.epoch,
            policy_version=view.policy_version,
            least=least,
            greatest=greatest,
            limit=limit,
        )
        found = int(await self._connection.run(command))
        return None if found < 0 else found

    async def restamp(self, run: str, limit: int, view: QueueView) -> int | None:
        """Let groups that wait and were sampled by later policy versions count as sampled by the current one.

        Args:
            run: The run's name.
            limit: Most groups to change.
            view: What the current version was read from.

        Returns:
            How many groups there were; None if the run has changed since the view was read, and nothing has changed.
        """
        command = run_scripts.set_group_versions(
            RunKeys(run), epoch=view.epoch, policy_version=view.policy_version, limit=limit
        )
        found = int(await self._connection.run(command))
        return None if found < 0 else found

    async def where(self, run: str, group_id: str, lane: LaneId) -> Literal["queued", "buffered"] | None:
        """Say where a group of this lane waits; None if it does not."""
        keys, name = RunKeys(run), lane_name(*lane)
        if await self._connection.call("ZSCORE", keys.lane(name), group_id) is not None:
            return "queued"
        if await self._connection.call("ZSCORE", keys.buffer(name), group_id) is not None:
            return "buffered"
        return None


def _starvation(pairs: Sequence[bytes]) -> Starvation | None:
    words = [word.decode() for word in pairs]
    return parse_starvation(dict(zip(words[::2], words[1::2], strict=True))) if words else None


def _entry(reply: bytes | None) -> StoredGroup | None:
    return None if reply is None else parse_entry(reply.decode())
