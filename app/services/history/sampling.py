"""Look at a run for its history: what waits, what blocks it, and what has grown."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection
from itertools import islice

from app.core.batches.pace import held_ms
from app.core.curriculum.indexes import ItemIndex
from app.core.curriculum.rewards import reward_spans
from app.core.history.causes import HELD, cause_of, reason_of
from app.core.history.charts import BLOCKED, DROPPED, LOOKED_S
from app.core.history.curricula import MOST_CURRICULA, add_items
from app.core.history.series import OTHERS, HistorySpan, with_series
from app.core.history.totals import RUN, increases, of_others
from app.core.model import sequences_in
from app.core.runs.view import RunView
from app.services.batches.diagnostics import BatchDiagnosis, Diagnostics
from app.services.batches.spans import batch_spans
from app.services.history.recorder import series_name
from app.store.batches.records import BatchRecordStore
from app.store.curriculum.store import CurriculumStore
from app.store.history.store import Growth, HistoryStore, Totals, parse_totals
from app.store.replay.store import ReplayStore

_LONGEST_S = 20.0  # between two looks; nothing is known of a longer gap
_MOST_BATCHES = 64  # that are looked at each time; of more, the latest stand for all
_REPLAY = {
    "replay_samples": "sampled_chunks",
    "replay_staleness": "sampled_staleness",
    "replay_retired_chunks": "retired_chunks",
    "replay_retired_uses": "retired_uses",
}
"""Totals of a replay buffer, by their names in a history."""


class HistorySampler:
    """Looks at runs. Only the process that maintains a run does.

    Args:
        diagnostics: Says what blocks a run.
        batches: Knows when trainers had batches.
        buffers: The replay buffers.
        curricula: The curricula.
        histories: Knows what counts were counted up to.
        clock: Returns the time now, seconds.
    """

    def __init__(
        self,
        diagnostics: Diagnostics,
        batches: BatchRecordStore,
        buffers: ReplayStore,
        curricula: CurriculumStore,
        histories: HistoryStore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._diagnostics = diagnostics
        self._batches = batches
        self._buffers = buffers
        self._curricula = curricula
        self._histories = histories
        self._clock = clock
        self._looked_s: dict[str, float] = {}

    async def sample(self, run: str, *, replay: bool) -> tuple[HistorySpan, Growth]:
        """Look at a run.

        Args:
            run: Its name.
            replay: Whether it has a replay buffer.

        Returns:
            What was found, and from which totals to which others its growth was counted.
        """
        before = await self._histories.totals(run)  # first: what another process stores later is not overwritten
        diagnosis = await self._diagnostics.of(run)
        totals = await self._totals_of(run, diagnosis.view, replay=replay)
        span = HistorySpan()
        await self._add_causes(span, run, diagnosis)
        _add_gauges(span, diagnosis.view)
        await self._add_curricula(span, run)
        if before or diagnosis.view.clock_ms <= 1000 * _LONGEST_S:  # a new run has counted from 0
            _add_growth(span, parse_totals(run, before), totals)
        return span, Growth(before, totals)

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these."""
        kept = set(runs)
        self._looked_s = {run: looked_s for run, looked_s in self._looked_s.items() if run in kept}

    async def _add_causes(self, span: HistorySpan, run: str, diagnosis: BatchDiagnosis) -> None:
        """Add how long trainers had a batch since the last look. What blocks the run now explains the other time."""
        view, now_s = diagnosis.view, self._clock()
        facts, since_s = span.run, self._looked_s.get(run, now_s)
        self._looked_s[run] = now_s
        passed_s = min(now_s - since_s, _LONGEST_S)
        held_s = passed_s * await self._held_share(run, view, passed_s) if passed_s > 0 else 0.0
        facts.count(LOOKED_S, passed_s)
        if held_s > 0:
            facts.count(BLOCKED + HELD, held_s)
        why, alert = diagnosis.not_ready, view.alarming_starvation
        cause = cause_of(None if why is None else why.blocker, starving=alert is not None)
        if cause is None or held_s >= passed_s > 0:
            return
        facts.count(BLOCKED + cause, passed_s - held_s)
        reason = reason_of(cause, None if why is None else why.detail, None if alert is None else str(alert))
        if reason is not None:
            facts.texts[BLOCKED + cause] = reason

    async def _held_share(self, run: str, view: RunView, passed_s: float) -> float:
        """Return the part of the last ``passed_s`` seconds in which a trainer had a batch, from 0 to 1."""
        spans = await batch_spans(self._batches, run, view, _MOST_BATCHES)
        begin_ms = view.clock_ms - round(1000 * passed_s)
        if len(spans) >= _MOST_BATCHES:
            begin_ms = max(begin_ms, spans[0].formed_ms)
        passed_ms = view.clock_ms - begin_ms
        return held_ms(spans, begin_ms, view.clock_ms) / passed_ms if passed_ms > 0 else 0.0

    async def _add_curricula(self, span: HistorySpan, run: str) -> None:
        for name in islice(await self._curricula.ids(run), MOST_CURRICULA):
            view = await self._curricula.view(run, name)
            if view is None:
                continue  # it was removed in the meantime
            census = await self._curricula.census(view, reward_spans(view.settings), by_category=False)
            if census is not None:
                add_items(span.run, name, census.counts.spans, census.counts.length(ItemIndex.UNSEEN))

    async def _totals_of(self, run: str, view: RunView, *, replay: bool) -> Totals:
        named = with_series(view.environments)
        totals: dict[str, dict[str, float]] = {series_name(one, view.environments, named): {} for one in named}
        totals[RUN] = {DROPPED + reason: groups for reason, groups in view.dropped_by_reason.items()}
        for (reason, environment), groups in view.dropped.items():
            if environment in named:
                own = totals[series_name(environment, view.environments, named)]
                own[DROPPED + reason] = own.get(DROPPED + reason, 0) + groups
        if replay and (summary := (await self._buffers.summaries([run])).get(run)) is not None:
            totals[RUN] |= {name: summary.view.total(total) for name, total in _REPLAY.items()}
        return totals


def _add_gauges(span: HistorySpan, view: RunView) -> None:
    facts = span.run
    facts.measure("queued_groups", view.totals.queued_groups)
    facts.measure("queued_sequences", sequences_in(view.lanes))
    facts.lasts |= {"step": view.step, "policy_version": view.policy_version}
    queued: defaultdict[int | None, int] = defaultdict(int)
    for (environment, _), groups in view.lanes.items():
        queued[environment] += groups
    named = with_series(view.environments)
    for key in named:
        record = view.environments[key]
        if record.connected or queued[key]:
            own = span.of(series_name(key, view.environments, named))
            own.measure("queued_groups", queued[key])
            own.measure("owed_sequences", max(0, view.debts.get(key, 0)))
            own.lasts["share_promised"] = record.min_share or 0.0


def _add_growth(span: HistorySpan, before: Totals, now: Totals) -> None:
    grown = increases(before, now)
    others = of_others(grown)
    for name in _REPLAY:
        others.pop(name, 0)
    for name, by in grown.get(RUN, {}).items():
        span.run.count(name, by)
    for environment, counts in {**grown, OTHERS: others}.items():
        for name, by in counts.items():
            span.of(environment).count(name, by)
