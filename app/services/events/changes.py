"""Tell readers that follow a run when something in it has changed. One task of the process looks at all such runs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.services.background import Broadcast, end
from app.services.isolation import for_each_run
from app.store.runs.revision import RevisionStore
from lachesis.wire.errors import LachesisError

LOOK_EVERY_S = 0.5
NOTIFY_EVERY_S = 1.4
"""How often readers get news at most. They ask for the news within this time, so they are never 2 s behind."""

log = logging.getLogger("lachesis.events.stored")


class WatchedRun:
    """A run that somebody follows.

    Attributes:
        revision: The last revision that readers got; None before the first.
        readers: How many follow it.
    """

    def __init__(self) -> None:
        self.revision: str | None = None
        self.readers = 0
        self._notified_s = 0.0
        self._news = Broadcast()

    def note(self, revision: str, now_s: float) -> None:
        """Give all readers a revision if it is new, and the last one is at least `NOTIFY_EVERY_S` old."""
        if revision != self.revision and now_s - self._notified_s >= NOTIFY_EVERY_S:
            self.revision, self._notified_s = revision, now_s
            self._news.notify()

    async def next(self, known: str | None) -> str:
        """Wait for a revision other than this one, and return it."""
        while self.revision is None or self.revision == known:
            await self._news.wait()
        return self.revision


class ChangeWatch:
    """Looks at runs while somebody follows them. All readers of a run hear at the same moment.

    So they ask for the same at the same time, and can share the answers.
    """

    def __init__(self, store: RevisionStore) -> None:
        self._store = store
        self._watched: dict[str, WatchedRun] = {}
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watching(self, run: str) -> AsyncIterator[WatchedRun]:
        """Follow a run."""
        watched = self._watched.setdefault(run, WatchedRun())
        watched.readers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="changes of followed runs")
        try:
            yield watched
        finally:
            watched.readers -= 1
            if not watched.readers and self._watched.get(run) is watched:
                del self._watched[run]
                self._store.keep_only(list(self._watched))

    async def stop(self) -> None:
        """End the task that looks."""
        await end(self._task)

    async def _look(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._watched:
            try:
                found, _ = await for_each_run(self._store.read, list(self._watched))
            except LachesisError as error:
                log.debug("changes of runs are not read: %s", error)
            else:
                for run, revision in found.items():
                    if run in self._watched:
                        self._watched[run].note(revision, clock())
            await asyncio.sleep(LOOK_EVERY_S)
