"""The events of runs in Redis: one stream for each run, bounded by a number of events."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import orjson

from app.store.events import scripts
from app.store.events.scripts import NewEvent
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys

MOST_EVENTS = 1000
"""About how many of the newest events of a run are kept, unless a setting says otherwise."""

OLDEST = "-"
"""Stands for the id before the oldest event that is kept."""


@dataclass(frozen=True)
class StoredEvent:
    """An event of a run.

    Attributes:
        event_id: Its id in the stream: ``MILLISECONDS-NUMBER``, by the clock of Redis. It is larger than earlier ones.
        age_ms: How long ago it had happened when it was added, milliseconds.
        facts_json: JSON of its kind and its fields.
    """

    event_id: str
    age_ms: int
    facts_json: bytes

    @cached_property
    def facts(self) -> dict[str, object]:
        """Return the id, the time in seconds since 1970, the kind, and the fields."""
        added_ms = int(self.event_id.partition("-")[0])
        facts: dict[str, object] = orjson.loads(self.facts_json)
        return {"id": self.event_id, "time_s": (added_ms - self.age_ms) / 1000} | facts

    @property
    def kind(self) -> str:
        """Return the kind of the event, in words."""
        return str(self.facts["kind"])

    @cached_property
    def text(self) -> bytes:
        """Return the facts as JSON in one line of ASCII: some clients also end lines at characters like U+2028."""
        return json.dumps(self.facts, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class EventsRead:
    """What was read of a run's events.

    Attributes:
        events: The events, oldest first.
        missing: Whether earlier ones that were asked for are no longer kept.
        run_exists: Whether there is such a run.
    """

    events: Sequence[StoredEvent]
    missing: bool
    run_exists: bool


@dataclass(frozen=True, slots=True)
class Flush:
    """Events of a run that a process adds together.

    Attributes:
        name: A unique name, so that a repetition adds nothing.
        since: The id of the newest event when this process last added some to this run, or `OLDEST`.
        new: The events.
    """

    name: str
    since: str
    new: Sequence[NewEvent]


class EventStore:
    """Adds and reads events.

    Args:
        connection: The connection to Redis.
        most: About how many events of each run to keep, ``>= 1``.
    """

    def __init__(self, connection: RedisClient, most: int = MOST_EVENTS) -> None:
        self._connection = connection
        self.most = most

    async def add(self, flushes: Mapping[str, Flush]) -> dict[str, str]:
        """Add events to runs, in one round trip, also if the memory of Redis is full. Safe to repeat.

        Returns:
            The id of the newest event added, by run; empty if there is no such run.
        """
        commands = [
            scripts.add_events(RunKeys(run), most=self.most, since=flush.since, flush=flush.name, new=flush.new)
            for run, flush in flushes.items()
        ]
        return dict(zip(flushes, map(bytes.decode, await self._connection.pipeline(commands)), strict=True))

    async def read(self, after: Mapping[str, str], count: int) -> dict[str, EventsRead]:
        """Read the events of runs after those with these ids, in one round trip; at most ``count`` of each.

        After `OLDEST` or ``0-0``, the events of a run that was made again leave out that the former one was deleted.
        """
        commands = [scripts.read_events(RunKeys(run), after=one, count=count) for run, one in after.items()]
        found = {}
        for run, (exists, missing, entries) in zip(after, await self._connection.pipeline(commands), strict=True):
            events = [_event(name.decode(), fields) for name, fields in entries]
            found[run] = EventsRead(events, bool(missing), bool(exists))
        return found

    async def newest(self, run: str) -> str:
        """Return the id of the newest event of a run; ``0-1`` if it has none, as ``0-0`` is the beginning (`read`)."""
        found = await self._connection.call("XREVRANGE", RunKeys(run).events, "+", "-", "COUNT", 1)
        return str(found[0][0], "ascii") if found else "0-1"

    async def deletion(self) -> StoredEvent:
        """Return the event that a run was deleted, now. It is not stored: the stream is gone with the run."""
        time_ms = await self._connection.time_us() // 1000
        return StoredEvent(f"{time_ms}-0", 0, b'{"kind":"run deleted"}')

    async def change_alerts(self, run: str, alerts: Mapping[str, str]) -> None:
        """Add an event for each alert that is new and each that has ended; ``alerts`` has the detail of each kind."""
        listed = [{"alert": alert, "detail": detail} for alert, detail in alerts.items()]
        await self._connection.run(scripts.change_alerts(RunKeys(run), most=self.most, alerts=listed))


def _event(event_id: str, fields: Sequence[bytes]) -> StoredEvent:
    stored = dict(zip(fields[::2], fields[1::2], strict=True))
    return StoredEvent(event_id, int(stored.get(b"age_ms", 0)), stored[b"event"])
