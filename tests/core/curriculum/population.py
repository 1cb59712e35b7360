"""A curriculum whose items are arrays: what the store does with sorted sets, for tests and the benchmark."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from app.core.curriculum.bins import bin_of, middle
from app.core.curriculum.estimates import Estimate, EstimateUpdate, Evidence, observed, unseen
from app.core.curriculum.indexes import ItemCounts, ItemDraw, ItemIndex
from app.core.curriculum.sampling import ATTEMPTS, choose, draws_for
from app.core.curriculum.state import CurriculumHeader
from app.core.curriculum.strategies import thompson
from app.core.curriculum.strategies.bandit import arm_of_bin, arm_of_category, arm_step
from app.core.curriculum.strategies.table import parts, spans
from lachesis.wire.curricula import CurriculumSettings

Items = NDArray[np.int64]
Numbers = NDArray[np.float64]
SEEN = (ItemIndex.MEAN_REWARD, ItemIndex.POSTERIOR, ItemIndex.SIGNAL, ItemIndex.LAST, ItemIndex.LAST_SAMPLED)
SCORED = (*SEEN, ItemIndex.UNSEEN, ItemIndex.PRIOR_ONLY)
NUMBER_OF = {
    ItemIndex.MEAN_REWARD: "ema",
    ItemIndex.SIGNAL: "signal",
    ItemIndex.LAST: "last",
    ItemIndex.LAST_SAMPLED: "drawn",
    ItemIndex.PRIOR_ONLY: "prior",
}

_observed = lru_cache(maxsize=1024)(observed)


FIELDS = tuple(each.name for each in fields(Estimate))


class Population:
    """Items 0, 1, ...; an order's ties are in the order of their numbers."""

    def __init__(self, header: CurriculumHeader, estimates: Sequence[Estimate], categories: Sequence[str] = ()) -> None:
        self.header = header
        self.numbers = {
            name: np.array([getattr(each, name) for each in estimates], np.float64) for name in FIELDS
        }  # a prior of None is nan
        self.categories = list(categories) or [""] * len(estimates)
        self.in_flight = np.zeros(len(estimates), bool)
        self._sorted: dict[ItemIndex, Items] = {}
        self._of_category = {
            name: np.flatnonzero(np.array(self.categories) == name) for name in sorted(set(self.categories))
        }

    @classmethod
    def of(cls, settings: CurriculumSettings, items: int, categories: Sequence[str] = ()) -> "Population":
        """Make a population without observations."""
        return cls(CurriculumHeader(settings), [unseen()] * items, categories)

    @property
    def settings(self) -> CurriculumSettings:
        return self.header.settings

    @property
    def estimates(self) -> list[Estimate]:
        return self.estimates_of(range(len(self.in_flight)))

    def estimates_of(self, items: Sequence[int]) -> list[Estimate]:
        """What is known of items."""
        rows = zip(*(self.numbers[name][list(items)].tolist() for name in FIELDS), strict=True)
        return [
            Estimate(ema, int(count), passed, failed, signal, last, int(drawn), None if math.isnan(prior) else prior)
            for ema, count, passed, failed, signal, last, drawn, prior in rows
        ]

    def standing(self, index: ItemIndex, category: str = "") -> Items:
        """The items of an order, by score."""
        if index is ItemIndex.CATEGORY:
            return self._of_category[category]
        if index not in self._sorted:
            items = np.flatnonzero(self._stands(index))
            self._sorted[index] = items[np.argsort(self._scores(index)[items], kind="stable")]
        return self._sorted[index]

    def counts(self) -> ItemCounts:
        """Count what the strategy asks for."""
        asked = list[int]()
        for index, group in groupby(spans(self.settings, self.header.samples), key=lambda each: each.index):
            bounds = np.array([(span.low, span.high) for span in group])
            scores = self._scores(index)[self.standing(index)]
            asked += np.diff(np.searchsorted(scores, bounds), axis=1).ravel().tolist()
        return ItemCounts(
            {index: int(np.count_nonzero(self._stands(index))) for index in SCORED},
            tuple(asked),
            {name: len(items) for name, items in self._of_category.items()},
            self.header.arms,
            self.header.samples,
        )

    def sample(self, n: int, progress: float = 0.0, own_seed: int | None = None) -> list[int]:
        """Hand out items, as the service does."""
        taken: list[int] = []
        compares = self.settings.strategy == "thompson"
        for attempt in range(ATTEMPTS):
            counts = self.counts()
            seed, counter = self._claim(own_seed, attempt)
            wanted = thompson.candidates_for(self.settings, n) if compares else n - len(taken)
            more = draws_for(wanted, counts.items, int(self.in_flight.sum()), attempt)
            if compares:
                places = self._candidates(thompson.candidate_ranges(more, counts.items, seed, counter))
            else:
                places = [self.at(draw) for draw in choose(parts(self.settings, counts, progress), more, seed, counter)]
            found = list(dict.fromkeys(item for item in places if not self.in_flight[item]))[:wanted]
            if compares:
                ranked = thompson.best(self.settings, Evidence.of(self.estimates_of(found)), seed, counter)
                found = [found[place] for place in ranked][: n - len(taken)]
            taken += found
            self.in_flight[found] = True
            if len(taken) == n or len(taken) == len(self.in_flight):
                break
        self.header = replace(self.header, samples=self.header.samples + 1)
        self.numbers["drawn"][taken] = self.header.samples
        self._sorted.pop(ItemIndex.LAST_SAMPLED, None)
        return taken

    def _candidates(self, ranges: Sequence[tuple[int, int]]) -> list[int]:
        by_category = np.concatenate([np.zeros(0, np.int64), *self._of_category.values()])
        return [item for first, last in ranges for item in by_category[first : last + 1].tolist()]

    def at(self, draw: ItemDraw) -> int:
        """Who stands at a place."""
        return int(self.standing(draw.component.index, draw.component.category or "")[draw.rank])

    def ranks(self, item: int) -> dict[ItemIndex, int]:
        """An item's rank in each order it stands in."""
        orders = {index: self.standing(index, self.categories[item]) for index in ItemIndex}
        return {index: int(np.flatnonzero(items == item)[0]) for index, items in orders.items() if item in items}

    def bin(self, item: int) -> int:
        """An item's bin."""
        stands, scores = self._stands(ItemIndex.MEAN_REWARD), self._scores(ItemIndex.MEAN_REWARD)
        if not stands[item]:
            return middle(self.settings.n_bins)
        below = np.count_nonzero(stands & (scores < scores[item]))
        ties = np.count_nonzero(stands[:item] & (scores[:item] == scores[item]))
        return bin_of(int(below + ties), int(np.count_nonzero(stands)), self.settings.n_bins)

    def observe(self, item: int, rewards: Sequence[float]) -> None:
        """Take down an observation."""
        self.observe_all([item], [rewards])

    def observe_all(self, items: Sequence[int], rewards: Sequence[Sequence[float]]) -> None:
        """Take down observations of different items."""
        changes = [_observed(self.settings, tuple(each)) for each in rewards]
        arms = dict(self.header.arms)
        for item, change in zip(items, changes, strict=True):
            if self.settings.strategy == "bandit":
                by_bin = self.settings.arms == "bins"
                arm = arm_of_bin(self.bin(item)) if by_bin else arm_of_category(self.categories[item])
                step = arm_step(self.settings, change)
                arms[arm] = step.keep * arms[arm] + step.gain if arm in arms else step.first
        seen, steps = self.numbers["count"][items] > 0, np.array(changes)
        for number, name in enumerate(EstimateUpdate._fields):
            keep, gain, first = steps[:, number].T
            self.numbers[name][items] = np.where(seen, keep * self.numbers[name][items] + gain, first)
        self.numbers["count"][items] += 1
        self.header = replace(self.header, updates=self.header.updates + len(items), arms=arms)
        self.in_flight[items] = False
        self._sorted.clear()

    def _claim(self, own_seed: int | None, attempt: int) -> tuple[int, int]:
        if own_seed is not None:
            return own_seed, attempt
        counter = self.header.counter
        self.header = replace(self.header, counter=counter + 1)
        return self.settings.seed, counter

    def _stands(self, index: ItemIndex) -> NDArray[np.bool_]:
        seen, prior_only = self.numbers["count"] > 0, ~np.isnan(self.numbers["prior"])
        match index:
            case ItemIndex.MEAN_REWARD:
                return seen | prior_only
            case ItemIndex.UNSEEN:
                return ~seen & ~prior_only
            case ItemIndex.PRIOR_ONLY:
                return ~seen & prior_only
        return seen

    def _scores(self, index: ItemIndex) -> Numbers:
        match index:
            case ItemIndex.UNSEEN:
                return np.zeros(len(self.in_flight))
            case ItemIndex.POSTERIOR:
                passed, failed = self.numbers["passed"], self.numbers["failed"]
                return (1 + passed) / (2 + passed + failed)
        return self.numbers[NUMBER_OF[index]]
