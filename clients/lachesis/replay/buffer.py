"""A run's replay buffer, for asyncio: workers that fill it, samples of it, its settings."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypedDict

from typing_extensions import Self, Unpack

from lachesis._prefetch.feed import Feed
from lachesis._prefetch.sampling import HeldSample, SampleTaker
from lachesis._public import ForAsyncio
from lachesis._transport.bodies import checked, differing, invalid
from lachesis._transport.http import OwnsSender, Sender
from lachesis._transport.replay_calls import ReplayCalls
from lachesis._transport.settings import Settings, settings_from
from lachesis.loader.nested import Nested, decode
from lachesis.loader.sources import AsyncSource, FetchAsync
from lachesis.replay.sample import AsyncSample, Records
from lachesis.replay.upkeep import ReplayUpkeep
from lachesis.replay.worker import Worker
from lachesis.wire.replay import (
    MAX_PRIORITIES,
    Priorities,
    RateLimiter,
    ReplayChange,
    ReplaySettings,
    ReplayState,
    Sampling,
)

log = logging.getLogger(__name__)

Strategy = Literal["uniform", "fifo", "lifo", "proportional", "rank", "recency", "staleness"]


class ReplayOptions(TypedDict, total=False):
    """Settings of a buffer, as `lachesis.wire.replay.ReplaySettings` describes them."""

    fragments_per_chunk: int
    groups: bool
    max_chunks: int
    max_bytes: int | None
    eviction: Literal["oldest", "most_used", "lowest_priority"]
    max_staleness: int | None
    max_age_s: float | None
    max_reuse: int | None
    sampling: Sampling
    limiter: RateLimiter | None
    min_size_to_sample: int
    reorder_window_s: float
    max_waiting: int
    fragment_ttl_s: float
    seed: int
    keep_snapshots: int


class HowDrawn(TypedDict, total=False):
    """How samples are drawn and held, where it is not as the buffer says."""

    strategy: Strategy
    alpha: float
    beta: float
    half_life_chunks: float
    lease_s: float


class Replay(ReplayUpkeep, OwnsSender, ForAsyncio):
    """The replay buffer of one run. Use it in one event loop, with ``async with`` or `aclose`.

    ```
    async with Replay() as replay, replay.worker("worker-0", steps=32) as worker:
        await worker.insert({"obs": observations, "action": actions}, policy_version=3, episode="e17")
    ```

    All methods raise `ServiceError` where the service says no, and `Unreachable` where there is no answer by the end
    of ``retry_budget_s``.
    """

    _twin = "SyncReplay"

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        name: str | None = None,
    ) -> None:
        """Set up, without a word to the service yet: ``Replay("http://lachesis:8000", run="robots")``.

        Args:
            settings: The service's URL, or all `Settings`; None: as the environment variables say.
            url, run: The same by name; they count more.
            name: What operators see beside the samples it holds.

        Raises:
            ValueError, TypeError: An argument or a variable is wrong; the message names it.
        """
        self.settings = settings_from(settings, url, run)
        self._name = name
        self._calls = ReplayCalls(self.settings.run)
        self._sender = Sender(self.settings)
        self._feeds: dict[Feed[HeldSample], SampleTaker] = {}

    async def set_up(self, **settings: Unpack[ReplayOptions]) -> ReplayState:
        """Give the run a buffer with these ``settings``, if it has none.

        One that is there keeps its settings, which somebody may have changed while it goes on; where they are not
        these, that is logged, and `change` changes them.

        Raises:
            InvalidField: A setting is wrong, there is none of that name, or they must come to a standstill.
            RunNotFound: There is no such run.
        """
        asked = checked(ReplaySettings, **settings)
        state = await self._sender.send(self._calls.set_up(asked))
        # A buffer without `max_bytes` gets a default, which depends on the memory of Redis.
        named = [name for name, value in settings.items() if (name, value) != ("max_bytes", None)]
        if others := differing(asked, state.settings, named):
            run = self.settings.run
            log.warning("the replay buffer of run %s is there with other settings, and keeps them: %s", run, others)
        return state

    async def change(self, **changes: Unpack[ReplayOptions]) -> ReplayState:
        """Make ``changes`` to settings while it goes on; what is not named stays.

        Raises:
            InvalidField: A setting is wrong, there is none of that name, or they must come to a standstill.
            ReplayNotFound: The run has no buffer.
        """
        return await self._sender.send(self._calls.change(checked(ReplayChange, **changes)))

    async def state(self) -> ReplayState:
        """Return what the buffer looks like now: sizes, histograms, what blocks whom.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        return await self._sender.send(self._calls.state())

    async def begin_session(self, session: int) -> int:
        """Begin training attempt ``session``; returns how many chunks of former ones were retired.

        Raises:
            InvalidField: A later one has begun.
        """
        return (await self._sender.send(self._calls.begin_session(session))).retired_chunks

    async def set_priorities(self, priorities: Mapping[int, float]) -> list[int]:
        """Set ``priorities`` by chunk, `finite and >= 0`; returns the chunks that are not there any more.

        Raises:
            InvalidField: One is none; those of the ten thousands before it are set.
        """
        if not isinstance(priorities, Mapping):
            told = f"should be priorities by chunk, such as {{17: 0.5}}, not {type(priorities).__name__}"
            raise invalid(told, ("priorities",))
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
    ) -> Worker:
        """Make a worker that fills the buffer; it begins with ``async with``.

        Args:
            name: Its name, unique in the run; coming back under it, it goes on with its numbers.
            steps: Of each fragment.
            session: The training attempt it works for; None: the one in progress.
            patience_s: How long to wait while the rate limiter holds inserts back; None: for ever.
            wait_for_run_s: How long beginning may wait for a trainer to make the run and its buffer; 0: they must be
                there.
        """
        return Worker(self._calls, self._sender, name, steps, session, patience_s, wait_for_run_s)

    async def samples(
        self,
        num_chunks: int | None = None,
        num_fragments: int | None = None,
        prefetch: int = 1,
        wait_s: float | None = None,
        **drawn: Unpack[HowDrawn],
    ) -> AsyncGenerator[AsyncSample, None]:
        """Take sample after sample, some ahead. Acknowledge each when it was trained on.

        When the loop is left, whatever way, all that it took and did not acknowledge is given back. asyncio closes an
        iterator that was left early only when it comes to it; `contextlib.aclosing` does so at once.

        Args:
            num_chunks: Chunks in each; or, instead,
            num_fragments: fragments in each, a multiple of the buffer's ``fragments_per_chunk``.
            prefetch: Samples to keep ready beside the one in hand.
            wait_s: How long to wait for the next; None: for ever.
            drawn: ``strategy``, ``alpha``, ``beta``, ``half_life_chunks``; ``lease_s``, how long to hold a sample at a
                time, it is extended meanwhile. What is not named is as the buffer and the run say.

        Raises:
            NoBatch: None came within ``wait_s``; the message says what was missing.
            InvalidField: A value is wrong, or there can never be so many.
            ReplayNotFound: The run has no buffer.
        """
        if prefetch < 0:
            raise ValueError(f"prefetch: should be 0 or more, not {prefetch}")
        asked: dict[str, Any] = {"num_chunks": num_chunks, "num_fragments": num_fragments, "trainer": self._name}
        said = {name: value for name, value in {**asked, **drawn}.items() if value is not None}
        taker = SampleTaker(self._calls, self._sender, said)
        feed = Feed(taker.take, prefetch, wait_s, f"run {self.settings.run}", "sample")
        self._feeds[feed] = taker
        try:
            while True:
                held = await feed.next()
                yield AsyncSample(held.taken.info, held.taken.blobs, held.lease)
        finally:
            await self._close_feed(feed)

    async def show(self, sample: str) -> Records:
        """Look at a sample that somebody holds: for the other ranks of its trainer, and for one that came back.

        Raises:
            SampleNotFound: None of that id is held.
        """
        shown = await self._sender.send(self._calls.show(sample))
        return Records(shown.info, shown.blobs)

    async def fetch(self, fragment: str) -> Nested:
        """Read the arrays of the ``fragment`` of this id, nested.

        Raises:
            FragmentNotFound: The buffer holds it no more.
        """
        return decode(await self._sender.send(self._calls.fetch(fragment)))

    def source(self, fragments: Sequence[str]) -> AsyncSource[str]:
        """Return the ``fragments`` of these ids as a source for `lachesis.loader.Loader`, which reads in parallel."""
        return AsyncSource(fragments, partial(_fetching, self.settings))

    async def aclose(self) -> None:
        """Give back what was taken and not acknowledged, and close all connections."""
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

    async def _close_feed(self, feed: Feed[HeldSample]) -> None:
        taker = self._feeds.pop(feed, None)
        if taker is not None:
            await feed.aclose()
            await taker.give_back_unanswered()


@asynccontextmanager
async def _fetching(settings: Settings) -> AsyncIterator[FetchAsync[str]]:
    """Open connections on the event loop of the loads, which need not be that of the `Replay`."""
    calls = ReplayCalls(settings.run)
    async with Sender(settings) as sender:

        async def fetch(fragment: str) -> Any:
            return await sender.send(calls.fetch(fragment))

        yield fetch
