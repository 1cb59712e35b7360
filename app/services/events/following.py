"""Follow the events of runs. One task of the process reads the streams of all runs that somebody follows.

The followers of a run share what was read. So another follower costs no command and no memory: it has a place in the
newest events. A follower that falls behind these is dropped, and comes back with the id of its last event.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice

from app.services.background import Broadcast, end
from app.services.isolation import for_each_run
from app.store.events.store import OLDEST, EventsRead, EventStore, StoredEvent
from lachesis.wire.errors import LachesisError

_PAUSE_S = 0.5
_MOST_SHARED = 1000  # events of a run that a follower may be behind
_AT_ONCE = 200

_GAP = b'{"kind":"gap","detail":"Events between this id and the next event are no longer kept."}'

log = logging.getLogger("lachesis.events.stored")


class FellBehind(Exception):
    """A follower is too slow: events that it has not read are no longer shared."""


class _Feed:
    """The newest events of a run that were read since somebody follows it.

    Attributes:
        last: The id up to which events were read.
        end: How many events were read so far. Those at the end of this count are still here.
        is_gone: Whether the run is gone.
        is_over: Whether no more events come.
        followers: How many follow it.
    """

    def __init__(self, last: str) -> None:
        self.last = last
        self.end = 0
        self.is_gone = False
        self.is_over = False
        self.followers = 0
        self._events: deque[StoredEvent] = deque(maxlen=_MOST_SHARED)
        self._news = Broadcast()

    def take(self, read: EventsRead) -> None:
        """Add what was read."""
        new = list(_with_gap(self.last, read))
        self._events += new
        self.end += len(new)
        self.last = read.events[-1].event_id if read.events else self.last
        self.is_gone = not read.run_exists
        if new or self.is_gone:
            self._news.notify()

    def close(self) -> None:
        """Note that no more events come."""
        self.is_over = True
        self._news.notify()

    def since(self, place: int) -> list[StoredEvent]:
        """Return the events after the first ``place`` ones.

        Raises:
            FellBehind: Some of them are no longer here.
        """
        first = self.end - len(self._events)
        if place < first:
            raise FellBehind
        return list(islice(self._events, place - first, None))

    async def news(self) -> None:
        """Wait for more events, or for the end."""
        await self._news.wait()


class Follower:
    """Follows a run: first the events that are stored, then those that come.

    Attributes:
        last: The id of the last event it got, or the one that it began after.
    """

    def __init__(self, run: str, feed: _Feed, store: EventStore, last: str) -> None:
        self._run = run
        self._feed = feed
        self._store = store
        self.last = last
        self._place = feed.end
        self._reads_stored = True
        self._reported_end = False

    async def next(self) -> Sequence[StoredEvent]:
        """Wait for the next events, oldest first. None of them means that no more come.

        Raises:
            FellBehind: The follower was too slow.
            LachesisError: Redis did not answer.
        """
        while self._reads_stored:
            read = (await self._store.read({self._run: self.last}, _AT_ONCE))[self._run]
            self._reads_stored = len(read.events) == _AT_ONCE
            if found := list(_with_gap(self.last, read)):
                self.last = found[-1].event_id
                return found
        while True:
            new = [event for event in self._feed.since(self._place) if event.facts_json == _GAP or self._is_new(event)]
            self._place = self._feed.end
            if new:
                self.last = new[-1].event_id
                return new
            if self._feed.is_gone and not self._reported_end:
                self._reported_end = True
                return [await self._store.deletion()]
            if self._feed.is_over:
                return ()
            await self._feed.news()

    def _is_new(self, event: StoredEvent) -> bool:
        return _order(event.event_id) > _order(self.last)


class EventFeeds:
    """Reads the events of runs for all who follow them in this process."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._feeds: dict[str, _Feed] = {}
        self._task: asyncio.Task[None] | None = None

    async def page(self, run: str, after: str | None, limit: int) -> list[StoredEvent]:
        """Return the oldest events after one, or the oldest that are kept (None); at most ``limit``, and a gap."""
        after = after or OLDEST
        return list(_with_gap(after, (await self._store.read({run: after}, limit))[run]))

    @asynccontextmanager
    async def following(self, run: str, after: str | None) -> AsyncIterator[Follower]:
        """Follow the events of a run after one of them, or (None) those that come from now on."""
        newest = await self._store.newest(run)
        feed = self._feeds.setdefault(run, _Feed(newest))
        feed.followers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read_all(), name="followed events")
        try:
            yield Follower(run, feed, self._store, after or newest)
        finally:
            feed.followers -= 1
            if not feed.followers:
                self._remove(run, feed)

    async def stop(self) -> None:
        """End the task that reads."""
        await end(self._task)

    async def _read_all(self) -> None:
        try:
            while self._feeds:
                more = False
                try:
                    found, failures = await for_each_run(self._read, list(self._feeds))
                except LachesisError as error:
                    log.debug("followed events are not read: %s", error)
                else:
                    more = any(len(read.events) == _AT_ONCE for read in found.values())
                    self._pass_on(found, failures)
                await asyncio.sleep(0 if more else _PAUSE_S)
        finally:
            for run, feed in list(self._feeds.items()):
                self._remove(run, feed)

    async def _read(self, runs: Sequence[str]) -> dict[str, EventsRead]:
        return await self._store.read({run: self._feeds[run].last for run in runs if run in self._feeds}, _AT_ONCE)

    def _pass_on(self, found: dict[str, EventsRead], failed: Iterable[str]) -> None:
        for run, read in found.items():
            if run in self._feeds:
                self._feeds[run].take(read)
        gone = [run for run, read in found.items() if not read.run_exists]
        for run in [*gone, *failed]:
            if run in self._feeds:
                self._remove(run, self._feeds[run])

    def _remove(self, run: str, feed: _Feed) -> None:
        """End a feed. Who follows the run later gets another one."""
        feed.close()
        if self._feeds.get(run) is feed:
            del self._feeds[run]


def _with_gap(after: str, read: EventsRead) -> Iterator[StoredEvent]:
    if read.missing:
        yield StoredEvent(after, 0, _GAP)
    yield from read.events


def _order(event_id: str) -> tuple[int, ...]:
    return tuple(map(int, event_id.split("-")))
