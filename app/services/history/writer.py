"""Write down what happened in runs, and add old spans up to coarser ones."""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.core.history.resolution import KEPT, NEXT, Resolution, fresh_s, span_begin, until_next_write_s
from app.core.history.series import HistorySpan, added
from app.services.history.recorder import HistoryRecorder
from app.services.history.sampling import HistorySampler
from app.services.isolation import Failure, isolated
from app.store.history.store import Growth, HistoryStore, StoredSpan, parse_span
from lachesis.wire.errors import StoreFull, StoreUnavailable, UnreadableRecord

_EVERY_S = float(KEPT[0].step_s)
_BEHIND_S = 600.0  # a clock of Redis that goes back for a shorter time, as after a boot without NTP, costs no history

log = logging.getLogger("lachesis.maintenance")


@dataclass(frozen=True, slots=True)
class _Written:
    """The latest entry of this process in a run, what it has, and when it was written by the clock of the process."""

    entry: str
    span: HistorySpan
    at_s: float

    @property
    def time_s(self) -> float:
        """Return the time of the entry, seconds since 1970."""
        return int(self.entry.partition("-")[0]) / 1000

    def is_open(self, now_s: float) -> bool:
        """Return whether its span of time may still go on, so that more can be added to it."""
        return self.time_s % _EVERY_S + now_s - self.at_s < _EVERY_S


class HistoryWriter:
    """Writes the history of runs every ten seconds, and every second for a run that somebody watches.

    It does so less often if the run has many environments: see `fresh_s`.

    What is written within the same ten seconds is one entry, which grows. What this process has counted since it wrote
    is lost if it dies, if the next write fails, or if Redis is full.

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
        self._written: dict[str, _Written] = {}
        self._behind_since_s: dict[str, float] = {}  # since when the time of Redis is before the latest entry, by run
        self._fresh_until_s: dict[str, float] = {}
        self._keeping: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._maintained: Mapping[str, bool] = {}

    async def due(self, maintained: Mapping[str, bool]) -> list[str]:
        """Return the runs whose history is to be written now.

        Args:
            maintained: The runs that this process maintains, and whether each has a replay buffer.

        Raises:
            StoreUnavailable: The time of Redis, or which runs somebody looks at, cannot be known.
        """
        self._maintained = maintained
        runs, now_s = dict.fromkeys([*maintained, *self.counted()]), self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + until_next_write_s(await self._histories.now_s())
            return list(runs)
        watched = await self._histories.watched() if runs else frozenset()
        return [run for run in runs if run in watched and not self._is_fresh(run)]

    async def refresh(self, run: str) -> None:
        """Write down now what happened in a run, because somebody looks. Other processes do it within a second."""
        if self._is_fresh(run):
            return
        is_maintained, replay = run in self._maintained, self._maintained.get(run, False)
        with suppress(StoreUnavailable):  # what is stored already can perhaps be read
            await self._histories.watch(run)
            if is_maintained or run in self._recorder.runs():
                # What fails here fails in maintenance, too, and is logged there.
                await isolated(self.write(run, maintained=is_maintained, replay=replay, unless_fresh=True))

    def next_in_s(self, run: str) -> int:
        """Return the whole seconds until new data can be read; 0 if that is less than one."""
        left_s = self._fresh_until_s.get(run, 0.0) - self._clock()
        return math.ceil(left_s) if left_s >= 1 else 0

    def _is_fresh(self, run: str) -> bool:
        return self._clock() < self._fresh_until_s.get(run, 0.0)

    def counted(self) -> list[str]:
        """Return the runs of which this process has counted something."""
        return self._recorder.runs()

    async def write(self, run: str, *, maintained: bool, replay: bool = False, unless_fresh: bool = False) -> None:
        """Write down what happened in a run. If the look at it fails, do everything else before raising.

        Args:
            run: Its name.
            maintained: Whether this process maintains it, and looks at it.
            replay: Whether it has a replay buffer.
            unless_fresh: Whether to skip the write if the last one is recent.

        Raises:
            UnreadableRecord: Something in the run cannot be read.
        """
        async with self._keeping[run]:
            if unless_fresh and self._is_fresh(run):
                return
            began_s = self._clock()
            look = await isolated(self._sampler.sample(run, replay=replay)) if maintained else None
            seen, growth = (HistorySpan(), None) if look is None or isinstance(look, Failure) else look
            counted = await self._take(run)
            span = added([counted, seen])
            if not await self._append(run, span, growth) and growth is not None:
                await self._append(run, counted)  # another process has looked at the run since
            if maintained:
                with suppress(StoreFull):  # groups need the memory more; a later merge continues
                    await self._merge(run)
            self._fresh_until_s[run] = began_s + fresh_s(len(span.environments))
            if isinstance(look, Failure):
                raise look.error

    async def write_all(self) -> None:
        """Write down what this process has counted, before it ends."""
        for run in self.counted():
            await self._append(run, await self._take(run))

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these."""
        self._sampler.keep_only(runs)
        kept = set(runs)
        self._merged_s = {place: time_s for place, time_s in self._merged_s.items() if place[0] in kept}
        self._written = {run: written for run, written in self._written.items() if run in kept}
        self._behind_since_s = {run: since_s for run, since_s in self._behind_since_s.items() if run in kept}
        self._fresh_until_s = {run: until_s for run, until_s in self._fresh_until_s.items() if run in kept}
        for run in [run for run, lock in self._keeping.items() if run not in kept and not lock.locked()]:
            del self._keeping[run]

    async def _take(self, run: str) -> HistorySpan:
        return self._recorder.take(run, await self._histories.first_epoch(run))

    async def _append(self, run: str, span: HistorySpan, growth: Growth | None = None) -> bool:
        # If a write fails, its outcome is unknown, and the next one is an entry of its own.
        written, now_s = self._written.pop(run, None), self._clock()
        try:
            entry = None
            if written is not None and written.is_open(now_s):
                whole = added([written.span, span])
                entry = await self._histories.append(run, whole, growth, written.entry)
            if entry is None:
                whole, entry = span, await self._histories.append(run, span, growth)
        except StoreFull:
            return False  # groups need the memory more
        if entry is not None:
            self._written[run] = _Written(entry, whole, now_s)
        return entry is not None

    async def _merge(self, run: str) -> None:
        now_s = await self._histories.now_s()
        if self._behind_for_s(run, now_s) >= _BEHIND_S:
            await self._histories.drop_future(run, now_s)
            log.warning("the clock of Redis went back: dropped later history", extra={"fields": {"run": run}})
        for fine, coarse in NEXT:
            end_s = span_begin(int(now_s), coarse.step_s)
            if self._merged_s.get((run, coarse.step_s)) != end_s:
                await self._merge_up_to(run, fine, coarse, end_s, now_s)
                self._merged_s[run, coarse.step_s] = end_s

    def _behind_for_s(self, run: str, now_s: float) -> float:
        """Return how long the time of Redis has been before the latest entry, seconds. New entries get its time."""
        written = self._written.get(run)
        if written is None or written.time_s < now_s + _EVERY_S:
            self._behind_since_s.pop(run, None)
            return 0.0
        return self._clock() - self._behind_since_s.setdefault(run, self._clock())

    async def _merge_up_to(self, run: str, fine: Resolution, coarse: Resolution, end_s: int, now_s: float) -> None:
        last_s = await self._histories.last_s(run, coarse)
        first_s = 0 if last_s is None else last_s + coarse.step_s
        # A fine stream that was not added up for long is too large to be read at once.
        while (next_s := await self._histories.next_s(run, fine, first_s)) is not None and next_s < end_s:
            begin_s = span_begin(next_s, coarse.step_s)
            first_s = begin_s + coarse.step_s
            stored = await self._histories.spans(run, fine, next_s, first_s)
            span = await asyncio.to_thread(_added, run, stored)
            await self._histories.merge(run, fine, coarse, begin_s, span, now_s)


def _added(run: str, stored: Sequence[StoredSpan]) -> HistorySpan:
    return added(span for one in stored if (span := _readable(run, one)) is not None)


def _readable(run: str, stored: StoredSpan) -> HistorySpan | None:
    try:
        return parse_span(run, stored)
    except UnreadableRecord as error:
        fields = {"run": run, "time_s": stored.time_s, "detail": str(error)}
        log.error("left an unreadable span of the history out of the coarser ones", extra={"fields": fields})
        return None
