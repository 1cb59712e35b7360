"""Read the history of a run for charts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from app.core.history.charts import (
    Histograms,
    environment_series,
    histograms,
    run_series,
)
from app.core.history.resolution import (
    KEPT,
    MOST_POINTS,
    Range,
    Resolution,
    chosen_range,
    default_begin,
    kept_resolution,
)
from app.core.history.series import BUSY, MOST_ENVIRONMENTS, Facts, HistorySpan, added, busiest
from app.core.history.shares import Shares, shares
from app.core.history.wanted import EVERYTHING, SKETCHES, WantedHistory
from app.services.history.upkeep import HistoryUpkeep
from app.store.history.store import HistoryStore, StoredSpan, parse_span
from app.store.runs.store import RunStore
from lachesis.wire.errors import InvalidField, RunNotFound
from lachesis.wire.history import HistoryCount, HistoryValue

_AT_ONCE = 20  # spans to parse in one go: other requests are served in between
_MOST_HISTOGRAMS = 400  # times of a heat map
_END = 64  # spans: an answer with fewer is the end of a chart that somebody follows
_MOST_PARSED = 192
_FOLLOWED = 400  # closed spans of a chart that somebody may follow
_MOST_KNOWN = 16  # such charts

TimedSpans = list[tuple[int, HistorySpan]]
"""Spans, each with when it begins."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """Series of a run and its environments: a value for each span of ``shown``, None where nothing is known."""

    shown: Range
    run: Mapping[str, Any]
    environments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Closed:
    """Spans that were read and do not change again: those from a time on, up to the last one as it is stored."""

    from_s: int
    last: StoredSpan
    spans: TimedSpans


class Histories:
    """Reads histories. Who reads up to now gets what this process has counted until now, too."""

    def __init__(self, runs: RunStore, histories: HistoryStore, upkeep: HistoryUpkeep) -> None:
        self._runs = runs
        self._histories = histories
        self._upkeep = upkeep
        self._known: dict[tuple[str, int, WantedHistory], _Closed] = {}  # the latest used at the end
        self._locks: WeakValueDictionary[tuple[str, int, WantedHistory], asyncio.Lock] = WeakValueDictionary()

    async def of(
        self,
        run: str,
        from_s: float | None = None,
        to_s: float | None = None,
        wanted: WantedHistory = EVERYTHING,
        least_step_s: int = 0,
        most_spans: int = MOST_POINTS,
    ) -> RunHistory:
        """Read the series of a run, as finely as they are kept and the size of the answer allows.

        Args:
            run: The run's name.
            from_s: When the range begins, seconds since 1970. None means `default_begin`.
            to_s: When the range ends. None means now.
            wanted: What to read. The less, the faster.
            least_step_s: The shortest span to show.
            most_spans: The most spans to show, up to `MOST_POINTS`, if there are coarser ones.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: The range ends before it begins.
        """
        shown, spans = await self._spans(run, from_s, to_s, wanted, most_spans, least_step_s)
        of_run, environments = await asyncio.to_thread(_series, spans, shown.points, wanted)
        return RunHistory(shown, of_run, environments)

    async def histograms(
        self,
        run: str,
        value: HistoryValue,
        from_s: float | None = None,
        to_s: float | None = None,
        environment: str | None = None,
        least_step_s: int = 0,
        most_spans: int = MOST_POINTS,
    ) -> tuple[Range, Histograms]:
        """Read how a value of groups was distributed over time, in one environment or (None) in all; see `of`."""
        wanted = WantedHistory((), SKETCHES, environment)  # those of all values: who looks at one looks at others, too
        shown, spans = await self._spans(run, from_s, to_s, wanted, min(most_spans, _MOST_HISTOGRAMS), least_step_s)
        return shown, await asyncio.to_thread(histograms, spans, shown.points, value)

    async def shares(
        self,
        run: str,
        counted: HistoryCount,
        from_s: float | None = None,
        to_s: float | None = None,
        least_step_s: int = 0,
        most_spans: int = MOST_POINTS,
    ) -> tuple[Range, Shares]:
        """Read what of each environment was generated and trained on in a range; see `of`."""
        wanted = WantedHistory((), (f"{counted}_in", f"{counted}_out"))  # counts: see `_wants_counts`
        shown, spans = await self._spans(run, from_s, to_s, wanted, most_spans, least_step_s)
        return shown, await asyncio.to_thread(shares, spans.values(), counted)

    async def _spans(
        self,
        run: str,
        from_s: float | None,
        to_s: float | None,
        wanted: WantedHistory,
        most_points: int,
        least_step_s: int,
    ) -> tuple[Range, dict[int, HistorySpan]]:
        if not await self._runs.is_made(run):
            raise RunNotFound(f"there is no run {run}")
        if to_s is None or to_s > await self._histories.now_s():
            await self._upkeep.refresh(run)
        now_s, environments = await self._histories.now_s(), await self._histories.environments(run)
        to_s = now_s if to_s is None else to_s
        if from_s is None:
            from_s = default_begin(to_s, await self._histories.firsts_s(run))
        if from_s >= to_s:
            raise InvalidField(f"is {from_s:.0f}, not before to = {to_s:.0f}", ("query", "from"))
        has_many = wanted.has_environments and wanted.environment is None
        expected, found = 0, 1 + min(environments, MOST_ENVIRONMENTS) if has_many else 1
        while found > expected:  # spans also have environments that have left the run
            expected = found
            shown = chosen_range(from_s, to_s, now_s, expected, most_points, least_step_s)
            spans = await self._placed(run, shown, wanted)
            found = 1 + len(await asyncio.to_thread(busiest, spans.values())) if has_many else 1
        return shown, spans

    async def _placed(self, run: str, shown: Range, wanted: WantedHistory) -> dict[int, HistorySpan]:
        """Read the coarsest spans that fit, and then finer ones of the time that was not added up yet."""
        coarsest, begin_s = kept_resolution(shown.step_s), shown.from_s
        spans: dict[int, HistorySpan] = {}
        sums: set[int] = set()
        for resolution in reversed(KEPT[: KEPT.index(coarsest) + 1]):
            end_s = shown.to_s
            is_closed = resolution is not KEPT[0]
            if is_closed:
                last_s = await self._histories.last_s(run, resolution)
                end_s = begin_s if last_s is None else min(end_s, last_s + resolution.step_s)
            if begin_s < end_s:
                is_small = not wanted.has_environments or wanted.environment is not None or _wants_counts(wanted)
                read = self._closed if is_closed and is_small else self._parsed
                _add(await read(run, resolution, begin_s, end_s, wanted), shown, spans, sums)
            begin_s = max(begin_s, end_s)
        return spans

    async def _closed(
        self, run: str, resolution: Resolution, begin_s: int, end_s: int, wanted: WantedHistory
    ) -> TimedSpans:
        """Read spans that never change again. Who follows a run asks for them again and again: read only new ones."""
        key = run, resolution.step_s, wanted
        async with self._locks.setdefault(key, asyncio.Lock()):  # panels of a page ask at once
            known = self._known.pop(key, None)
            found: TimedSpans = []
            if known is not None and known.from_s <= begin_s <= known.last.time_s < end_s:
                stored = await self._histories.spans(run, resolution, known.last.time_s, known.last.time_s + 1)
                if stored == [known.last]:  # it is still the same history
                    found = [one for one in known.spans if one[0] >= begin_s]
            since_s = found[-1][0] + 1 if found else begin_s
            stored = await self._histories.spans(run, resolution, since_s, end_s)
            found += await self._parse(run, stored, wanted)
            if 0 < len(found) <= _FOLLOWED:
                last = stored[-1] if stored or known is None else known.last
                self._known[key] = _Closed(begin_s, last, found)
                self._forget()
            return found

    def _forget(self) -> None:
        for key in list(self._known)[:-_MOST_KNOWN]:
            del self._known[key]

    async def _parsed(
        self, run: str, resolution: Resolution, begin_s: int, end_s: int, wanted: WantedHistory
    ) -> TimedSpans:
        return await self._parse(run, await self._histories.spans(run, resolution, begin_s, end_s), wanted)

    async def _parse(self, run: str, stored: Sequence[StoredSpan], wanted: WantedHistory) -> TimedSpans:
        parse = _parse_again if len(stored) <= _END else parse_span
        found: TimedSpans = []
        for first in range(0, len(stored), _AT_ONCE):
            some = stored[first : first + _AT_ONCE]
            found += await asyncio.to_thread(_parsed, parse, run, some, wanted)
        return found


@lru_cache(_MOST_PARSED)
def _parse_again(run: str, stored: StoredSpan, wanted: WantedHistory) -> HistorySpan:
    """Read a stored span that readers who follow a run ask for again and again. Nobody may change the result."""
    return parse_span(run, stored, wanted)


def _parsed(
    parse: Callable[[str, StoredSpan, WantedHistory], HistorySpan],
    run: str,
    stored: Sequence[StoredSpan],
    wanted: WantedHistory,
) -> TimedSpans:
    spans = [(one.time_s, parse(run, one, wanted)) for one in stored]
    return [(time_s, _counts_of(span, wanted)) for time_s, span in spans] if _wants_counts(wanted) else spans


def _wants_counts(wanted: WantedHistory) -> bool:
    """Return whether only counts of environments are wanted: a small part of a span."""
    names = wanted.environments
    return wanted.run == () and names is not None and wanted.environment is None and not {*names} & {*SKETCHES}


def _counts_of(span: HistorySpan, wanted: WantedHistory) -> HistorySpan:
    names = {*(wanted.environments or ()), *BUSY}
    environments = {
        name: Facts({count: facts.counts[count] for count in facts.counts.keys() & names})
        for name, facts in span.environments.items()
    }
    return HistorySpan(environments=environments)


def _add(found: TimedSpans, shown: Range, spans: dict[int, HistorySpan], sums: set[int]) -> None:
    """Add spans to those of the places that they are in. The spans of ``sums`` are sums, which may grow."""
    for time_s, one in found:
        place = shown.place(time_s)
        if place is None:
            continue
        if place not in spans:
            spans[place] = one
            continue
        if place not in sums:
            spans[place] = added([spans[place]])
            sums.add(place)
        spans[place].add(one)


def _series(
    spans: Mapping[int, HistorySpan], points: int, wanted: WantedHistory
) -> tuple[dict[str, Any], dict[str, Any]]:
    return run_series(spans, points, wanted.run), environment_series(spans, points, wanted.environments)
