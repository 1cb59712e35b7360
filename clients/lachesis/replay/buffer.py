"""A run's replay buffer, for asyncio: workers that fill it, samples of it, its settings, snapshots and chunks."""

import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypedDict

from typing_extensions import Self, Unpack

from lachesis._prefetch.acquire import SampleAcquirer
from lachesis._prefetch.feed import Feed
from lachesis._public import ForAsyncio
from lachesis._transport.bodies import checked, differing
from lachesis._transport.http import OwnsSender, Sender
from lachesis._transport.replay_calls import ReplayCalls, TakenSample
from lachesis._transport.settings import Settings, settings_from
from lachesis.errors import InvalidField
from lachesis.loader.nested import Nested, decode
from lachesis.loader.sources import AsyncSource, FetchAsync
from lachesis.replay.sample import AsyncSample, Records
from lachesis.replay.worker import AsyncWorker
from lachesis.wire.options import ReplayOptions
from lachesis.wire.replay import (
    MAX_PRIORITIES,
    Chunk,
    Priorities,
    ReplayChange,
    ReplaySettings,
    ReplayState,
    StrategyName,
)
from lachesis.wire.snapshots import ReplaySnapshot, RestoreSnapshot, TakeSnapshot

log = logging.getLogger(__name__)

SortedBy = Literal["order", "weights", "versions", "uses"]
Place = Literal["sampleable", "reserved", "archived"]


class HowDrawn(TypedDict, total=False):
    """How samples are drawn and held, if not by the settings of the buffer."""

    strategy: StrategyName
    alpha: float
    beta: float
    half_life_chunks: float
    lease_s: float


class AsyncReplay(OwnsSender, ForAsyncio):
    """The replay buffer of one run.

    ```
    async with AsyncReplay() as replay:
        async for sample in replay.samples(num_chunks=32, prefetch=2):
            errors = train(sample.stacked(), sample.importance_weights)
            await replay.set_priorities(dict(zip(sample.chunks, errors)))
            await sample.ack()
    ```

    Use it in one event loop, with ``async with`` or `aclose`.

    Leases are extended in the background while a step runs. All methods raise `ServiceError` if the service refuses a
    request, and `Unreachable` if no answer comes within ``retry_budget_s``.
    """

    settings: Settings
    """Where the service is, and which run is meant."""

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        name: str | None = None,
    ) -> None:
        """Check the settings. Does not connect: ``AsyncReplay("http://lachesis:8000", run="robots")``.

        Args:
            settings: The service's URL, or all `Settings`. None: read the environment variables.
            url, run: The same by name; they take precedence.
            name: What operators see beside the samples it holds.

        Raises:
            ValueError, TypeError: An argument or a variable is wrong; the message names it.
        """
        self.settings = settings_from(settings, url, run)
        self._name = name
        self._calls = ReplayCalls(self.settings.run)
        self._sender = Sender(self.settings)
        self._feeds: dict[Feed[TakenSample], SampleAcquirer] = {}

    async def set_up(self, **settings: Unpack[ReplayOptions]) -> ReplayState:
        """Create the run's buffer with these ``settings``, if it has none.

        A buffer that exists keeps its settings, because somebody may have changed them. If they differ from these, a
        warning is logged; `change` changes them.

        Raises:
            InvalidField: A setting is wrong or unknown, or the buffer would come to a standstill.
            RunNotFound: The run does not exist.
        """
        asked = checked(ReplaySettings, **settings)
        state = await self._sender.send(self._calls.set_up(asked))
        # A buffer without `max_bytes` gets a default, which depends on the memory of Redis.
        named = [name for name, value in settings.items() if (name, value) != ("max_bytes", None)]
        if others := differing(asked, state.settings, named):
            run = self.settings.run
            log.warning("the replay buffer of run %s exists with other settings, and keeps them: %s", run, others)
        return state

    async def change(self, **changes: Unpack[ReplayOptions]) -> ReplayState:
        """Change settings while the buffer is in use: ``changes``. Settings that are not named stay.

        Raises:
            InvalidField: A setting is wrong or unknown, or the buffer would come to a standstill.
            ReplayNotFound: The run has no buffer.
        """
        return await self._sender.send(self._calls.change(checked(ReplayChange, **changes)))

    async def state(self) -> ReplayState:
        """Return the state of the buffer: sizes, histograms, and what blocks whom.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        return await self._sender.send(self._calls.state())

    async def begin_session(self, session: int) -> int:
        """Begin training attempt ``session``. Return how many chunks of earlier ones were retired.

        Raises:
            InvalidField: A later session has begun.
        """
        return (await self._sender.send(self._calls.begin_session(session))).retired_chunks

    async def set_priorities(self, priorities: Mapping[int, float]) -> list[int]:
        """Set ``priorities`` by chunk, finite and ``>= 0``. Return the chunks that no longer exist.

        They are sent in requests of ten thousand.

        Raises:
            InvalidField: A priority is wrong. The requests before its own were carried out.
        """
        if not isinstance(priorities, Mapping):
            told = f"should be priorities by chunk, such as {{17: 0.5}}, not {type(priorities).__name__}"
            raise InvalidField(told, ("priorities",))
        missing: list[int] = []
        entries = list(priorities.items())
        for first in range(0, len(entries), MAX_PRIORITIES):
            some = checked(Priorities, priorities=dict(entries[first : first + MAX_PRIORITIES]))
            missing += (await self._sender.send(self._calls.set_priorities(some))).missing
        return missing

    def worker(
        self,
        name: str,
        steps: int,
        session: int | None = None,
        patience_s: float | None = None,
        wait_for_run_s: float = 0.0,
    ) -> AsyncWorker:
        """Return a worker that fills the buffer. It starts when it is entered.

        Args:
            name: Its name, unique in the run. A worker that comes back under its name continues its numbers.
            steps: Steps of each fragment.
            session: The training attempt it works for. None: the current one.
            patience_s: How long to wait while the rate limiter holds inserts back. None: forever.
            wait_for_run_s: How long starting may wait for a trainer to create the run and its buffer. 0: they must
                exist.
        """
        return AsyncWorker(self._calls, self._sender, name, steps, session, patience_s, wait_for_run_s)

    async def samples(
        self,
        num_chunks: int | None = None,
        num_fragments: int | None = None,
        prefetch: int = 1,
        wait_s: float | None = None,
        **drawn: Unpack[HowDrawn],
    ) -> AsyncGenerator[AsyncSample, None]:
        """Take sample after sample, some ahead. Acknowledge each after training on it.

        When the loop is left, samples that are not acknowledged are given back. asyncio closes an iterator that was
        left early only later; `contextlib.aclosing` closes it at once.

        Args:
            num_chunks: Chunks in each sample. Or, instead,
            num_fragments: fragments in each sample, a multiple of the buffer's ``fragments_per_chunk``.
            prefetch: Samples to keep ready in addition to the current one.
            wait_s: How long to wait for the next one. None: forever.
            drawn: ``strategy``, ``alpha``, ``beta``, ``half_life_chunks``, and ``lease_s``, the seconds of a lease,
                which is extended in the background. Default: the settings of the buffer and of the run.

        Raises:
            NoBatch: None came within ``wait_s``; the message says what was missing.
            InvalidField: A value is wrong, or the buffer can never hold so many.
            ReplayNotFound: The run has no buffer.
        """
        if prefetch < 0:
            raise ValueError(f"prefetch: should be 0 or more, not {prefetch}")
        asked: dict[str, Any] = {"num_chunks": num_chunks, "num_fragments": num_fragments, "trainer": self._name}
        given = {name: value for name, value in {**asked, **drawn}.items() if value is not None}
        acquirer = SampleAcquirer(self._calls, self._sender, given)
        feed = Feed(acquirer.take, prefetch, wait_s, f"run {self.settings.run}", "sample")
        self._feeds[feed] = acquirer
        try:
            while True:
                held = await feed.next()
                yield AsyncSample(held.taken.info, held.taken.blobs, held.lease)
        finally:
            await self._close_feed(feed)

    async def show(self, sample: str) -> Records:
        """Look at a ``sample`` that somebody holds: for other ranks of its trainer, or after a restart.

        Raises:
            SampleNotFound: Nobody holds a sample with this id.
        """
        shown = await self._sender.send(self._calls.show(sample))
        return Records(shown.info, shown.blobs)

    async def fetch(self, fragment: str) -> Nested:
        """Read the arrays of the ``fragment`` with this id, nested.

        Raises:
            FragmentNotFound: The buffer does not hold it any more.
        """
        return decode(await self._sender.send(self._calls.fetch(fragment)))

    def source(self, fragments: Sequence[str]) -> AsyncSource[str]:
        """Return the ``fragments`` with these ids as a source for `lachesis.loader.Loader`, which reads in parallel."""
        return AsyncSource(fragments, partial(_fetching, self.settings))

    async def chunks(
        self,
        sort: SortedBy | None = None,
        descending: bool = False,
        place: Place = "sampleable",
        worker: str | None = None,
        session: int | None = None,
        version: int | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """List the chunks, page by page. Chunks that come or go while it runs may be missing.

        Args:
            sort: By order of insertion, weight, version or uses. ``reserved`` chunks are sorted by version only,
                ``archived`` chunks by order of insertion only. None: that; for ``sampleable``, the order of insertion.
            descending: The largest first.
            place: Where they are; ``archived`` are those of earlier sessions.
            worker, session, version: Only chunks of it.

        Raises:
            ReplayNotFound: The run has no buffer.
            InvalidField: These chunks cannot be sorted in this way.
        """
        query = {"descending": str(descending).lower(), "place": place}
        query |= _named(sort=sort, worker=worker, session=session, version=version)
        cursor: dict[str, str] | None = {}
        while cursor is not None:
            page = await self._sender.send(self._calls.chunks(query | cursor))
            for chunk in page.chunks:
                yield chunk
            cursor = None if page.cursor is None else {"cursor": page.cursor}

    async def delete_chunks(
        self,
        worker: str | None = None,
        session: int | None = None,
        version: int | None = None,
        below_version: int | None = None,
    ) -> int:
        """Retire the chunks that match every given criterion; without one, all chunks. Return how many.

        Args:
            worker, session, version: Only chunks of it.
            below_version: Only chunks of policy versions below this one.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        query = _named(worker=worker, session=session, version=version, below_version=below_version)
        return (await self._sender.send(self._calls.delete_chunks(query))).retired_chunks

    async def snapshot(self, name: str | None = None) -> ReplaySnapshot:
        """Take a snapshot of the buffer. If there are ``keep_snapshots`` already, the oldest one is deleted.

        Args:
            name: Its name; a snapshot with this name is replaced. None: a new name.

        Raises:
            InvalidField: The name has characters that are not allowed.
            ReplayNotFound: The run has no buffer.
        """
        body = checked(TakeSnapshot, name=name or uuid.uuid4().hex)  # repeated, it must not be a second one
        return await self._sender.send(self._calls.snapshot(body))

    async def snapshots(self) -> list[ReplaySnapshot]:
        """Return all snapshots, oldest first.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        return (await self._sender.send(self._calls.snapshots())).snapshots

    async def restore(self, name: str) -> ReplayState:
        """Restore the buffer from the snapshot with this ``name``, settings included. Return its state.

        Then chunks that are too stale for the current policy version are retired. Leased samples end.

        Raises:
            SnapshotNotFound: There is no snapshot with this name.
            ReplayNotFound: The run has no buffer.
        """
        return await self._sender.send(self._calls.restore(checked(RestoreSnapshot, name=name)))

    async def delete_snapshot(self, name: str) -> None:
        """Delete the snapshot with this ``name``.

        Raises:
            SnapshotNotFound: There is no snapshot with this name.
            ReplayNotFound: The run has no buffer.
        """
        await self._sender.send(self._calls.delete_snapshot(checked(RestoreSnapshot, name=name).name))

    async def delete(self) -> None:
        """Delete the buffer with its contents, settings and snapshots. The run stays.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        await self._sender.send(self._calls.delete())

    async def aclose(self) -> None:
        """Give back samples that are not acknowledged, and close all connections. Safe to repeat."""
        for feed in list(self._feeds):
            await self._close_feed(feed)
        await self._sender.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _facts(self) -> dict[str, object]:
        held = sum(feed.held for feed in self._feeds)
        return {"name": self._name, **self.settings.facts(), "samples_held": held}

    async def _close_feed(self, feed: Feed[TakenSample]) -> None:
        acquirer = self._feeds.pop(feed, None)
        if acquirer is not None:
            await feed.aclose()
            await acquirer.give_back_unanswered()


@asynccontextmanager
async def _fetching(settings: Settings) -> AsyncIterator[FetchAsync[str]]:
    """Open connections on the event loop of the loads, which need not be that of the buffer."""
    calls = ReplayCalls(settings.run)
    async with Sender(settings) as sender:

        async def fetch(fragment: str) -> Any:
            return await sender.send(calls.fetch(fragment))

        yield fetch


def _named(**values: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}
