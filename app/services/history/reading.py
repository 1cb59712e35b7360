"""Read the history of a run for charts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from app.core.history.charts import (
    Histograms,
    Measured,
    environment_series,
    histograms,
    run_series,
)
from app.core.history.resolution import HOUR_S, KEPT, MOST_POINTS, Range, chosen_range, kept_resolution
from app.core.history.series import MOST_ENVIRONMENTS, Span, added, busiest
from app.core.history.shares import Shares, shares
from app.core.history.wanted import EVERYTHING, SKETCHES, Wanted
from app.services.history.upkeep import HistoryUpkeep
from app.store.history.store import HistoryStore, StoredSpan, parse_span
from app.store.runs.store import RunStore
from lachesis.wire.errors import InvalidField, RunNotFound
from lachesis.wire.history import HistoryCount

_AT_ONCE = 20  # spans to parse in one go: other requests are served in between
_MOST_HISTOGRAMS = 400  # times of a heat map
_FOLLOWED = 128  # spans: an answer with fewer is one that somebody may follow, who soon reads most of them again
_MOST_PARSED = 192  # spans that are kept for that


@dataclass(frozen=True, slots=True)
class RunHistory:
    """Series of a run and its environments: a value for each span of ``shown``, None where nothing is known."""

    shown: Range
    run: Mapping[str, Any]
    environments: Mapping[str, Any]


class Histories:
    """Reads histories. Who reads up to now gets what this process has counted until now, too."""

    def __init__(self, runs: RunStore, histories: HistoryStore, upkeep: HistoryUpkeep) -> None:
        self._runs = runs
        self._histories = histories
        self._upkeep = upkeep
        self._turn = asyncio.Lock()  # panels of a page ask for the same spans at once, and one parses them for all

    async def of(
        self,
        run: str,
        from_s: float | None = None,
        to_s: float | None = None,
        wanted: Wanted = EVERYTHING,
        least_step_s: int = 0,
    ) -> RunHistory:
        """Read the series of a run, as finely as they are kept and the size of the answer allows.

        Args:
            run: The run's name.
            from_s: When the range begins, seconds since 1970. None means an hour before its end.
            to_s: When the range ends. None means now.
            wanted: What to read. The less, the faster.
            least_step_s: The shortest span to show.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: The range ends before it begins.
        """
        shown, spans = await self._spans(run, from_s, to_s, wanted, MOST_POINTS, least_step_s)
        of_run, environments = await asyncio.to_thread(_series, spans, shown.points, wanted)
        return RunHistory(shown, of_run, environments)

    async def histograms(
        self,
        run: str,
        value: Measured,
        from_s: float | None = None,
        to_s: float | None = None,
        environment: str | None = None,
        least_step_s: int = 0,
    ) -> tuple[Range, Histograms]:
        """Read how a value of groups was distributed over time, in one environment or (None) in all; see `of`."""
        wanted = Wanted((), SKETCHES, environment)  # those of all values: who looks at one looks at others, too
        shown, spans = await self._spans(run, from_s, to_s, wanted, _MOST_HISTOGRAMS, least_step_s)
        return shown, await asyncio.to_thread(histograms, spans, shown.points, value)

    async def shares(
        self,
        run: str,
        counted: HistoryCount,
        from_s: float | None = None,
        to_s: float | None = None,
        least_step_s: int = 0,
    ) -> tuple[Range, Shares]:
        """Read what of each environment was generated and trained on in a range; see `of`."""
        wanted = Wanted((), (f"{counted}_in", f"{counted}_out"))
        shown, spans = await self._spans(run, from_s, to_s, wanted, MOST_POINTS, least_step_s)
        return shown, await asyncio.to_thread(shares, spans.values(), counted)

    async def _spans(
        self, run: str, from_s: float | None, to_s: float | None, wanted: Wanted, most_points: int, least_step_s: int
    ) -> tuple[Range, dict[int, Span]]:
        if not await self._runs.is_made(run):
            raise RunNotFound(f"there is no run {run}")
        if to_s is None or to_s > await self._histories.now_s():
            await self._upkeep.refresh(run)
        now_s, environments = await self._histories.now_s(), await self._histories.environments(run)
        to_s = now_s if to_s is None else to_s
        from_s = to_s - HOUR_S if from_s is None else from_s
        if from_s >= to_s:
            raise InvalidField(f"from ({from_s:.0f}) must be before to ({to_s:.0f})", ("query", "from"))
        has_many = wanted.has_environments and wanted.environment is None
        expected, found = 0, 1 + min(environments, MOST_ENVIRONMENTS) if has_many else 1
        while found > expected:  # spans also have environments that have left the run
            expected = found
            shown = chosen_range(from_s, to_s, now_s, expected, most_points, least_step_s)
            spans = await self._placed(run, shown, wanted)
            found = 1 + len(await asyncio.to_thread(busiest, spans.values())) if has_many else 1
        return shown, spans

    async def _placed(self, run: str, shown: Range, wanted: Wanted) -> dict[int, Span]:
        """Read the coarsest spans that fit, and then finer ones of the time that was not added up yet."""
        coarsest, begin_s = kept_resolution(shown.step_s), shown.from_s
        spans: dict[int, Span] = {}
        sums: set[int] = set()
        for resolution in reversed(KEPT[: KEPT.index(coarsest) + 1]):
            end_s = shown.to_s
            if resolution is not KEPT[0]:
                last_s = await self._histories.last_s(run, resolution)
                end_s = begin_s if last_s is None else min(end_s, last_s + resolution.step_s)
            stored = await self._histories.spans(run, resolution, begin_s, end_s) if begin_s < end_s else []
            is_kept = len(stored) <= _FOLLOWED
            parse = partial(_parse_again if is_kept else parse_span, run, wanted=wanted)
            async with self._turn if is_kept else nullcontext():
                for first in range(0, len(stored), _AT_ONCE):
                    some = stored[first : first + _AT_ONCE]
                    await asyncio.to_thread(_add, parse, some, shown, spans, sums)
            begin_s = max(begin_s, end_s)
        return spans


@lru_cache(_MOST_PARSED)
def _parse_again(run: str, stored: StoredSpan, wanted: Wanted) -> Span:
    """Read a stored span that readers who follow a run ask for again and again. Nobody may change the result."""
    return parse_span(run, stored, wanted)


def _add(
    parse: Callable[[StoredSpan], Span],
    stored: Sequence[StoredSpan],
    shown: Range,
    spans: dict[int, Span],
    sums: set[int],
) -> None:
    """Add stored spans to those of the places that they are in. The spans of ``sums`` are sums, which may grow."""
    for one in stored:
        place = shown.place(one.time_s)
        if place is None:
            continue
        if place not in spans:
            spans[place] = parse(one)
            continue
        if place not in sums:
            spans[place] = added([spans[place]])
            sums.add(place)
        spans[place].add(parse(one))


def _series(spans: Mapping[int, Span], points: int, wanted: Wanted) -> tuple[dict[str, Any], dict[str, Any]]:
    return run_series(spans, points, wanted.run), environment_series(spans, points, wanted.environments)
