"""Read groups for listings: the newest of lanes, those that have left, and the items they come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from app.core.groups.listing import LeftPosition
from app.core.model import LaneId, QueuedGroup
from app.store.groups import scripts
from app.store.groups.entries import KnownGroup, parse_known
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys, lane_name
from app.store.redis.pipeline import Command
from lachesis.wire.blob import LENGTH_BYTES, METADATA
from lachesis.wire.states import QUEUED

MAX_ITEM_HEADER_BYTES = 32 * 1024
"""Largest header of a payload from which a listing reads the item."""

_FIRST_BYTES = 4096  # most headers are shorter
_AT_ONCE = 100  # payloads whose first bytes are read in a round trip


@dataclass(frozen=True, slots=True)
class LeftGroup:
    """A record of a group that left.

    Attributes:
        position: Where the record is.
        known: What the run knows of the group; None: it has forgotten it.
        held: Whether it holds the group, because its batch is kept, or was handed out again.
    """

    position: LeftPosition
    known: KnownGroup | None
    held: bool


class GroupListStore:
    """Reads groups by place. Nothing here takes longer in a run with more groups."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def now_ms(self) -> int:
        """Return the time of Redis, milliseconds since 1970."""
        return await self._connection.time_us() // 1000

    async def newest(
        self, run: str, place: str, wanted: Mapping[LaneId, tuple[int, int]], most: int
    ) -> dict[LaneId, list[QueuedGroup]]:
        """Read the newest groups of lanes, or of buffers.

        Args:
            run: The run's name.
            place: ``queued`` or ``buffered``.
            wanted: Lane -> the arrivals between which its groups are, exclusive: the upper one first.
            most: Most groups to read of each lane.
        """
        keys = RunKeys(run)
        key_of = keys.lane if place == QUEUED else keys.buffer
        commands: list[Command] = [
            ("ZRANGE", key_of(lane_name(*lane)), *f"({below} ({above} BYSCORE REV LIMIT 0 {most} WITHSCORES".split())
            for lane, (below, above) in wanted.items()
        ]
        replies = await self._connection.pipeline(commands)
        return {
            lane: [QueuedGroup(int(arrival), group.decode()) for group, arrival in reply]
            for lane, reply in zip(wanted, replies, strict=True)
        }

    async def left(self, run: str, after: LeftPosition | None, most: int) -> list[LeftGroup]:
        """Read groups that have left, the latest first. Fewer than ``most``: there are no more.

        Args:
            run: The run's name.
            after: The position of the last one that was read; None to begin.
            most: Most records to read.
        """
        command = scripts.find_left_groups(
            RunKeys(run),
            clock_ms=None if after is None else after.clock_ms,
            passed=0 if after is None else after.passed,
            last_name="" if after is None else after.name,
            most=most,
        )
        found = await self._connection.run(command)
        return [
            LeftGroup(LeftPosition(clock_ms, passed, name.decode()), known and parse_known(known.decode()), bool(held))
            for clock_ms, passed, name, known, held in zip(*(found[n::5] for n in range(5)), strict=True)
        ]

    async def batches_of(self, run: str, ends: Sequence[tuple[int, int]]) -> list[str | None]:
        """Return the ids of batches by step and run clock when they ended; None for those long gone."""
        places = [f"step:{step}:{clock_ms}" for step, clock_ms in ends]
        found = await self._connection.call("HMGET", RunKeys(run).history, *places) if places else []
        return [batch_id and batch_id.decode() for batch_id in found]

    async def items(self, run: str, group_ids: Sequence[str]) -> list[str | None]:
        """Read the items of groups.

        None where the group names none, where its payload is gone, or where its header is too large.
        """
        items: list[str | None] = []
        for first in range(0, len(group_ids), _AT_ONCE):
            items += map(_item_of, await self._headers(RunKeys(run), group_ids[first : first + _AT_ONCE]))
        return items

    async def payload(self, run: str, group_id: str) -> tuple[bytes | None, bool]:
        """Read the payload of a group, and whether anything names it: otherwise it is deleted soon."""
        keys = RunKeys(run)
        naming: list[Command] = [("HEXISTS", place, group_id) for place in keys.naming_payloads()]
        payload, *named = await self._connection.pipeline([("GET", keys.payload(group_id)), *naming])
        return payload, any(named)

    async def _headers(self, keys: RunKeys, group_ids: Sequence[str]) -> list[bytes]:
        """Read the header of each payload. It is empty if the payload is missing, or its header is too large."""
        places = [keys.payload(group_id) for group_id in group_ids]
        begins: list[bytes] = await self._connection.pipeline(
            [("GETRANGE", place, 0, _FIRST_BYTES - 1) for place in places]
        )
        ends = [LENGTH_BYTES + int.from_bytes(begin[:LENGTH_BYTES], "little") for begin in begins]
        longer = [n for n, end in enumerate(ends) if _FIRST_BYTES < end <= MAX_ITEM_HEADER_BYTES]
        rests = await self._connection.pipeline([("GETRANGE", places[n], _FIRST_BYTES, ends[n] - 1) for n in longer])
        for n, rest in zip(longer, rests, strict=True):
            begins[n] += rest
        return [begin[LENGTH_BYTES:end] if end <= len(begin) else b"" for begin, end in zip(begins, ends, strict=True)]


def _item_of(header: bytes) -> str | None:
    try:
        entries = orjson.loads(header)
    except ValueError:
        return None
    metadata = entries.get(METADATA) if isinstance(entries, dict) else None
    item = metadata.get("item") if isinstance(metadata, dict) else None
    return item if isinstance(item, str) else None
