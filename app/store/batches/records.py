"""Remember what the latest batches consisted of, and read in which state they are now."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.core.batches.leases import Lease, Portion
from app.store.batches.view import BatchEnd, parse_end
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.scripts import json_text
from app.store.runs.lease_codec import parse_lease
from app.store.runs.view import reading

MOST_RECORDS = 128
"""Batches of a run with a record, the latest ones."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """How a batch was divided between ranks: the load of each, by a cost, and imbalances (`Balance`)."""

    loads: tuple[float, ...]
    cost: str
    imbalance: float
    bound: float


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch as it was formed.

    Attributes:
        batch_id: Its id.
        step: The run's step after it was taken first.
        formed_ms: Run clock at that time; None if it is not known.
        relaxed: Whether some minimum was not kept.
        contents: Its contents, by environment.
        replayed: The part of them from the replay buffer.
        ranks: How it was divided; None if it was not.
    """

    batch_id: str
    step: int
    formed_ms: int | None
    relaxed: bool
    contents: tuple[Portion, ...]
    replayed: tuple[Portion, ...]
    ranks: Ranks | None


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A batch as it was formed, and where it is: its lease while it is leased or kept; how it ended, if that is known.

    A batch without lease and end ended long ago.
    """

    record: BatchRecord
    lease: Lease | None
    is_kept: bool
    end: BatchEnd | None


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """When a batch was formed and when it ended, run clock; ``ended_ms`` is None while that is not known."""

    batch_id: str
    formed_ms: int
    ended_ms: int | None


def record_of(lease: Lease, formed_ms: int | None) -> BatchRecord:
    """Describe a batch by its lease. Loads of ranks are known only to the process that formed it."""
    sharding, ranks = lease.sharding, None
    if sharding is not None:
        ranks = Ranks(sharding.loads, sharding.spec.cost, sharding.balance.imbalance, sharding.balance.bound)
    return BatchRecord(lease.batch_id, lease.step, formed_ms, lease.relaxed, lease.contents, lease.replayed, ranks)


def record_text(lease: Lease, formed_ms: int) -> str:
    """Encode the record of a new batch."""
    record = record_of(lease, formed_ms)
    ranks, divided = record.ranks, None
    if ranks is not None:
        divided = [[float(f"{load:.6g}") for load in ranks.loads], ranks.cost, ranks.imbalance, ranks.bound]
    return json_text([record.step, formed_ms, record.relaxed, record.contents, record.replayed, divided])


def _parse_record(batch_id: str, text: bytes) -> BatchRecord:
    step, formed_ms, relaxed, contents, replayed, divided = json.loads(text)
    ranks = None if divided is None else Ranks(tuple(divided[0]), *divided[1:])
    portions, again = (tuple(Portion(*portion) for portion in part) for part in (contents, replayed))
    return BatchRecord(batch_id, step, formed_ms, relaxed, portions, again, ranks)


class BatchRecordStore:
    """Reads the records of batches."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def now_ms(self) -> int:
        """Return the time of Redis, milliseconds since 1970."""
        return await self._connection.time_us() // 1000

    async def latest(self, run: str, before: str | None, limit: int) -> tuple[list[str], bool] | None:
        """Read the ids of the latest batches, the newest first, and whether there are more.

        Args:
            run: The run's name.
            before: The batch that the last page ended with; None to begin.
            limit: Most batches.

        Returns:
            None if ``before`` has no record any more.
        """
        order = RunKeys(run).batch_order
        if before is None:
            total, found = await self._connection.transact([("LLEN", order), ("LRANGE", order, -limit, -1)])
            return [one.decode() for one in reversed(found)], total > limit
        end = await self._connection.call("LPOS", order, before)
        if end is None:
            return None
        first = max(0, end - limit)
        found = [one.decode() for one in await self._connection.call("LRANGE", order, first, end)]
        older = found[: found.index(before)] if before in found else []
        if first and not older:
            return None  # so many records were removed in between that newer batches have come to these places
        return older[::-1], first > 0

    async def recorded(self, run: str, batch_ids: Sequence[str]) -> list[RecordedBatch | None]:
        """Read batches, in order; None for a batch that the run knows nothing of."""
        if not batch_ids:
            return []
        keys = RunKeys(run)
        # Between two reads, a batch could move from a later hash to an earlier one.
        hashes = (keys.batches, keys.lease_states, keys.kept_leases, keys.history)
        replies = await self._connection.transact([("HMGET", key, *batch_ids) for key in hashes])
        with reading(run):
            return [_recorded(one, *texts) for one, *texts in zip(batch_ids, *replies, strict=True)]

    async def times(self, run: str, most: int, others: Collection[str] = ()) -> list[BatchTimes]:
        """Read when batches were formed and ended: the ``others``, and then the latest, the oldest first.

        Args:
            run: The run's name.
            most: Most of the latest batches.
            others: Batches that count even if they are older.
        """
        keys = RunKeys(run)
        latest = await self._connection.call("LRANGE", keys.batch_order, -most, -1)
        batch_ids = [*{one.encode() for one in others}.difference(latest), *latest]
        if not batch_ids:
            return []
        records, ends = await self._connection.pipeline(
            [("HMGET", key, *batch_ids) for key in (keys.batches, keys.history)]
        )
        found = []
        with reading(run):
            for batch_id, record, end in zip(batch_ids, records, ends, strict=True):
                if record is not None:
                    ended = parse_end(end)
                    formed_ms = json.loads(record)[1]
                    found.append(BatchTimes(batch_id.decode(), formed_ms, None if ended is None else ended.clock_ms))
        return found

    async def unrecorded(self, run: str, batch_ids: Sequence[str]) -> list[str]:
        """Return which of these batches have no record."""
        found = await self._connection.call("HMGET", RunKeys(run).batches, *batch_ids) if batch_ids else []
        return [one for one, text in zip(batch_ids, found, strict=True) if text is None]


def _recorded(
    batch_id: str, record: bytes | None, leased: bytes | None, kept: bytes | None, end: bytes | None
) -> RecordedBatch | None:
    lease = None
    if leased is not None:
        lease = parse_lease(batch_id, leased.decode())
    elif kept is not None:
        lease = parse_lease(batch_id, kept.decode().partition(" ")[2])
    if record is not None:
        own = _parse_record(batch_id, record)
    elif lease is not None:
        own = record_of(lease, None)
    else:
        return None
    return RecordedBatch(own, lease, leased is None and kept is not None, parse_end(end))
