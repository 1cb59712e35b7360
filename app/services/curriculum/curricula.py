"""Create, change, read and delete curricula."""

import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar, assert_never

from app.core.curriculum import bins, checks
from app.core.curriculum.indexes import ItemCounts
from app.core.curriculum.metrics import CurriculumTotals, metrics
from app.core.curriculum.rewards import reward_spans
from app.core.curriculum.strategies import table
from app.events import CurriculumDeleted, emit, note_settings
from app.store.curriculum.entries import MAX_CURRICULA
from app.store.curriculum.store import Census, CurriculumStore, CurriculumView
from app.store.redis.compare_and_swap import Attempts
from lachesis.wire.curricula import CurriculumSettings
from lachesis.wire.errors import CurriculumNotFound, InvalidField, RunNotFound

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def again_if_replaced(
    use: Callable[_Arguments, Awaitable[_Result]],
) -> Callable[_Arguments, Coroutine[Any, Any, _Result]]:
    """Repeat a use case once if its curriculum is not found: a restored state may have the name since it was read."""

    @wraps(use)
    async def repeated(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return await use(*args, **kwargs)
        except CurriculumNotFound:
            return await use(*args, **kwargs)

    return repeated


@dataclass(frozen=True, slots=True)
class CurriculumFacts:
    """A curriculum with its numbers of items in each bin, the easiest first, by mean reward, and in each category."""

    view: CurriculumView
    census: Census
    bins: tuple[int, ...]


class CurriculumAdministration:
    """What owners of curricula do."""

    def __init__(self, store: CurriculumStore) -> None:
        self._store = store

    async def configure(
        self, run: str, name: str, changes: Mapping[str, Any], *, make: bool, keep: bool = False
    ) -> CurriculumFacts:
        """Change a curriculum while it runs, or make it with defaults for all other settings. Estimates stay.

        Args:
            run: The run's name.
            name: The curriculum's.
            changes: New values by field of `CurriculumSettings`.
            make: Whether to make it if there is none.
            keep: Whether to leave an existing curriculum unchanged.

        Raises:
            RunNotFound: There is no such run.
            CurriculumNotFound: The run has no curriculum of this name, and ``make`` is false.
            InvalidField: The settings do not fit together, the strategy needs ``total_steps``, or the run has the
                largest number of curricula.
        """
        attempts = Attempts("configure a curriculum", run)
        while attempts.again():
            view = await (self._store.view if make else self._store.existing)(run, name)
            if view is not None and keep:
                return await self.facts(run, name)
            settings = CurriculumSettings.model_validate(dict(() if view is None else view.settings) | dict(changes))
            checks.check_settings(settings)
            checks.check_total_steps(settings)
            if view is not None and settings == view.settings:
                return await self.facts(run, name)
            old, own = ("", uuid.uuid4().hex) if view is None else (view.revision, view.curriculum_id)
            match await self._store.put(run, name, own, settings, old, uuid.uuid4().hex):
                case "put":
                    before = None if view is None else view.settings
                    note_settings("curriculum", {"run": run, "curriculum": name}, before, settings)
                    return await self.facts(run, name)
                case "missing":
                    raise RunNotFound.named(run)
                case "crowded":
                    raise too_many_curricula(run)
                case "outdated":
                    pass  # read and decide again
                case _ as never:
                    assert_never(never)

    @again_if_replaced
    async def facts(self, run: str, name: str) -> CurriculumFacts:
        """Read a curriculum and count its items.

        Raises:
            CurriculumNotFound: The run has none of this name.
        """
        view = await self._store.existing(run, name)
        census = await self._store.census(view, reward_spans(view.settings), by_category=True)
        if census is None:
            raise gone(view)
        return CurriculumFacts(view, census, tuple(bins.bin_sizes(census.counts, view.settings.n_bins)))

    async def all(self, run: str) -> list[CurriculumFacts]:
        """Return all curricula of a run, by name."""
        found = []
        for name in await self._store.ids(run):
            try:
                found.append(await self.facts(run, name))
            except CurriculumNotFound:
                continue  # it was removed in the meantime
        return found

    async def delete(self, run: str, name: str) -> None:
        """Delete a curriculum with its items.

        Raises:
            CurriculumNotFound: The run has none of this name.
        """
        await self._store.delete(await self._store.existing(run, name))
        emit(CurriculumDeleted(run=run, curriculum=name))

    @again_if_replaced
    async def metrics(self, run: str, name: str, step: int | None, total_steps: int | None) -> dict[str, float]:
        """Return the metrics of a curriculum, by name.

        Args:
            run: The run's name.
            name: The curriculum's.
            step: Trainer steps so far; None for the run's.
            total_steps: Steps at which progress is 1; None for the curriculum's. If that is None too, progress is 0.

        Raises:
            CurriculumNotFound: The run has none of this name.
        """
        view = await self._store.existing(run, name)
        settings = view.settings
        whole = settings.total_steps if total_steps is None else total_steps
        progress = 0.0
        if whole is not None or not table.needs_progress(settings):
            progress = checks.progress(settings, view.step if step is None else step, whole)
        census = await counted(self._store, view, settings)
        counts = counts_at(view, census)
        least, greatest = await self._store.mean_reward_bounds(view)
        ends = least or 0.0, greatest or 0.0
        totals = CurriculumTotals(census.reward_sum, *ends, census.updates, census.in_flight, census.left_out)
        parts = table.parts(settings, counts, progress)
        return metrics(settings, counts, totals, parts, progress)


async def counted(
    store: CurriculumStore, view: CurriculumView, settings: CurriculumSettings, *, draws: int = 0, samples: int = 0
) -> Census:
    """Count what the strategy needs to know, as of the samples in the view. Claim random numbers.

    Raises:
        CurriculumNotFound: It was removed in the meantime.
    """
    by_category = settings.strategy == "bandit" and settings.arms == "categories"
    spans = table.spans(settings, view.samples)
    census = await store.census(view, spans, draws=draws, samples=samples, by_category=by_category)
    if census is None:
        raise gone(view)
    return census


def counts_at(view: CurriculumView, census: Census) -> ItemCounts:
    """Return the counts with the samples of the view, by which spans were counted. More samples may have come since."""
    return replace(census.counts, samples=view.samples)


def gone(view: CurriculumView) -> CurriculumNotFound:
    """Return the error for a curriculum that was removed, or replaced, during the request."""
    return CurriculumNotFound(f"curriculum {view.name} of run {view.run} was removed during the request")


def too_many_curricula(run: str) -> InvalidField:
    """Return the error for a run that has the largest number of curricula."""
    return InvalidField(f"run {run} has {MAX_CURRICULA} curricula, the largest number", ("path", "curriculum"))
