"""Draw items of a curriculum ahead of the rollouts that try them."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from random import uniform
from types import TracebackType
from typing import ClassVar

from typing_extensions import Self

from lachesis._compat import timeout
from lachesis._prefetch.queue import PrefetchQueue
from lachesis._public import ForAsyncio, Shown
from lachesis._transport.protocol import NothingYet
from lachesis.errors import LachesisError, NoItem
from lachesis.wire.curriculum_items import MAX_SAMPLE, SampledItem, SampledItems

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0
_GIVE_BACK_S = 1.0  # retry budget for giving items back; without that, others get them later
_FAILURES = (LachesisError, RuntimeError)  # the second: the connections are closed


@dataclass(frozen=True, slots=True)
class Drawn:
    """An item, the sample that has it, and the time until which others do not get it."""

    item: SampledItem
    sample: str
    until_s: float


class ItemQueue(PrefetchQueue[Drawn]):
    """Items that are ready. An item that has waited here until others may get it is left out, and given back."""

    none_came: ClassVar[type[LachesisError]] = NoItem

    def __init__(
        self,
        sample: Callable[[int, str, float | None], Awaitable[SampledItems]],
        release: Callable[[str, Sequence[str], float | None], Awaitable[int]],
        prefetch: int,
        wait_s: float | None,
        where: str,
    ) -> None:
        """Draw nothing before the first is asked for.

        Args:
            sample: Draws up to this many, under this request id, with this retry budget. None: as the settings say.
            release: Gives back items of a sample, with this retry budget.
            prefetch: How many to keep ready, ``>= 0``.
            wait_s: How long to wait for the next one, seconds, ``> 0``. None means no limit.
            where: The run and the curriculum; for messages.
        """
        super().__init__(prefetch, wait_s, where, "item", slack=prefetch // 2)
        self._sample = sample
        self._release = release
        self._freed = asyncio.Event()
        self._unanswered: tuple[str, float] | None = None
        self._too_late: list[Drawn] = []
        self._pause_s = 0.0
        self._empty_draws = 0
        self._closing = asyncio.Lock()
        self.ended = False
        """Whether `aclose` has given back what was ready."""

    def note_freed(self) -> None:
        """Ask for items now: items in flight may have become free."""
        self._freed.set()

    async def aclose(self) -> None:
        """Draw no more, and give back what is ready. Tasks that wait for an item see the end of the stream.

        A repetition waits for the first call, or gives back what is left if that was interrupted.
        """
        async with self._closing:
            if self.ended:
                return
            await self._close()
            if self._unanswered is not None:
                with contextlib.suppress(*_FAILURES):
                    _, unanswered = await self._draw(1, _GIVE_BACK_S)
                    self._ready.extend(unanswered)
            await self._give_back([*self._too_late, *self._ready])
            self.ended = True
            self._ready.clear()

    def _has_one(self) -> bool:
        now_s = time.monotonic()
        while self._ready and self._ready[0].until_s < now_s:
            self._too_late.append(self._ready.popleft())
            self._room.set()
        return bool(self._ready)

    async def _more(self, missing: int, poll_s: float) -> Sequence[Drawn] | NothingYet:
        with contextlib.suppress(TimeoutError):
            async with timeout(min(self._pause_s, poll_s)):
                await self._freed.wait()
        self._freed.clear()
        if self._is_idle:
            return NothingYet(self._waiting_for)
        too_late, self._too_late = self._too_late, []
        await self._give_back(too_late)
        wanted = min(missing, MAX_SAMPLE)
        sample, drawn = await self._draw(wanted)
        self._empty_draws = 0 if sample.items else self._empty_draws + 1
        self._pause_s = 0.0 if len(sample.items) == wanted else self._pause(sample.retry_after_s)
        return drawn or NothingYet(_why_none(sample))

    async def _draw(self, count: int, budget_s: float | None = None) -> tuple[SampledItems, list[Drawn]]:
        # The id of a request whose answer never came is used again: it returns what that request drew. If it drew
        # nothing, or its items are free again, these items are new, and in flight for longer than `until_s`.
        request_id, asked_s = self._unanswered = self._unanswered or (str(uuid.uuid4()), time.monotonic())
        sample = await self._sample(count, request_id, budget_s)
        self._unanswered = None
        until_s = asked_s + (sample.in_flight_ttl_s or float("inf"))  # 0: items are not kept from others at all
        return sample, [Drawn(item, sample.sample or "", until_s) for item in sample.items]

    async def _give_back(self, unused: Iterable[Drawn]) -> None:
        keys: dict[str, list[str]] = {}
        for drawn in unused:
            keys.setdefault(drawn.sample, []).append(drawn.item.key)
        with contextlib.suppress(*_FAILURES):
            for sample, of_sample in keys.items():
                await self._release(sample, of_sample, _GIVE_BACK_S)

    def _pause(self, free_s: float | None) -> float:
        """Return how long to wait for free items. Observations by other processes may free them sooner."""
        longest_s = min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2.0 ** min(self._empty_draws, 10))
        return uniform(0.5, 1) * min(longest_s, longest_s if free_s is None else free_s)


class AsyncItemStream(Shown, ForAsyncio):
    """Items to try, one after the other, drawn ahead. `AsyncCurriculum.items` makes it.

    Any number of tasks may take items from one stream. A loop that was left can be continued by another one. The
    stream ends when it or its curriculum is closed. Items that are ready then are given back.
    """

    def __init__(self, queue: ItemQueue) -> None:
        self._queue = queue

    def _facts(self) -> dict[str, object]:
        return {"closed": self._queue.closed}

    async def aclose(self) -> None:
        """End the stream and the loops over it. A repetition changes nothing."""
        await self._queue.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SampledItem:
        return (await anext(self._queue)).item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _why_none(sample: SampledItems) -> str:
    if sample.missing == "no_items":
        return "the curriculum has no items"
    if sample.missing == "not_drawn" or sample.retry_after_s is None:
        return f"the curriculum has none that {sample.strategy} would draw"
    return f"{sample.in_flight} are in flight, the first of which is free in {sample.retry_after_s:.0f} s at the latest"
