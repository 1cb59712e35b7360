"""A run's curriculum, for asyncio: items to try next, and what became of them."""

import uuid
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self, Unpack

from lachesis._compat import add_note
from lachesis._prefetch.items import ItemsAhead, ItemStream
from lachesis._public import ForAsyncio
from lachesis._transport.bodies import checked, invalid
from lachesis._transport.http import OwnsSender, Sender
from lachesis._transport.settings import Settings, settings_from
from lachesis.curriculum.observer import Observer
from lachesis.curriculum.options import HowSampled
from lachesis.curriculum.upkeep import CurriculumUpkeep
from lachesis.errors import LachesisError
from lachesis.wire.curricula import StrategyName
from lachesis.wire.curriculum_items import Observation, ReleaseItems, SampledItem, SampledItems, SampleItems


class Curriculum(CurriculumUpkeep, OwnsSender, ForAsyncio):
    """A curriculum of one run. Use it in one event loop, with ``async with`` or `aclose`.

    ```
    async with Curriculum("gsm8k") as curriculum:
        async for item in curriculum.items(prefetch=64):
            await curriculum.observe(item, await rollout(item.key))
    ```

    All methods raise `ServiceError` where the service says no, such as `CurriculumNotFound`, and `Unreachable` where
    there is no answer by the end of ``retry_budget_s``.
    """

    _twin = "SyncCurriculum"

    def __init__(
        self,
        name: str,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        sender: Sender | None = None,
    ) -> None:
        """Set up, without a word to the service yet: ``Curriculum("gsm8k", "http://lachesis:8000", run="math")``.

        Args:
            name: Its name in the run.
            settings: The service's URL, or all `Settings`; None: as the environment variables say.
            url, run: The same by name; they count more.
            sender: Connections of another class, which closes them; None: its own.

        Raises:
            InvalidField: It is no name.
            ValueError, TypeError: Another argument or a variable is wrong; the message names it.
        """
        settings = settings_from(settings, url, run)
        self._owns_sender = sender is None
        super().__init__(name, settings, sender or Sender(settings))
        self._observer = Observer(self._calls, self._sender)
        self._streams: list[ItemsAhead] = []

    def items(
        self,
        prefetch: int = 64,
        *,
        step: int | Callable[[], int] | None = None,
        total_steps: int | None = None,
        strategy: StrategyName | None = None,
        wait_s: float | None = None,
    ) -> ItemStream:
        """Draw items to try, some ahead: ``async for item in curriculum.items()``, in any number of tasks.

        Nobody else gets an item of it until it was observed, or for ``in_flight_ttl_s``. While all are in flight it
        waits. Those that were drawn ahead and not used are given back when the stream is closed.

        Args:
            prefetch: Items to keep ready.
            step: Trainer steps so far, for strategies that look at it, or what is asked for them with each request;
                None: the run's step.
            total_steps: Those at which progress is 1; None: as the curriculum says.
            strategy: For this stream alone; None: the curriculum's.
            wait_s: How long to wait for the next item; None: for ever.

        Raises:
            InvalidField: A value is wrong. As of the first item, also:
            NoItem: None came within ``wait_s``; the message says why.
            CurriculumNotFound: The run has none of this name.
        """
        if prefetch < 0:
            raise invalid(f"should be 0 or more, not {prefetch}", ("prefetch",))
        if wait_s is not None and not wait_s > 0:
            raise invalid(f"should be above 0, not {wait_s}", ("wait_s",))
        come: Callable[[], int | None] = step if callable(step) else lambda: step
        _asked(1, step=come(), total_steps=total_steps, strategy=strategy)

        async def sample(count: int, request_id: str, budget_s: float | None) -> SampledItems:
            asked = _asked(count, step=come(), total_steps=total_steps, strategy=strategy, request_id=request_id)
            return await self._sender.send(self._calls.sample(asked), budget_s)

        where = f"run {self.settings.run}, curriculum {self.name}"
        ahead = ItemsAhead(sample, self._release, self._observer.counted, prefetch, wait_s, where)
        self._streams = [*(stream for stream in self._streams if not stream.closed), ahead]
        return ItemStream(ahead)

    async def observe(
        self, item: str | SampledItem, rewards: Sequence[float] | NDArray[Any], policy_version: int | None = None
    ) -> None:
        """Tell what an ``item`` was rewarded with; it is sent in the background, with others, within 0.1 s.

        Each is counted once, however often its request had to be repeated, for as long as the service is away. Waits
        while 10,000 are on their way.

        Args:
            item: The item, or its key; one that is not there yet is registered.
            rewards: One for each sequence of the group, ``>= 1`` of them.
            policy_version: The version that sampled them.

        Raises:
            InvalidField: A value is wrong.
            CurriculumNotFound, ServiceError: Observations before this one were refused; it was not taken.
        """
        numbers = rewards if isinstance(rewards, list | tuple) else np.asarray(rewards).tolist()
        told = checked(Observation, item=_key(item), rewards=numbers, policy_version=policy_version)
        await self._observer.put(told)

    async def flush(self) -> None:
        """Wait until all observations have arrived.

        Raises:
            CurriculumNotFound, ServiceError: Some were refused.
        """
        await self._observer.flush()

    async def sample(self, n: int, **how: Unpack[HowSampled]) -> SampledItems:
        """Draw up to ``n`` items, at most 4096, none twice; `items` is the usual way to do so.

        Nobody else gets them until they were observed or given back, or for ``in_flight_ttl_s``.

        Args:
            n: How many.
            how: ``step`` and ``total_steps`` of the trainer; ``strategy`` and ``seed`` for this sample alone.

        Raises:
            InvalidField: A value is wrong, or the strategy needs ``total_steps``.
            CurriculumNotFound: The run has none of this name.
        """
        return await self._sender.send(self._calls.sample(_asked(n, request_id=str(uuid.uuid4()), **how)))

    async def give_back(self, sample: SampledItems, items: Iterable[str | SampledItem] | None = None) -> int:
        """Let others have items of a `sample` that nobody will try.

        Args:
            sample: Whose they are.
            items: Which of them, or their keys; None: all.

        Returns:
            How many it still had; what was observed, or had for ``in_flight_ttl_s``, stays as it is.

        Raises:
            CurriculumNotFound: The run has none of this name.
        """
        keys = [_key(item) for item in (sample.items if items is None else items)]
        return await self._release(sample.sample, keys) if sample.sample and keys else 0

    async def bins(self, n: int, **how: Unpack[HowSampled]) -> list[int]:
        """Draw ``n`` numbers of bins, at most 4096, bin 0 the easiest; no item is handed out.

        Args:
            n: How many.
            how: As of `sample`.

        Raises:
            InvalidField: A value is wrong, or the strategy needs ``total_steps``.
            CurriculumNotFound: The run has none of this name.
        """
        return (await self._sender.send(self._calls.sample(_asked(n, bins_only=True, **how)))).bins

    async def _release(self, sample: str, keys: Sequence[str], budget_s: float | None = None) -> int:
        asked = checked(ReleaseItems, items=list(keys))
        return (await self._sender.send(self._calls.release(sample, asked), budget_s)).released

    async def aclose(self) -> None:
        """End its streams, send the observations that wait, and close its connections.

        Raises:
            CurriculumNotFound, ServiceError, Unreachable: Observations did not arrive.
        """
        tell_troubles(await self._end(), None)

    async def _end(self) -> list[LachesisError]:
        """Close it; returns what was wrong if observations did not arrive."""
        for stream in self._streams:
            await stream.aclose()
        self._streams.clear()
        try:
            return await self._observer.close(self.settings.retry_budget_s)
        finally:
            if self._owns_sender:
                await self._sender.aclose()

    def _facts(self) -> dict[str, object]:
        return {"name": self.name, **self.settings.facts()}

    def _must_close(self) -> bool:
        return super()._must_close() and self._owns_sender

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tell_troubles(await self._end(), error)


def _key(item: str | SampledItem) -> str:
    return item.key if isinstance(item, SampledItem) else item


def _asked(n: int, **how: Any) -> SampleItems:
    return checked(SampleItems, n=n, **{name: value for name, value in how.items() if value is not None})


class Curricula:
    """The curricula that an environment or a trainer uses over its connections, by name."""

    def __init__(self, settings: Settings, sender: Sender) -> None:
        self._settings = settings
        self._sender = sender
        self._named: dict[str, Curriculum] = {}

    def named(self, name: str) -> Curriculum:
        """Return the same one whenever it is asked for: its observations go in one queue."""
        if name not in self._named:
            self._named[name] = Curriculum(name, self._settings, sender=self._sender)
        return self._named[name]

    async def closed(self) -> list[LachesisError]:
        """Close them; returns what was wrong with those whose observations did not all arrive."""
        return [trouble for curriculum in self._named.values() for trouble in await curriculum._end()]


def tell_troubles(troubles: Sequence[LachesisError], error: BaseException | None) -> None:
    """Raise the first of what went wrong at the end of a block, the others noted; or note all on its own ``error``."""
    if not troubles:
        return
    first, *rest = troubles if error is None else (error, *troubles)
    for trouble in rest:
        add_note(first, ": ".join((str(trouble), *getattr(trouble, "__notes__", ()))))
    if error is None:
        raise first
