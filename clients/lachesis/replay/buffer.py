"""A run's replay buffer, for asyncio: workers that fill it, samples of it, its settings, snapshots and chunks."""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any

from typing_extensions import Self, Unpack

from lachesis._prefetch.acquire import SampleAcquirer
from lachesis._prefetch.feed import Feed, close_feed
from lachesis._public import ForAsyncio
from lachesis._transport.bodies import checked, differing
from lachesis._transport.http import OwnsSender, Sender
from lachesis._transport.protocol import query_of
from lachesis._transport.replay_calls import ReplayCalls, TakenSample
from lachesis._transport.settings import Settings, settings_from
from lachesis.errors import InvalidField
from lachesis.loader.nested import Nested, decode
from lachesis.loader.sources import AsyncSource, FetchAsync
from lachesis.replay.sample import AsyncSample, Records
from lachesis.replay.worker import AsyncWorker
from lachesis.wire.options import HowDrawn, ReplayOptions
from lachesis.wire.replay import (
    MAX_PRIORITIES,
    Chunk,
    Priorities,
    ReplayChange,
    ReplaySettings,
    ReplayState,
)
from lachesis.wire.snapshots import ReplaySnapshot, RestoreSnapshot, TakeSnapshot
from lachesis.wire.states import ChunkPlace, ChunkSorting

log = logging.getLogger(__name__)


class AsyncReplay(OwnsSender, ForAsyncio):
    """The replay buffer of one run.

    ```
    async with AsyncReplay() as replay:
        async for sample in replay.samples(num_chunks=32, prefetch=2):
            errors = await asyncio.to_thread(train, sample.stacked(), sample.importance_weights)
            await replay.set_priorities(dict(zip(sample.chunks, errors)))
            await sample.ack()
    ```

    Use it in one event loop, with ``async with`` or `aclose`.

    Leases are extended in the background while a step runs. A step that blocks the event loop stops this, so run it in
    a thread. All methods raise `ServiceError` if the service refuses a request, and `Unreachable` if no answer comes
    within ``retry_budget_s``.
    """

    settings: Settings
    """The URL of the service, the name of the run, and the timeouts."""

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        token: str | None = None,
        name: str | None = None,
    ) -> None:
        """Check the settings. Does not connect: ``AsyncReplay("http://lachesis:8000", run="robots")``.

        Args:
            settings: The service's URL, or all `Settings`. None means the environment variables.
            url, run, token: The URL, the run and the token. They take precedence over ``settings``.
            name: Name of the trainer, for operators.

        Raises:
            ValueError, TypeError: An argument or a variable is wrong; the message names it.
        """
        self.settings = settings_from(settings, url, run, token)
        self._name = name
        self._calls = ReplayCalls(self.settings.run)
        self._sender = Sender(self.settings)
        self._feeds: dict[Feed[TakenSample], SampleAcquirer] = {}
        self._closing = asyncio.Lock()  # asyncio closes, in the background, a loop that was left

    async def set_up(self, **settings: Unpack[ReplayOptions]) -> ReplayState:
        """Create the run's replay buffer with these ``settings``, if the run has no buffer.

        An existing buffer keeps its settings, because somebody may have changed them on purpose. If its settings differ
        from ``settings``, a warning is logged. Use `change` to change them.

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
        """Change settings while the buffer is in use: ``changes``. Settings that you leave out stay.

        Raises:
            InvalidField: A setting is wrong or unknown, or the buffer would come to a standstill.
            ReplayNotFound: The run has no replay buffer.
        """
        return await self._sender.send(self._calls.change(checked(ReplayChange, **changes)))

    async def state(self) -> ReplayState:
        """Return the state of the buffer: sizes, histograms, and what blocks inserts and samples.

        Raises:
            ReplayNotFound: The run has no replay buffer.
        """
        return await self._sender.send(self._calls.state())

    async def begin_session(self, session: int) -> int:
        """Begin training attempt ``session``. Return how many chunks of earlier sessions were retired.

        Raises:
            InvalidField: A later session has begun.
        """
        return (await self._sender.send(self._calls.begin_session(session))).retired_chunks

    async def set_priorities(self, priorities: Mapping[int, float]) -> list[int]:
        """Set ``priorities`` by chunk, finite and ``>= 0``. Return the chunks that no longer exist.

        Sent in requests of up to 10,000 priorities.

        Raises:
            InvalidField: A priority is wrong. Earlier requests of this call were carried out.
        """
        if not isinstance(priorities, Mapping):
            wrong = f"should be priorities by chunk, such as {{17: 0.5}}, not {type(priorities).__name__}"
            raise InvalidField(wrong, ("priorities",))
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
        """Return a worker that fills the buffer. The worker starts on entry.

        Args:
            name: Name of the worker, unique in the run. A worker that comes back under its name continues its numbers.
            steps: Steps of each fragment.
            session: The training attempt of the worker. None means the current attempt.
            patience_s: Maximum time to wait while the rate limiter blocks inserts, seconds. None means no limit.
            wait_for_run_s: Maximum time to wait until the service answers and a trainer has created the run and its
                buffer, seconds. 0 means that they must exist.
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
        """Take samples, and prefetch some. Acknowledge each sample after training on it.

        When the loop ends, the trainer gives back samples that are not acknowledged. After an early end, asyncio closes
        the iterator later. `contextlib.aclosing` closes it at once.

        Args:
            num_chunks: Number of chunks in each sample. Give either this number or ``num_fragments``.
            num_fragments: Number of fragments in each sample, a multiple of the buffer's ``fragments_per_chunk``.
            prefetch: Samples to keep ready in addition to the current one, ``>= 0``.
            wait_s: Maximum time to wait for the next one, seconds, ``> 0``. None means no limit.
            drawn: ``strategy``, ``alpha``, ``beta``, ``half_life_chunks``, and ``lease_s``, the seconds of a lease,
                which is extended in the background. The defaults are the settings of the buffer and of the run.

        Raises:
            NoBatch: No sample came within ``wait_s``. The message says what was missing.
            InvalidField: A value is wrong, or the number is larger than the buffer.
            ReplayNotFound: The run has no replay buffer.
        """
        asked: dict[str, Any] = {"num_chunks": num_chunks, "num_fragments": num_fragments, "trainer": self._name}
        given = {name: value for name, value in {**asked, **drawn}.items() if value is not None}
        acquirer = SampleAcquirer(self._calls, self._sender, given)
        feed = Feed(acquirer.take, prefetch, wait_s, f"run {self.settings.run}", "sample")
        self._feeds[feed] = acquirer
        try:
            async for held in feed:
                yield AsyncSample(held.taken.info, held.taken.blobs, held.lease)
                del held  # or it would stay in memory until the next one is there
        finally:
            await self._close_feed(feed, acquirer)

    async def show(self, sample: str) -> Records:
        """Read a held ``sample`` again, for other ranks of its trainer or after a restart.

        Raises:
            SampleNotFound: No sample with this id is held.
        """
        shown = await self._sender.send(self._calls.show(sample))
        return Records(shown.info, shown.blobs)

    async def fetch(self, fragment: str) -> Nested:
        """Read the arrays of the ``fragment`` with this id, nested.

        Raises:
            FragmentNotFound: The buffer no longer holds the fragment.
        """
        return decode(await self._sender.send(self._calls.fetch(fragment)))

    def source(self, fragments: Sequence[str]) -> AsyncSource[str]:
        """Return the ``fragments`` with these ids as a source for `lachesis.loader.Loader`, which reads in parallel."""
        return AsyncSource(fragments, partial(_fetching, self.settings))

    async def chunks(
        self,
        sort: ChunkSorting | None = None,
        descending: bool = False,
        place: ChunkPlace = "sampleable",
        worker: str | None = None,
        session: int | None = None,
        version: int | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """List the chunks, page by page. Chunks that come or go while it runs may be missing.

        Args:
            sort: By order of insertion, weight, version or uses. ``reserved`` chunks can be sorted by version only,
                ``archived`` chunks by order of insertion only. None means by version for ``reserved`` chunks, and by
                order of insertion for others.
            descending: Whether the largest come first.
            place: Where the chunks are. ``archived`` means chunks of earlier sessions.
            worker, session, version: Only chunks of this worker, session or policy version.

        Raises:
            ReplayNotFound: The run has no replay buffer.
            InvalidField: These chunks cannot be sorted in this way.
        """
        query = {"descending": str(descending).lower(), "place": place}
        query |= query_of(sort=sort, worker=worker, session=session, version=version)
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
            worker, session, version: Only chunks of this worker, session or policy version.
            below_version: Only chunks of policy versions below this one.

        Raises:
            ReplayNotFound: The run has no replay buffer.
        """
        query = query_of(worker=worker, session=session, version=version, below_version=below_version)
        return (await self._sender.send(self._calls.delete_chunks(query))).retired_chunks

    async def snapshot(self, name: str | None = None) -> ReplaySnapshot:
        """Take a snapshot of the buffer. If there are ``keep_snapshots`` already, it replaces the oldest snapshot.

        Args:
            name: Name of the snapshot. It replaces a snapshot of the same name. None means a new name.

        Raises:
            InvalidField: The name has characters that are not allowed.
            ReplayNotFound: The run has no replay buffer.
        """
        body = checked(TakeSnapshot, name=name or uuid.uuid4().hex)  # repeated, it must not be a second one
        return await self._sender.send(self._calls.snapshot(body))

    async def snapshots(self) -> list[ReplaySnapshot]:
        """Return all snapshots, oldest first.

        Raises:
            ReplayNotFound: The run has no replay buffer.
        """
        return (await self._sender.send(self._calls.snapshots())).snapshots

    async def restore(self, name: str) -> ReplayState:
        """Restore the buffer from the snapshot with this ``name``, settings included. Return its state.

        The buffer retires chunks that are too stale for the current policy version. Leased samples end. If an answer is
        lost, the SDK restores it once more: fragments that arrived in between are lost.

        Raises:
            InvalidField: The snapshot has ``groups`` false, and the run's ``fresh_fraction`` is below 1.
            SnapshotNotFound: There is no snapshot with this name.
            ReplayNotFound: The run has no replay buffer.
        """
        return await self._sender.send(self._calls.restore(checked(RestoreSnapshot, name=name)))

    async def delete_snapshot(self, name: str) -> None:
        """Delete the snapshot with this ``name``.

        Raises:
            SnapshotNotFound: There is no snapshot with this name.
            ReplayNotFound: The run has no replay buffer.
        """
        await self._sender.send(self._calls.delete_snapshot(checked(RestoreSnapshot, name=name).name))

    async def delete(self) -> None:
        """Delete the buffer with its chunks, settings and snapshots. The run stays.

        Raises:
            ReplayNotFound: The run has no replay buffer.
        """
        await self._sender.send(self._calls.delete())

    async def aclose(self) -> None:
        """Give back samples that are not acknowledged, and close all connections. A repetition changes nothing.

        Loops of other tasks end. If this method is interrupted, the service gets the remaining samples back when
        their leases expire.
        """
        try:
            for feed, acquirer in list(self._feeds.items()):
                await self._close_feed(feed, acquirer)
        finally:
            for feed in self._feeds:
                feed.abandon()
            await self._sender.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _facts(self) -> dict[str, object]:
        held = sum(feed.held for feed in list(self._feeds))
        return {"name": self._name, **self.settings.facts(), "samples_held": held}

    async def _close_feed(self, feed: Feed[TakenSample], acquirer: SampleAcquirer) -> None:
        await close_feed(feed, acquirer, self._closing)
        self._feeds.pop(feed, None)


@asynccontextmanager
async def _fetching(settings: Settings) -> AsyncIterator[FetchAsync[str]]:
    """Open connections on the event loop of the loads, which need not be that of the buffer."""
    calls = ReplayCalls(settings.run)
    async with Sender(settings) as sender:

        async def fetch(fragment: str) -> Any:
            return await sender.send(calls.fetch(fragment))

        yield fetch
