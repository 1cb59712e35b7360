"""Write the events of this process to the streams of their runs, a few times a second and together.

A request only appends to a list, so events cost it no command. What a process has not written when it is killed, the
last fraction of a second, is lost. While Redis does not answer, writing is repeated, and a repetition adds no event
twice. Events that Redis refuses are lost, and the log says so.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from app.events import Event, RunDeleted
from app.logs import LogBackoff
from app.services.background import end
from app.services.isolation import for_each_run
from app.store.events.scripts import NewEvent
from app.store.events.store import OLDEST, EventStore, Flush
from lachesis.wire.errors import LachesisError

_GATHER_S = 0.25
_CLOSE_TIMEOUT_S = 2.0
_MOST_BYTES = 4096  # of an event; a larger one keeps its short fields
_LONGEST_SILENCE_S = 600.0
_NOTICED_S = 2.0  # time in which followers notice that a run was deleted, unless it was made again

log = logging.getLogger("lachesis.events.stored")


class _TimedEvent(NamedTuple):
    """An event, and when it happened on the clock of the event loop, seconds."""

    at_s: float
    event: Event


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Events of a run that are written together.

    Attributes:
        name: A unique name.
        since: The id of the newest event that this process wrote before, or `OLDEST`.
    """

    name: str
    since: str
    events: Sequence[_TimedEvent]

    def flush(self, now_s: float) -> Flush:
        rows = [NewEvent(round(1000 * (now_s - one.at_s)), _text(one.event)) for one in self.events]
        return Flush(self.name, self.since, rows)


class EventRecorder:
    """Collects events, and writes those of all runs in one round trip."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._new: dict[str, deque[_TimedEvent]] = {}  # by run
        self._unwritten: dict[str, _Waiting] = {}  # what Redis may have, by run
        self._newest: dict[str, str] = {}  # the id of the newest event that this process wrote, by run
        self._deletions: dict[str, _TimedEvent] = {}  # those that no stream has, by run
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._outage_lines = LogBackoff(1.0, _LONGEST_SILENCE_S)

    def record(self, event: Event) -> None:
        """Add an event. Of the events of one run, at most as many wait as its stream keeps."""
        if isinstance(event, RunDeleted):
            self._new.pop(event.run, None)  # they would become events of the run that is made again
        own = self._new.get(event.run)
        if own is None:
            own = self._new[event.run] = deque(maxlen=self._store.most)
            self._some.set()
        now_s = asyncio.get_running_loop().time()
        deletion = self._deletions.pop(event.run, None)
        if deletion is not None and now_s - deletion.at_s < _NOTICED_S:
            own.append(deletion)  # the run is made again: its stream tells those who followed the former one
        own.append(_TimedEvent(now_s, event))

    def start(self) -> None:
        """Write events in a task, until `stop`."""
        self._task = asyncio.create_task(self._run(), name="events")

    async def stop(self) -> None:
        """Write what waits, and end the task."""
        await end(self._task)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self.flush()

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(_GATHER_S)
            await self.flush()

    async def flush(self) -> None:
        """Write the events that wait. If Redis does not answer, they wait for the next time."""
        self._some.clear()
        for run in [run for run in self._new if run not in self._unwritten]:
            own = self._new.pop(run)
            self._unwritten[run] = _Waiting(uuid.uuid4().hex, self._newest.get(run, OLDEST), own)
        if not self._unwritten:
            return
        try:
            written, failures = await for_each_run(self._write, list(self._unwritten))
        except LachesisError as error:
            if self._outage_lines.is_due("outage"):
                log.warning("cannot write events to Redis, trying again: %s", error)
            self._some.set()
            return
        self._outage_lines.forget("outage")
        for run, newest in written.items():
            if newest:
                self._newest[run] = newest
            else:
                self._newest.pop(run, None)  # the run is gone
                self._keep_deletion(run)
        for run, failure in failures.items():
            log.error("events of run %s are lost: %s", run, failure.detail)
        self._unwritten.clear()
        if self._new:  # they came in the meantime
            self._some.set()

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget what was written to all runs but these: another process may have deleted them."""
        self._newest = {run: newest for run, newest in self._newest.items() if run in runs}

    def _keep_deletion(self, run: str) -> None:
        now_s = asyncio.get_running_loop().time()
        for other in [other for other, one in self._deletions.items() if now_s - one.at_s >= _NOTICED_S]:
            del self._deletions[other]
        for one in self._unwritten[run].events:
            if isinstance(one.event, RunDeleted):
                self._deletions[run] = one

    async def _write(self, runs: Sequence[str]) -> dict[str, str]:
        now_s = asyncio.get_running_loop().time()
        return await self._store.add({run: self._unwritten[run].flush(now_s) for run in runs})


def _text(event: Event) -> str:
    """Return an event as JSON, without its run."""
    values = {name: value for name, value in event.values().items() if name != "run"}
    text = _json({"kind": event.message} | values)
    if len(text) <= _MOST_BYTES:
        return text.decode()
    short = {name: value for name, value in values.items() if isinstance(value, str | int | float)}
    return _json({"kind": event.message} | short | {"shortened": True}).decode()


def _json(value: Mapping[str, object]) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
