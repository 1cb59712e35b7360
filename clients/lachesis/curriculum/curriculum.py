"""A run's curriculum, for asyncio: items to try, observations of them, its settings and its state."""

import json
import logging
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self, Unpack

from lachesis._compat import add_note
from lachesis._prefetch.items import AsyncItemStream, ItemQueue
from lachesis._public import ForAsyncio
from lachesis._transport.bodies import checked, differing
from lachesis._transport.curriculum_calls import CurriculumCalls, Registered, slices
from lachesis._transport.files import StateFile, read_from, written_to
from lachesis._transport.http import OwnsSender, Sender
from lachesis._transport.protocol import JSON, query_of
from lachesis._transport.settings import Settings, settings_from
from lachesis.curriculum.observer import Observer
from lachesis.errors import InvalidField, LachesisError
from lachesis.wire.curricula import (
    CURRICULUM_NAME,
    JSON_LINES,
    CurriculumChange,
    CurriculumInfo,
    CurriculumSettings,
    CurriculumStrategy,
    ItemSorting,
    StateLoaded,
)
from lachesis.wire.curriculum_items import (
    Comparison,
    Item,
    ItemChange,
    ItemDetails,
    ItemsRegistered,
    Observation,
    ReleaseItems,
    SampledItem,
    SampledItems,
    SampleItems,
    WhatIf,
)
from lachesis.wire.options import CurriculumOptions, HowSampled, ItemOptions

log = logging.getLogger(__name__)


class AsyncCurriculum(OwnsSender, ForAsyncio):
    """A curriculum of one run.

    ```
    async with AsyncCurriculum("gsm8k") as curriculum:
        async for item in curriculum.items(prefetch=64):
            await curriculum.observe(item, await rollout(item.key))
    ```

    Use it in one event loop, with ``async with`` or `aclose`.

    All methods raise `ServiceError` if the service refuses a request, such as `CurriculumNotFound`, and `Unreachable`
    if no answer comes within ``retry_budget_s``.
    """

    name: str
    """Its name in the run."""

    settings: Settings
    """The URL of the service, the name of the run, and the timeouts."""

    _owns_sender = False

    def __init__(
        self,
        name: str,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        token: str | None = None,
    ) -> None:
        """Check the settings. Does not connect: ``AsyncCurriculum("gsm8k", "http://lachesis:8000", run="math")``.

        Args:
            name: Its name in the run.
            settings: The service's URL, or all `Settings`. None means the environment variables.
            url, run, token: The URL, the run and the token. They take precedence over ``settings``.

        Raises:
            InvalidField: The name is not allowed.
            ValueError, TypeError: Another argument or a variable is wrong; the message names it.
        """
        settings = settings_from(settings, url, run, token)
        self._use(name, settings, Sender(settings), owns_sender=True)

    @classmethod
    def _over(cls, name: str, settings: Settings, sender: Sender) -> Self:
        """Make one over the connections of another object, which closes them."""
        made = cls.__new__(cls)
        made._use(name, settings, sender, owns_sender=False)
        return made

    def _use(self, name: str, settings: Settings, sender: Sender, owns_sender: bool) -> None:
        self._owns_sender = owns_sender
        if not re.fullmatch(CURRICULUM_NAME, str(name)):
            raise InvalidField(f"should be a curriculum's name (letters, digits, ._:@-), not {name!r}", ("name",))
        self.name = name
        self.settings = settings
        self._calls = CurriculumCalls(settings.run, name)
        self._sender = sender
        self._observer = Observer(self._calls, sender, self._note_freed)
        self._queues: set[ItemQueue] = set()  # threads add to it

    def items(
        self,
        prefetch: int = 64,
        *,
        step: int | Callable[[], int] | None = None,
        total_steps: int | None = None,
        strategy: CurriculumStrategy | None = None,
        wait_s: float | None = None,
    ) -> AsyncItemStream:
        """Draw items to try, and prefetch some: ``async for item in curriculum.items()``, in any number of tasks.

        An item of the stream is in flight until it is observed, or until ``in_flight_ttl_s`` is over. Other requests
        get other items. The stream waits while all items are in flight. When the stream is closed, it releases unused
        items.

        Args:
            prefetch: Number of items to keep ready, ``>= 0``.
            step: Trainer steps so far, for strategies that use the step; or a function that returns the step. It is
                called before each request, and must not use a synchronous object of the SDK. None means the step of the
                run.
            total_steps: Trainer steps at which progress is 1. None means the setting of the curriculum.
            strategy: The strategy of this stream. None means the setting of the curriculum.
            wait_s: How long to wait for the next item, seconds, ``> 0``. None means no limit.

        Raises:
            InvalidField: A value is wrong.
            NoItem: From the stream: no item came within ``wait_s``. The message says why.
            CurriculumNotFound: From the stream: the run has no curriculum with this name.
        """
        current_step: Callable[[], int | None] = step if callable(step) else lambda: step
        _body(1, step=current_step(), total_steps=total_steps, strategy=strategy)

        async def sample(count: int, request_id: str, budget_s: float | None) -> SampledItems:
            how = {"step": current_step(), "total_steps": total_steps, "strategy": strategy}
            return await self._sender.send(self._calls.sample(_body(count, request_id=request_id, **how)), budget_s)

        where = f"run {self.settings.run}, curriculum {self.name}"
        queue = ItemQueue(sample, self._release_keys, prefetch, wait_s, where)
        self._queues.add(queue)
        self._queues.difference_update([each for each in list(self._queues) if each.ended])
        return AsyncItemStream(queue)

    async def observe(self, item: str | SampledItem, rewards: Sequence[float] | NDArray[Any]) -> None:
        """Report the rewards of an ``item``. They are sent in the background within 0.1 s.

        Each observation counts once, even if its request is repeated. Waits while 10,000 observations are unsent.

        Args:
            item: The item, or its key. The curriculum registers an unknown key.
            rewards: One reward per sequence of the group, at least one.

        Raises:
            InvalidField: A value is wrong.
            CurriculumNotFound, ServiceError: The service refused earlier observations. Report this one again.
            Unreachable: The curriculum is closed, or its environment or trainer is. This one was not taken.
        """
        numbers = rewards if isinstance(rewards, list | tuple) else np.asarray(rewards).tolist()
        await self._observer.put(checked(Observation, item=key_of(item), rewards=numbers))

    async def flush(self) -> None:
        """Wait until the service has counted all observations that were reported before.

        Raises:
            CurriculumNotFound, ServiceError: The service refused some observations.
            Unreachable: The curriculum is closed, or its environment or trainer is.
        """
        await self._observer.flush()

    async def sample(self, n: int, **how: Unpack[HowSampled]) -> SampledItems:
        """Draw up to ``n`` different items, at most 4096. Rollout loops usually use `items`.

        The items are in flight until they are observed or released, or until ``in_flight_ttl_s`` is over.

        Args:
            n: How many.
            how: ``step`` and ``total_steps`` of the trainer; ``strategy`` and ``seed`` for this sample only.

        Raises:
            InvalidField: A value is wrong, or the strategy needs ``total_steps``.
            CurriculumNotFound: The run has no curriculum with this name.
        """
        return await self._sender.send(self._calls.sample(_body(n, request_id=str(uuid.uuid4()), **how)))

    async def release(self, sample: SampledItems, items: Iterable[str | SampledItem] | None = None) -> int:
        """Release unused items of a `sample`, so that other requests can get them.

        Args:
            sample: The sample.
            items: The items to release, or their keys. None means all items of the sample.

        Returns:
            The number of released items, without items that were observed or were in flight for ``in_flight_ttl_s``.

        Raises:
            CurriculumNotFound: The run has no curriculum with this name.
        """
        keys = [key_of(item) for item in (sample.items if items is None else items)]
        return await self._release_keys(sample.sample, keys) if sample.sample and keys else 0

    async def bins(self, n: int, **how: Unpack[HowSampled]) -> list[int]:
        """Draw ``n`` bins, at most 4096. Bin 0 is the easiest. No item is handed out.

        Args:
            n: How many.
            how: As in `sample`.

        Raises:
            InvalidField: A value is wrong, or the strategy needs ``total_steps``.
            CurriculumNotFound: The run has no curriculum with this name.
        """
        return (await self._sender.send(self._calls.sample(_body(n, bins_only=True, **how)))).bins

    async def set_up(self, **settings: Unpack[CurriculumOptions]) -> CurriculumInfo:
        """Create this curriculum with these ``settings``, if the run does not have it.

        An existing curriculum keeps its settings, because somebody may have changed them on purpose. If its settings
        differ from ``settings``, a warning is logged. Use `change` to change them.

        Raises:
            InvalidField: A setting is wrong or unknown, or the strategy needs ``total_steps``.
            RunNotFound: The run does not exist.
        """
        asked = checked(CurriculumSettings, **settings)
        info = await self._sender.send(self._calls.set_up(asked))
        if others := differing(asked, info.settings, settings):
            log.warning("curriculum %s exists with other settings, and keeps them: %s", self.name, others)
        return info

    async def change(self, **changes: Unpack[CurriculumOptions]) -> CurriculumInfo:
        """Change settings while the curriculum is in use: ``changes``. Settings that you leave out stay.

        Change ``temperature`` together with ``strategy``: 0.1 is usual for ``bandit``, and 1 for other strategies.

        Raises:
            InvalidField: A setting is wrong or unknown, or the strategy needs ``total_steps``.
            CurriculumNotFound: The run has no curriculum with this name.
        """
        return await self._sender.send(self._calls.change(checked(CurriculumChange, **changes)))

    async def info(self) -> CurriculumInfo:
        """Return the settings of the curriculum, and its numbers of items: in all, seen, in flight, in each bin."""
        return await self._sender.send(self._calls.info())

    async def register(self, items: Iterable[Registered]) -> ItemsRegistered:
        """Register items, in large requests. Known items keep their statistics.

        Args:
            items: Any number, read in slices: keys, `NewItem` objects, or their fields:
                ``{"key": "gsm8k/17", "prior": 0.4, "category": "algebra", "metadata": {…}}``.

        Raises:
            InvalidField: An item is wrong. The slices before it are registered; registering them again is harmless.
        """
        registered = known = 0
        for lines in slices(items):
            done = await self._register(lines)
            registered, known = registered + done.registered, known + done.known
        return ItemsRegistered(registered=registered, known=known)

    async def item(self, key: str) -> ItemDetails:
        """Return the statistics of the item with this ``key``, and its last 50 scores.

        Raises:
            InvalidField: The key is not allowed.
            ItemNotFound: There is no item with this key.
        """
        return await self._sender.send(self._calls.item(key))

    async def change_item(self, key: str, **changes: Unpack[ItemOptions]) -> ItemDetails:
        """Change category, prior or metadata of an item. None removes a value. The statistics stay.

        Args:
            key: The item's key.
            changes: ``category``, ``prior``, ``metadata``.

        Raises:
            InvalidField: A value is wrong or unknown.
            ItemNotFound: There is no item with this key.
        """
        return await self._sender.send(self._calls.change_item(key, checked(ItemChange, **changes)))

    async def delete_item(self, key: str) -> None:
        """Delete the item with this ``key``, and its statistics.

        Raises:
            InvalidField: The key is not allowed.
            ItemNotFound: There is no item with this key.
        """
        await self._sender.send(self._calls.delete_item(key))

    async def list_items(
        self, *, in_bin: int | None = None, sort: ItemSorting = "mean_reward", descending: bool = False
    ) -> AsyncGenerator[Item, None]:
        """List all items, page by page. No item is handed out.

        Args:
            in_bin: Only items of this bin. Bin 0 has the easiest items.
            sort: The order. ``mean_reward`` lists all items, unseen items last. Other orders list seen items only.
            descending: Whether the largest come first.

        Raises:
            InvalidField: There is no such bin or order.
            CurriculumNotFound: The run has no curriculum with this name.
        """
        asked = {"limit": "1000", "sort": sort, "descending": str(descending).lower()}
        query = asked if in_bin is None else {**asked, "bin": str(in_bin)}
        while True:
            page = await self._sender.send(self._calls.page(query))
            for item in page.items:
                yield item
            if page.cursor is None:
                return
            query = {**query, "cursor": page.cursor}

    async def metrics(self, step: int | None = None, total_steps: int | None = None) -> dict[str, float]:
        """Return metrics by name, such as ``curriculum/mean_difficulty``, ready for a logger.

        Args:
            step: Trainer steps so far. None means the step of the run.
            total_steps: Trainer steps at which progress is 1. None means the setting of the curriculum.

        Raises:
            CurriculumNotFound: The run has no curriculum with this name.
        """
        query = query_of(step=step, total_steps=total_steps)
        return (await self._sender.send(self._calls.metrics(query))).metrics

    async def what_if(self, n: int = 16, step: int | None = None, **settings: Unpack[CurriculumOptions]) -> Comparison:
        """Return what other settings would sample now: ``what_if(strategy="thompson")``. Changes nothing.

        Args:
            n: Items to sample.
            step: Trainer steps so far. None means the step of the run.
            settings: The other settings.

        Raises:
            InvalidField: A setting is wrong or unknown.
            CurriculumNotFound: The run has no curriculum with this name.
        """
        return await self._sender.send(self._calls.what_if(checked(WhatIf, n=n, step=step, **settings)))

    async def state(self) -> bytes:
        """Return the whole curriculum as one document: settings, random generator, items and statistics."""
        return bytes(await self._sender.send(self._calls.state()))

    async def save_state(self, file: StateFile) -> None:
        """Write the document of `state` into a ``file``, piece by piece, for curricula of a million items.

        Args:
            file: A file that is open for bytes, or a path. The file at a path is replaced at the end. If the process is
                killed before, a file ``PATH.….part`` stays beside it, which you can delete.
        """
        with written_to(file) as sink:
            await self._sender.send(self._calls.save_state(sink))

    async def load_state(self, state: bytes | StateFile | Mapping[str, Any]) -> StateLoaded:
        """Restore a saved state, all or nothing. The curriculum continues with the same samples.

        If an answer is lost, the SDK restores it once more: observations that arrived in between are lost.

        Args:
            state: What `state` returned, a file that has it, its path, or the state of Atropos's
                ``CurriculumScheduler``.

        Raises:
            InvalidField, MalformedBody: It is not such a state; the message says where.
            RunNotFound: The run does not exist.
        """
        if isinstance(state, Mapping):
            return await self._sender.send(self._calls.load_state(json.dumps(state).encode(), JSON))
        if isinstance(state, bytes | bytearray | memoryview):
            return await self._sender.send(self._calls.load_state(state, JSON_LINES))
        with read_from(state) as body:
            return await self._sender.send(self._calls.load_state(body, JSON_LINES))

    async def delete(self) -> None:
        """Delete the curriculum, its items and their statistics."""
        await self._sender.send(self._calls.delete())

    async def aclose(self) -> None:
        """End its streams, send the observations that wait, and close its connections. A repetition changes nothing.

        Raises:
            CurriculumNotFound, ServiceError, Unreachable: Observations did not arrive.
        """
        raise_failures(await self._end(), None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise_failures(await self._end(), error)

    def _facts(self) -> dict[str, object]:
        return {"name": self.name, **self.settings.facts()}

    def _is_open(self) -> bool:
        return self._owns_sender and super()._is_open()

    def _note_freed(self) -> None:
        """Let the streams ask for items now: observations have arrived, so items in flight may have become free."""
        for queue in list(self._queues):
            queue.note_freed()

    async def _register(self, lines: Sequence[bytes]) -> ItemsRegistered:
        return await self._sender.send(self._calls.register(lines))

    async def _release_keys(self, sample: str, keys: Sequence[str], budget_s: float | None = None) -> int:
        asked = checked(ReleaseItems, items=list(keys))
        return (await self._sender.send(self._calls.release(sample, asked), budget_s)).released

    async def _end(self) -> list[LachesisError]:
        """Close it. Return the errors of observations that did not arrive."""
        try:
            if self._owns_sender:
                self._observer.end()
            while self._queues:
                (queue, *_) = list(self._queues)
                await queue.aclose()
                self._queues.discard(queue)
            return await self._observer.close(self.settings.retry_budget_s)
        finally:
            if self._owns_sender:
                await self._sender.aclose()


class NamedCurricula:
    """The curricula that an environment or a trainer uses over its connections, by name."""

    def __init__(self, settings: Settings, sender: Sender) -> None:
        self._settings = settings
        self._sender = sender
        self._named: dict[str, AsyncCurriculum] = {}
        self._ended = False

    def named(self, name: str) -> AsyncCurriculum:
        """Return the curriculum with this name, always the same object: it has one queue of observations."""
        found = self._named.get(name)
        if found is None:  # threads may ask at once, and `setdefault` gives all of them the same one
            found = self._named.setdefault(name, AsyncCurriculum._over(name, self._settings, self._sender))
            if self._ended:
                found._observer.end()
        return found

    def note_observed(self, name: str) -> None:
        """Let streams of this curriculum ask for items again: groups with items of it have arrived."""
        if (found := self._named.get(name)) is not None:
            found._note_freed()

    async def closed(self) -> list[LachesisError]:
        """Close them for good. Return the errors of observations that did not arrive."""
        self._ended = True
        curricula = list(self._named.values())  # other tasks may still name further ones
        for curriculum in curricula:
            curriculum._observer.end()
        return [failure for curriculum in curricula for failure in await curriculum._end()]


def key_of(item: str | SampledItem) -> str:
    """Return the key of an item."""
    return item.key if isinstance(item, SampledItem) else item


def raise_failures(failures: Sequence[LachesisError], error: BaseException | None) -> None:
    """Raise the first failure at the end of a block, with the others as notes. If the block raised, note all on it."""
    if not failures:
        return
    first, *rest = failures if error is None else (error, *failures)
    for failure in rest:
        add_note(first, ": ".join((str(failure), *getattr(failure, "__notes__", ()))))
    if error is None:
        raise first


def _body(n: int, **how: Any) -> SampleItems:
    return checked(SampleItems, n=n, **{name: value for name, value in how.items() if value is not None})
