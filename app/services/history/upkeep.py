"""Write down what happened in runs, and add old spans up to coarser ones."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from itertools import groupby

from app.core.history.resolution import NEXT, Resolution, span_begin
from app.core.history.series import Span, added
from app.services.history.recorder import HistoryRecorder
from app.services.history.sampling import HistorySampler
from app.store.history.store import HistoryStore, StoredSpan, Totals, parse_span
from lachesis.wire.errors import StoreFull

_EVERY_S = 10.0


class HistoryUpkeep:
    """Keeps the history of runs. What this process has counted is lost if it dies within the next ten seconds.

    Args:
        histories: The histories.
        recorder: What this process has counted.
        sampler: Looks at the runs that this process maintains.
        clock: Returns the time now, seconds.
    """

    def __init__(
        self,
        histories: HistoryStore,
        recorder: HistoryRecorder,
        sampler: HistorySampler,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._histories = histories
        self._recorder = recorder
        self._sampler = sampler
        self._clock = clock
        self._next_s = clock() + _EVERY_S
        self._merged_s: dict[tuple[str, int], int] = {}  # up to where, by run and step

    def due(self) -> bool:
        """Return whether it is time to write again."""
        now_s = self._clock()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + _EVERY_S
        return True

    def counted(self) -> list[str]:
        """Return the runs of which this process has counted something."""
        return self._recorder.runs()

    async def keep(self, run: str, *, maintained: bool, replay: bool = False) -> None:
        """Write down what happened in a run.

        Args:
            run: Its name.
            maintained: Whether this process maintains it, and looks at it.
            replay: Whether it has a replay buffer.
        """
        if not maintained:
            await self._write(run, self._recorder.take(run), None)
            return
        span, totals = await self._sampler.sample(run, replay=replay)
        await self._write(run, added([self._recorder.take(run), span]), totals)
        await self._merge(run)

    async def write_all(self) -> None:
        """Write down what this process has counted, before it ends."""
        for run in self.counted():
            await self._write(run, self._recorder.take(run), None)

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these."""
        self._sampler.keep_only(runs)
        kept = set(runs)
        self._merged_s = {place: time_s for place, time_s in self._merged_s.items() if place[0] in kept}

    async def _write(self, run: str, span: Span, totals: Totals | None) -> None:
        try:
            await self._histories.append(run, span, totals)
        except StoreFull:
            return  # groups need the memory more

    async def _merge(self, run: str) -> None:
        now_s = await self._histories.now_s()
        for fine, coarse in NEXT:
            end_s = span_begin(int(now_s), coarse.step_s)
            if self._merged_s.get((run, coarse.step_s)) != end_s:
                await self._merge_up_to(run, fine, coarse, end_s, now_s)
                self._merged_s[run, coarse.step_s] = end_s

    async def _merge_up_to(self, run: str, fine: Resolution, coarse: Resolution, end_s: int, now_s: float) -> None:
        last_s = await self._histories.last_s(run, coarse)
        first_s = 0 if last_s is None else last_s + coarse.step_s
        stored = await self._histories.spans(run, fine, first_s, end_s)
        for begin_s, part in groupby(stored, lambda one: span_begin(one.time_s, coarse.step_s)):
            parts = list(part)
            span = await asyncio.to_thread(_added, run, parts)
            await self._histories.merge(run, fine, coarse, begin_s, span, now_s)


def _added(run: str, stored: Sequence[StoredSpan]) -> Span:
    return added(parse_span(run, one) for one in stored)
