"""Keep the history of runs: one stream for each resolution, with what happened in spans of time.

Each API process appends what it has counted to the finest stream (`append_history`), under the time of Redis. The
process that maintains the run adds spans up to coarser streams (`merge_history`). The last span of a coarser stream
says how far that has come. (docs/design/adr/0012-history-in-bounded-streams.md)
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from app.core.history.resolution import KEPT, LONGEST_S, Resolution, span_begin
from app.core.history.series import HistorySpan
from app.core.history.wanted import EVERYTHING, WantedHistory
from app.store.history import scripts
from app.store.history.codec import decode_span, encode_span
from app.store.redis.client import RedisClient
from app.store.redis.keys import WATCHED, RunKeys
from app.store.redis.server_time import parse_time_us
from app.store.runs.view import reading

Totals = Mapping[str, Mapping[str, float]]
"""What counts were counted up to, by environment and name; those of the run under ``""``."""

_MOST_ENTRIES = 20_000  # in the finest stream if no process merges it
_KEPT_MS = LONGEST_S * 1000
_WATCHED_S = 5.0  # how long a run counts as watched after a read; pages read every second
_AT_ONCE = 100  # entries to read in one round trip


@dataclass(frozen=True, slots=True)
class Growth:
    """From which totals to which others a look has counted.

    Attributes:
        before: The totals at the look before, as they are stored; empty if there were none.
        now: The totals at this look.
    """

    before: bytes
    now: Totals


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """A span as it is stored: when it was written or begins, seconds since 1970, and its text."""

    time_s: int
    facts: bytes


class HistoryStore:
    """Writes and reads the history of runs."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def now_s(self) -> float:
        """Return the time of Redis, seconds since 1970."""
        return await self._connection.time_us() / 1_000_000

    async def environments(self, run: str) -> int:
        """Count the environments of a run."""
        return int(await self._connection.call("HLEN", RunKeys(run).environments))

    async def first_epoch(self, run: str) -> int:
        """Read the first epoch of a run; 0 if it has none."""
        return int(await self._connection.call("HGET", RunKeys(run).run, "first_epoch") or 0)

    async def append(
        self, run: str, span: HistorySpan, growth: Growth | None = None, replaced: str | None = None
    ) -> str | None:
        """Add what happened lately, and return the entry.

        Args:
            run: The run's name.
            span: What happened.
            growth: What the span has of a look at the run.
            replaced: An entry of this process whose facts the span has, too. The new one takes its place.

        Returns:
            None if nothing was added: there is no such run, the entry can no longer be replaced, or another process has
            stored totals since the look read them.

        Raises:
            StoreFull: Redis is out of memory; nothing was added.
            StoreUnavailable: The outcome is unknown.
        """
        keys = RunKeys(run)
        command = scripts.append_history(
            keys,
            finest=keys.series(KEPT[0].step_s),
            most=_MOST_ENTRIES,
            kept_ms=_KEPT_MS,
            span_ms=KEPT[0].step_s * 1000,
            replaced=replaced,
            facts=encode_span(span),
            totals=b"" if growth is None else orjson.dumps(growth.now),
            before=b"" if growth is None else growth.before,
            write=uuid.uuid4().hex,
        )
        word = str((await self._connection.run(command)).decode())
        return None if word in ("none", "outdated", "later") else word

    async def watch(self, run: str) -> None:
        """Note that somebody looks at the history of a run."""
        now_s = await self.now_s()
        await self._connection.pipeline(
            [
                ("ZADD", WATCHED, now_s + _WATCHED_S, run),
                ("ZREMRANGEBYSCORE", WATCHED, "-inf", now_s),
                ("PEXPIRE", WATCHED, int(_WATCHED_S * 1000)),
            ]
        )

    async def watched(self) -> frozenset[str]:
        """Return the runs whose history somebody looks at."""
        time, found = await self._connection.pipeline([("TIME",), ("ZRANGE", WATCHED, 0, -1, "WITHSCORES")])
        now_s = parse_time_us(time) / 1_000_000
        # What is further in the future was written when the clock of Redis was ahead.
        return frozenset(run.decode() for run, until_s in found if now_s < float(until_s) <= now_s + _WATCHED_S)

    async def merge(
        self, run: str, fine: Resolution, coarse: Resolution, begin_s: int, span: HistorySpan, now_s: float
    ) -> bool:
        """Add a span to a coarser stream, and drop what is too old; False if it is there already.

        A stream drops spans when they are added up from it. The coarsest does so when spans are added to it.

        Args:
            run: The run's name.
            fine: The resolution that the span was added up from. What follows the span is kept in it.
            coarse: The resolution of the span.
            begin_s: When the span begins.
            span: The span.
            now_s: The time of Redis.
        """
        keys = RunKeys(run)
        end_s = begin_s + coarse.step_s
        command = scripts.merge_history(
            keys,
            fine=keys.series(fine.step_s),
            coarse=keys.series(coarse.step_s),
            begin_ms=begin_s * 1000,
            facts=encode_span(span),
            fine_before_ms=min(end_s, int(now_s) - fine.stored_s) * 1000,
            coarse_before_ms=max(0, int(now_s) - coarse.kept_s) * 1000 if coarse == KEPT[-1] else 0,
            kept_ms=_KEPT_MS,
        )
        return bool(await self._connection.run(command))

    async def drop_future(self, run: str, now_s: float) -> None:
        """Drop the spans that have not ended, from all streams, so that new ones can take their place.

        The clock of Redis was ahead when they were written.

        Args:
            run: The run's name.
            now_s: The time of Redis.
        """
        keys = RunKeys(run)
        for one in KEPT:
            from_ms = span_begin(int(now_s), one.step_s) * 1000
            command = scripts.drop_future(keys, series=keys.series(one.step_s), from_ms=from_ms, kept_ms=_KEPT_MS)
            await self._connection.run(command)

    async def last_s(self, run: str, resolution: Resolution) -> int | None:
        """Return when the last span of a stream begins; None if the stream is empty."""
        keys = RunKeys(run)
        found = await self._connection.call("XREVRANGE", keys.series(resolution.step_s), "+", "-", "COUNT", 1)
        return None if not found else _time_s(found[0][0])

    async def next_s(self, run: str, resolution: Resolution, from_s: int) -> int | None:
        """Return the start of the first span at or after a time; None if the stream has no such span."""
        found = await self._connection.call(
            "XRANGE", RunKeys(run).series(resolution.step_s), from_s * 1000, "+", "COUNT", 1
        )
        return None if not found else _time_s(found[0][0])

    async def firsts_s(self, run: str) -> list[int | None]:
        """Return when the first span of each stream begins, from the finest to the coarsest; None if it is empty."""
        keys = RunKeys(run)
        commands = [("XRANGE", keys.series(one.step_s), "-", "+", "COUNT", 1) for one in KEPT]
        found = await self._connection.pipeline(commands)
        return [_time_s(entries[0][0]) if entries else None for entries in found]

    async def totals(self, run: str) -> bytes:
        """Read what the counts of the history were counted up to, for `parse_totals`; empty if that is not known."""
        return bytes(await self._connection.call("GET", RunKeys(run).series_totals) or b"")

    async def spans(self, run: str, resolution: Resolution, from_s: int, to_s: float) -> list[StoredSpan]:
        """Read the spans of a stream from a time on, up to before another one, in the order of time."""
        key, found = RunKeys(run).series(resolution.step_s), list[StoredSpan]()
        first, last = str(from_s * 1000), str(max(0, int(to_s * 1000) - 1))  # the last millisecond counts, whole
        while True:
            entries = await self._connection.call("XRANGE", key, first, last, "COUNT", _AT_ONCE)
            found += [StoredSpan(_time_s(name), fields[1]) for name, fields in entries]
            if len(entries) < _AT_ONCE:
                return found
            first = f"({entries[-1][0].decode()}"


def parse_span(run: str, stored: StoredSpan, wanted: WantedHistory = EVERYTHING) -> HistorySpan:
    """Read a stored span, or what of it is wanted.

    Raises:
        UnreadableRecord: It is damaged.
    """
    with reading(run):
        return decode_span(stored.facts, wanted)


def parse_totals(run: str, stored: bytes) -> Totals:
    """Read stored totals.

    Raises:
        UnreadableRecord: They are damaged.
    """
    with reading(run):
        totals: Totals = orjson.loads(stored or b"{}")
    return totals


def _time_s(name: bytes) -> int:
    return int(name.partition(b"-")[0]) // 1000
