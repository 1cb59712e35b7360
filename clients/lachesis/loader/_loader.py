"""The loader: it fetches samples in parallel, ahead of the training step, and stacks them to batches."""

import asyncio
import copy
import hashlib
import math
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import aclosing, closing
from functools import cached_property, partial
from operator import index
from types import AsyncGeneratorType, GeneratorType, TracebackType
from typing import Any, Generic, TypeVar

from typing_extensions import NamedTuple, Self

from lachesis._transport.bridge import Portal
from lachesis.loader import _progress
from lachesis.loader._order import Order, Share, no_state
from lachesis.loader._readers import Loaded, Ready, in_tasks, in_threads, sample_of, threads_for_tasks
from lachesis.loader._window import Window
from lachesis.loader.nested import Nested
from lachesis.loader.sources import AsyncSource, Source
from lachesis.loader.stacking import Ragged, stack

K = TypeVar("K")


class LoadedBatch(NamedTuple, Generic[K]):
    """A batch of stacked samples.

    Attributes:
        epoch: The epoch that all of them belong to, from 0.
        keys: The keys of the samples, in the order of the rows.
        data: Nested as each sample is. Each leaf is an array [batch, …], a `Padded` or a `Packed`.
    """

    epoch: int
    keys: list[K]
    data: Nested


class Loader(Generic[K]):
    """Load the samples of a source in parallel, ahead of the training step, and stack them to batches.

    ```
    with Loader(episode_files("rank-00000-of-00008.jsonl", "episodes"), 32, seed=0, ragged=Pad()) as loader:
        for batch in loader:
            train(batch.data)
    ```

    A loop covers ``epochs`` epochs and starts where the last loop ended. `state_dict` returns that position; a loader
    that has loaded it continues with the same samples. Only one loop runs at a time. Leaving it ends all threads and
    tasks, at the latest when the loader is closed. ``async for`` works as well.
    """

    def __init__(
        self,
        source: Source[K] | AsyncSource[K],
        batch_size: int,
        *,
        prefetch_batches: int = 2,
        readers: int = 16,
        seed: int | None = None,
        ordered: bool = True,
        ragged: Ragged = None,
        drop_last: bool = False,
        epochs: int | None = 1,
        rank: int = 0,
        world_size: int = 1,
        equal_ranks: bool = False,
        progress: bool = False,
    ) -> None:
        """Check the arguments. The first loop begins to load.

        Args:
            source: The samples to load.
            batch_size: Samples per batch.
            prefetch_batches: Batches to load ahead. At most ``(prefetch_batches + 1) * batch_size`` samples are loaded
                or being loaded at any time.
            readers: Maximum number of concurrent fetches.
            seed: Seed of the shuffle, which differs in each epoch. None means the order of the source.
            ordered: Whether samples come in order. False means in order of arrival: a slow sample delays no other
                sample, and chance decides which samples share a batch.
            ragged: Which arrays have unequal lengths, and how to stack these arrays; see `stack`.
            drop_last: Whether to leave out the last batch of an epoch if it is not full.
            epochs: Epochs per loop. An epoch that the loop continues in the middle counts. None means no limit.
            rank: Which share of each epoch to load.
            world_size: Number of shares; they are disjoint.
            equal_ranks: Whether all shares have the same size. If so, up to ``world_size - 1`` samples of an epoch are
                left out. With a seed, these samples differ in each epoch.
            progress: Whether to show a progress bar on stderr. Needs rich.

        Raises:
            ValueError, TypeError: A number is out of its range, an epoch has no batch, or the source is not one.
            ModuleNotFoundError: ``progress`` is set, and rich is not installed.
        """
        for name, number, least in (
            ("batch_size", batch_size, 1),
            ("prefetch_batches", prefetch_batches, 0),
            ("readers", readers, 1),
            ("epochs", 1 if epochs is None else epochs, 1),
            ("seed", 0 if seed is None else seed, 0),
        ):
            if number < least:
                raise ValueError(f"{name}: should be {least} or more, not {number}")
        if not isinstance(source, Source | AsyncSource):
            raise TypeError(f"source: should be Source(keys, fetch) or another of lachesis.loader, not {source!r:.80}")
        if progress:
            _progress.require_rich()
        self.source = source
        self.batch_size = batch_size
        self._window_samples = (prefetch_batches + 1) * batch_size
        self._readers = min(readers, self._window_samples)
        self._ordered = ordered
        self._ragged = ragged
        self._drop_last = drop_last
        self.epochs = epochs
        self._progress = progress
        # Numbers of numpy could not be written as JSON.
        share = Share.of(len(source.keys), index(rank), index(world_size), equal=equal_ranks)
        self._order = Order(len(source.keys), None if seed is None else index(seed), share)
        self._loop: weakref.ref[Any] | None = None
        self._last_end: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None  # of an asynchronous loop
        if not len(self):
            here = f"{len(self._order)} of {len(source.keys)} samples"
            raise ValueError(f"no batch: an epoch here has {here}, and batch_size is {batch_size}")

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return math.ceil(self._whole(len(self._order)) / self.batch_size)

    @property
    def epoch(self) -> int:
        """The epoch of the next sample, from 0."""
        return self._order.epoch

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch.

        Raises:
            ValueError: ``epoch`` is below 0.
            RuntimeError: A loop is running.
        """
        self._check_idle()
        if epoch < 0:
            raise ValueError(f"epoch: should be 0 or more, not {epoch}")
        self._order.go_to(index(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that a loop received. It can be written as JSON.

        Batches that were only prefetched do not count.
        """
        return {**self._order.state_dict(), "keys": self._fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the position of a loader of the same samples, with the same seed, rank and world size.

        The loader continues the same order. Without ``ordered``, each sample that is left comes once. Batch size and
        stacking may differ.

        Raises:
            ValueError: ``state`` is not that of a loader, or belongs to another order. The message says what is wrong
                or differs. Nothing has changed.
            RuntimeError: A loop is running.
        """
        self._check_idle()
        if not isinstance(state, Mapping):
            raise no_state(f"it is {state!r:.80}")
        if missing := self.state_dict().keys() - state.keys():
            raise no_state(f"it has no {min(missing)!r}")
        if state["keys"] != self._fingerprint:
            raise ValueError("this is the state of another order: the source had other keys")
        self._order.load_state_dict(state)

    def split(self, part: int, parts: int) -> "Loader[K]":
        """Return a loader of one part of these samples, at the start of the same epoch. It may have no batch.

        Raises:
            RuntimeError: This loader is in the middle of the epoch.
            ValueError: No part has a batch. With ``drop_last``, each part leaves out its own last batch.
        """
        if not self._order.is_at_start:
            raise RuntimeError(
                f"the loader is in the middle of epoch {self.epoch}, and workers load whole epochs: call set_epoch, or "
                "use num_workers=0"
            )
        largest = len(self._order.split(0, parts))
        if not self._whole(largest):
            raise ValueError(
                f"no batch: each of {parts} workers has at most {largest} samples of an epoch, and batch_size is "
                f"{self.batch_size}"
            )
        loader = copy.copy(self)
        loader._order = self._order.split(part, parts)
        return loader

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and spawned workers get: everything but the running loop."""
        return {**self.__dict__, "_loop": None, "_last_end": None}

    def __iter__(self) -> Iterator[LoadedBatch[K]]:
        """Begin a loop.

        Raises:
            FetchFailed: The iterator raises it: a sample of the next batch could not be loaded. The loop has ended.
            ValueError, KeyError: The iterator raises them: the samples of the next batch cannot be stacked.
            RuntimeError: A loop is running.
        """
        source = self.source
        loop = self._in_threads(source) if isinstance(source, Source) else self._in_portal()
        self._check_idle()
        self._loop = weakref.ref(loop)
        return loop

    def __aiter__(self) -> AsyncIterator[LoadedBatch[K]]:
        """Begin a loop on the running event loop; see `__iter__`."""
        loop = self._in_tasks()
        self._check_idle()
        self._loop = weakref.ref(loop)
        return loop

    def close(self) -> None:
        """End the running loop, with all its threads and tasks. You can repeat it, and begin another loop after it."""
        loop = self._running()
        if isinstance(loop, GeneratorType):
            loop.close()
        elif loop is not None:
            raise RuntimeError("this loop is asynchronous: await aclose()")

    async def aclose(self) -> None:
        """End the running asynchronous loop. You can repeat it, and begin another loop after it."""
        loop = self._running()
        if isinstance(loop, AsyncGeneratorType):
            await loop.aclose()
        else:
            self.close()
        await self._last_to_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _in_threads(self, source: Source[K]) -> Generator[LoadedBatch[K]]:
        window = self._window()
        ready = in_threads(window, source.fetch, source.keys.__getitem__, self._readers)
        with _progress.bar(self._progress, self._samples_of_loop()) as advance, closing(ready):
            for taken in ready:
                advance(len(taken))
                yield self._hand_out(window, taken)

    async def _in_tasks(self) -> AsyncGenerator[LoadedBatch[K]]:
        await self._last_to_end()
        ended = asyncio.Event()
        self._last_end = asyncio.get_running_loop(), ended
        source, window = self.source, self._window()
        if isinstance(source, Source):
            source = AsyncSource(source.keys, partial(threads_for_tasks, source.fetch, self._readers))
        ready = in_tasks(window, source.opening, source.keys.__getitem__, self._readers)
        try:
            with _progress.bar(self._progress, self._samples_of_loop()) as advance:
                async with aclosing(ready):
                    async for taken in ready:
                        advance(len(taken))
                        yield self._hand_out(window, taken)
        finally:
            ended.set()

    async def _last_to_end(self) -> None:
        """Wait for the end of an asynchronous loop that was left by ``break``: a task of Python's closes it."""
        if self._last_end is not None and self._last_end[0] is asyncio.get_running_loop():
            await self._last_end[1].wait()

    def _in_portal(self) -> Generator[LoadedBatch[K]]:
        with closing(Portal()) as portal:
            yield from portal.each(self._in_tasks(), lambda batch: batch)

    def _hand_out(self, window: Window[Loaded], taken: Ready) -> LoadedBatch[K]:
        tickets = [ticket for ticket, _ in taken]
        keys = [self.source.keys[ticket.sample] for ticket in tickets]
        samples = [sample_of(loaded, key) for (_, loaded), key in zip(taken, keys, strict=True)]
        taken.clear()  # the caller keeps this list; the samples must not stay in memory with it
        batch = LoadedBatch(self._order.epoch, keys, stack(samples, self._ragged, keys))
        window.hand_out(tickets)
        return batch

    def _window(self) -> Window[Loaded]:
        return Window(
            self._order,
            batch_size=self.batch_size,
            most=self._window_samples,
            ordered=self._ordered,
            drop_last=self._drop_last,
            epochs=self.epochs,
        )

    def _whole(self, samples: int) -> int:
        return samples // self.batch_size * self.batch_size if self._drop_last else samples

    def _samples_of_loop(self) -> int | None:
        if self.epochs is None:
            return None
        left = len(self._order.places_left(self._order.epoch))
        return self._whole(left) + (self.epochs - 1) * self._whole(len(self._order))

    def _running(self) -> "GeneratorType[LoadedBatch[K]] | AsyncGeneratorType[LoadedBatch[K]] | None":
        loop = None if self._loop is None else self._loop()
        has_ended = loop is None or (loop.gi_frame if isinstance(loop, GeneratorType) else loop.ag_frame) is None
        return None if has_ended else loop

    def _check_idle(self) -> None:
        if self._running() is not None:
            raise RuntimeError("a loop over this loader is running: end it first, or close the loader")

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for key in self.source.keys:
            digest.update(repr(key).encode())
            digest.update(b"\0")
        return digest.hexdigest()
