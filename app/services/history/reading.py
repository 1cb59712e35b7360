"""Read the history of a run for charts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from app.core.history.charts import (
    Histograms,
    environment_series,
    histograms,
    run_series,
)
from app.core.history.joined import JoinedSpans, TimedSpan
from app.core.history.resolution import (
    KEPT,
    MOST_CELLS,
    AskedRange,
    Range,
    Resolution,
    chosen_range,
    default_begin,
    kept_resolution,
)
from app.core.history.series import MOST_CHARTED_ENVIRONMENTS, MOST_NAME, HistorySpan
from app.core.history.shares import Shares, shares
from app.core.history.wanted import EVERYTHING, SKETCHES, WantedHistory
from app.services.history.writer import HistoryWriter
from app.store.history.store import HistoryStore, StoredSpan, parse_span
from app.store.runs.store import RunStore
from lachesis.wire.errors import InvalidField
from lachesis.wire.history import HistoryCount, HistoryValue

_AT_ONCE = 20  # spans to parse in one go: other requests are served in between
_READ = 100  # spans to read at once
_MOST_HISTOGRAMS = 400  # times of a heat map
_MOST_PARSED = 192
_SMALL_BYTES = 8192  # larger spans of many environments are parsed each time: each would take up to 3 MB
_FOLLOWED = 400  # closed spans of a chart that somebody may follow
_MOST_KNOWN = 16  # such charts
_MANY_CELLS = 3000  # spans times environments; readings with more take turns, because each may take 700 MB

TimedSpans = list[TimedSpan]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class RunHistory:
    """Series of a run and its environments: a value for each span of ``shown``, None where nothing is known.

    ``first_epoch`` tells the run from earlier runs of its name, and from itself before a reset.
    """

    shown: Range
    first_epoch: int
    run: Mapping[str, Any]
    environments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Closed:
    """Final spans that were read: from ``from_s`` to ``last``."""

    from_s: int
    last: StoredSpan
    spans: TimedSpans
    cells: int


_DEFAULT = AskedRange()


class Histories:
    """Reads histories. A range that ends now also includes what this process has counted and not yet written."""

    def __init__(self, runs: RunStore, histories: HistoryStore, writer: HistoryWriter) -> None:
        self._runs = runs
        self._histories = histories
        self._writer = writer
        self._known: dict[tuple[str, int, WantedHistory], _Closed] = {}  # the latest used at the end
        self._large = asyncio.Semaphore(1)
        self._locks: WeakValueDictionary[tuple[str, int, WantedHistory], asyncio.Lock] = WeakValueDictionary()

    async def series(self, run: str, asked: AskedRange = _DEFAULT, wanted: WantedHistory = EVERYTHING) -> RunHistory:
        """Read the series of a run, as finely as they are kept and the size of the answer allows.

        Args:
            run: The run's name.
            asked: The range.
            wanted: What to read. The less, the faster.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: The range ends before it begins.
        """
        first_epoch = await self._histories.first_epoch(run)  # first: series that a reset clears never have its number
        shown, (of_run, environments) = await self._shown(run, asked, wanted, partial(_series, wanted=wanted))
        return RunHistory(shown, first_epoch, of_run, environments)

    async def histograms(
        self,
        run: str,
        value: HistoryValue,
        asked: AskedRange = _DEFAULT,
        environment: str | None = None,
    ) -> tuple[Range, Histograms]:
        """Read how a value of groups was distributed over time, in one environment or (None) in all; see `series`."""
        # Those of all values: who looks at one looks at others, too.
        wanted = WantedHistory((), SKETCHES, environment, together=True)
        asked = replace(asked, most_spans=min(asked.most_spans, _MOST_HISTOGRAMS))
        return await self._shown(run, asked, wanted, partial(histograms, value=value))

    async def shares(self, run: str, counted: HistoryCount, asked: AskedRange = _DEFAULT) -> tuple[Range, Shares]:
        """Read what of each environment was generated and trained on in a range; see `series`."""
        wanted = WantedHistory((), (f"{counted}_in", f"{counted}_out"))

        def compared(spans: Mapping[int, HistorySpan], _points: int) -> Shares:
            return shares(spans.values(), counted)

        return await self._shown(run, asked, wanted, compared)

    async def _shown(
        self,
        run: str,
        asked: AskedRange,
        wanted: WantedHistory,
        compute: Callable[[Mapping[int, HistorySpan], int], Answer],
    ) -> tuple[Range, Answer]:
        """Read what is wanted, and compute an answer from the spans and their number."""
        await self._runs.check_exists(run)
        if asked.to_s is None or asked.to_s > await self._histories.now_s():
            await self._writer.refresh(run)
        if wanted.environment is not None:
            wanted = replace(wanted, environment=wanted.environment[:MOST_NAME])
        choose = await self._range_chooser(run, asked)
        is_of_many = wanted.has_environments and wanted.environment is None
        names = min(await self._histories.environments(run), MOST_CHARTED_ENVIRONMENTS) if is_of_many else 0
        while True:
            shown = choose(1 + names)
            async with self._large if shown.points * (1 + names) > _MANY_CELLS else nullcontext():
                joined = JoinedSpans(shown)
                async for spans in self._read(run, shown, wanted):
                    await asyncio.to_thread(joined.add, spans)
                    found = min(joined.environments, MOST_CHARTED_ENVIRONMENTS)
                    if found > names and choose(1 + found) != shown:
                        break  # spans also have environments that have left the run: too many for so many spans
                else:
                    return shown, await asyncio.to_thread(compute, joined.spans, shown.points)
            names = found

    async def _range_chooser(self, run: str, asked: AskedRange) -> Callable[[int], Range]:
        """Return a function that chooses the spans to show from the number of environments in them.

        Raises:
            InvalidField: The range ends before it begins.
        """
        now_s = await self._histories.now_s()
        to_s = now_s if asked.to_s is None else asked.to_s
        from_s = asked.from_s
        if from_s is None:
            from_s = default_begin(to_s, await self._histories.firsts_s(run))
        if from_s >= to_s:
            raise InvalidField(f"is {from_s:.0f}, not before to = {to_s:.0f}", ("query", "from"))
        return partial(chosen_range, from_s, to_s, now_s, most_points=asked.most_spans, least_step_s=asked.least_step_s)

    async def _read(self, run: str, shown: Range, wanted: WantedHistory) -> AsyncIterator[TimedSpans]:
        """Read the coarsest spans that fit, and then finer ones of the time that was not added up yet."""
        kept = KEPT[: KEPT.index(kept_resolution(shown.step_s)) + 1]
        lasts_s = [None, *[await self._histories.last_s(run, coarse) for coarse in kept[1:]]]
        firsts_s = (await self._histories.firsts_s(run))[: len(kept)]
        begin_s, is_small = shown.from_s, wanted.only_counts or not wanted.has_many
        for resolution, first_s, last_s in reversed([*zip(kept, firsts_s, lasts_s, strict=True)]):
            end_s, is_closed = shown.to_s, resolution is not KEPT[0]
            if is_closed:
                end_s = begin_s if last_s is None else min(end_s, last_s + resolution.step_s)
            since_s = end_s if first_s is None else max(begin_s, first_s)
            if since_s < end_s and is_closed and is_small:
                yield await self._closed(run, resolution, since_s, end_s, wanted)
            elif since_s < end_s:
                async for stored in self._stored(run, resolution, since_s, end_s):
                    yield await asyncio.to_thread(_parsed, run, stored, wanted)
            begin_s = max(begin_s, end_s)

    async def _closed(
        self, run: str, resolution: Resolution, begin_s: int, end_s: int, wanted: WantedHistory
    ) -> TimedSpans:
        """Read spans that never change again. A page that follows a run asks for them often: read only new ones."""
        key = run, resolution.step_s, wanted
        async with self._locks.setdefault(key, asyncio.Lock()):  # panels of a page ask at once
            known = self._known.pop(key, None)
            found: TimedSpans = []
            if known is not None and known.from_s <= begin_s <= known.last.time_s < end_s:
                stored = await self._histories.spans(run, resolution, known.last.time_s, known.last.time_s + 1)
                if stored == [known.last]:  # it is still the same history
                    found = [one for one in known.spans if one.time_s >= begin_s]
            since_s, last = (found[-1].time_s + 1, known.last) if known and found else (begin_s, None)
            async for some in self._stored(run, resolution, since_s, end_s):
                found += await asyncio.to_thread(_parsed, run, some, wanted)
                last = some[-1]
            cells = sum(1 + len(one.span.environments) for one in found)
            if last is not None and len(found) <= _FOLLOWED and cells <= MOST_CELLS:
                self._known[key] = _Closed(begin_s, last, found, cells)
                self._forget()
            return found

    def _forget(self) -> None:
        """Forget the charts that were used longest ago, if there are too many."""
        left = MOST_CELLS
        for number, key in enumerate(reversed(list(self._known))):
            left -= self._known[key].cells
            if number >= _MOST_KNOWN or left < 0:
                del self._known[key]

    async def _stored(
        self, run: str, resolution: Resolution, begin_s: int, end_s: int
    ) -> AsyncIterator[Sequence[StoredSpan]]:
        """Read spans a few at a time, so that those of many environments are never in memory all at once."""
        length_s = _READ * resolution.step_s
        for from_s in range(begin_s, end_s, length_s):
            stored = await self._histories.spans(run, resolution, from_s, min(end_s, from_s + length_s))
            for first in range(0, len(stored), _AT_ONCE):
                yield stored[first : first + _AT_ONCE]


def _parsed(run: str, stored: Sequence[StoredSpan], wanted: WantedHistory) -> TimedSpans:
    return [TimedSpan(one.time_s, _parse(run, one, wanted)) for one in stored]


def _parse(run: str, stored: StoredSpan, wanted: WantedHistory) -> HistorySpan:
    if wanted.has_many and len(stored.facts) > _SMALL_BYTES:
        return wanted.part(parse_span(run, stored, wanted))
    return _parse_again(run, stored, wanted)


@lru_cache(_MOST_PARSED)
def _parse_again(run: str, stored: StoredSpan, wanted: WantedHistory) -> HistorySpan:
    """Read a stored span that readers who follow a run ask for again and again. Nobody may change the result."""
    return wanted.part(parse_span(run, stored, wanted))


def _series(
    spans: Mapping[int, HistorySpan], points: int, wanted: WantedHistory
) -> tuple[dict[str, Any], dict[str, Any]]:
    return run_series(spans, points, wanted.run), environment_series(spans, points, wanted.environments)
