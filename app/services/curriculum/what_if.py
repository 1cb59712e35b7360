"""Compare strategies on the same items, without changing anything."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.core.curriculum.checks import check_settings
from app.core.curriculum.sampling import draws_for
from app.core.curriculum.strategies import table
from app.services.curriculum.curricula import again_if_replaced
from app.services.curriculum.sampling import CurriculumSamples, DrawnItem
from app.store.curriculum.items import ItemStore
from app.store.curriculum.store import CurriculumStore, CurriculumView
from lachesis.wire.curricula import CurriculumSettings, CurriculumStrategy


@dataclass(frozen=True, slots=True)
class StrategyOutcome:
    """What a strategy would do now: the probability of each bin, and its sample if no item were in flight."""

    strategy: CurriculumStrategy
    bins: tuple[float, ...]
    items: tuple[DrawnItem, ...]

    @property
    def entropy(self) -> float:
        """Return the entropy over bins divided by its maximum, 0 to 1; 0 if there is one bin."""
        own = -math.fsum(each * math.log(each) for each in self.bins if each > 0)
        return max(0.0, own / math.log(len(self.bins))) if len(self.bins) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class StrategyComparison:
    """Two strategies, compared on the bins of the curriculum as it is."""

    current: StrategyOutcome
    alternative: StrategyOutcome

    @property
    def difference(self) -> float:
        """Return the total variation distance of the bin probabilities: 0 if they are equal, 1 if they are disjoint."""
        pairs = zip(self.current.bins, self.alternative.bins, strict=True)
        return math.fsum(abs(ours - theirs) for ours, theirs in pairs) / 2


class StrategyComparisons:
    """Compares strategies."""

    def __init__(self, store: CurriculumStore, samples: CurriculumSamples, items: ItemStore) -> None:
        self._store = store
        self._samples = samples
        self._items = items

    @again_if_replaced
    async def compare(
        self, run: str, name: str, changes: Mapping[str, Any], n: int, step: int | None
    ) -> StrategyComparison:
        """Compare a curriculum with itself under other settings.

        Args:
            run: The run's name.
            name: The curriculum's.
            changes: New values by field of `CurriculumSettings`. A new ``total_steps`` applies to both sides.
            n: Number of items to sample.
            step: Trainer steps so far; None for the run's.

        Raises:
            CurriculumNotFound: The run has none of this name.
            InvalidField: The settings do not fit together.
        """
        view = await self._store.existing(run, name)
        settings = CurriculumSettings.model_validate(dict(view.settings) | dict(changes))
        check_settings(settings)
        current = view.settings.model_copy(update={"total_steps": settings.total_steps})
        return StrategyComparison(
            await self._alternative(view, current, n, step), await self._alternative(view, settings, n, step)
        )

    async def _alternative(
        self, view: CurriculumView, settings: CurriculumSettings, n: int, step: int | None
    ) -> StrategyOutcome:
        distribution = await self._samples.distribution_of(view, settings, step, None)
        wanted = draws_for(n, distribution.counts.items, 0, 0)  # the generator's output depends on the number of draws
        found: list[DrawnItem] = []
        if distribution.parts and table.draws_candidates(settings):
            best = await self._samples.best(view, distribution, wanted)
            found = [
                distribution.drawn_item(item, distribution.parts[0].why, view.settings.n_bins) for item in best[:n]
            ]
        elif distribution.parts:
            draws, places = await distribution.places(wanted, distribution.counter)
            looked_up = await self._items.look(view, places, distribution.indexes)
            unlike: dict[str, DrawnItem] = {}
            for draw, item in zip(draws, looked_up, strict=True):
                if item is not None:
                    unlike.setdefault(item.key, distribution.drawn_item(item, draw.component.why, view.settings.n_bins))
            found = list(unlike.values())[:n]
        bins = await self._samples.bins_of(view, distribution)
        return StrategyOutcome(settings.strategy, tuple(bins), tuple(found))
