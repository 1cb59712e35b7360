"""Items of a curriculum, drawn ahead of the rollouts that try them."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import uniform
from types import TracebackType
from typing import ClassVar, Self

from lachesis._ahead import Ahead
from lachesis._protocol import NothingYet
from lachesis.errors import LachesisError, NoItem
from lachesis.wire.curriculum_items import MAX_SAMPLE, SampledItem, SampledItems

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """An item, and until when nobody else gets it."""

    item: SampledItem
    until_s: float


class ItemsAhead(Ahead[Drawn]):
    """Items that are ready. Those that waited here for so long that others may have them are left out."""

    none_came: ClassVar[type[LachesisError]] = NoItem

    def __init__(
        self,
        sample: Callable[[int], Awaitable[SampledItems]],
        in_flight_ttl_s: Callable[[], Awaitable[float]],
        freed: asyncio.Event,
        prefetch: int,
        patience_s: float | None,
    ) -> None:
        """Begin to draw when the first is asked for.

        Args:
            sample: Draws so many, or fewer.
            in_flight_ttl_s: Says for how long nobody else gets them; asked once.
            freed: Is set when items in flight may have become free.
            prefetch: How many to keep ready, ``>= 0``.
            patience_s: How long `next` waits; None: for ever.
        """
        super().__init__(prefetch, patience_s, "item", slack=prefetch // 2)
        self._sample = sample
        self._ask_ttl = in_flight_ttl_s
        self._freed = freed
        self._ttl_s: float | None = None
        self._pause_s = 0.0
        self._in_vain = 0

    async def aclose(self) -> None:
        """Draw no more; those that wait for an item are told that there are none."""
        self._closed = True
        await self._stop()
        self._ready.clear()
        self._news.set()

    def _has_one(self) -> bool:
        now_s = time.monotonic()
        while self._ready and self._ready[0].until_s < now_s:
            self._ready.popleft()
            self._room.set()
        return bool(self._ready)

    async def _more(self, missing: int, poll_s: float) -> Sequence[Drawn] | NothingYet:
        if self._ttl_s is None:
            self._ttl_s = await self._ask_ttl() or float("inf")  # 0: items are not kept from others at all
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._freed.wait(), min(self._pause_s, poll_s))
        self._freed.clear()
        until_s = time.monotonic() + self._ttl_s
        wanted = min(missing, MAX_SAMPLE)
        sample = await self._sample(wanted)
        self._in_vain = 0 if sample.items else self._in_vain + 1
        self._pause_s = 0.0 if len(sample.items) == wanted else self._pause(sample.retry_after_s)
        if not sample.items:
            return NothingYet(_why_none(sample))
        return [Drawn(item, until_s) for item in sample.items]

    def _pause(self, free_s: float | None) -> float:
        """Return how long to wait for items to be free; observations by others free them sooner than is known."""
        longest_s = min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2.0 ** min(self._in_vain, 10))
        return uniform(0.5, 1) * min(longest_s, longest_s if free_s is None else free_s)


class ItemStream:
    """Items to try, one after the other, drawn ahead; made by `Curriculum.items`.

    Any number of tasks may take items of one stream, and a loop that was left may be taken up again. It ends when the
    stream or its curriculum is closed. What is ready then comes back to others ``in_flight_ttl_s`` after it was drawn.
    """

    def __init__(self, ahead: ItemsAhead) -> None:
        """Draw none yet; see `Curriculum.items`."""
        self._ahead = ahead

    async def aclose(self) -> None:
        """End the stream: loops over it end. Safe to repeat."""
        await self._ahead.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SampledItem:
        return (await self._ahead.next()).item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _why_none(sample: SampledItems) -> str:
    if sample.retry_after_s is None:
        return f"the curriculum has none that {sample.strategy} would draw"
    return f"{sample.in_flight} are in flight, the first of which is free in {sample.retry_after_s:.0f} s at the latest"
