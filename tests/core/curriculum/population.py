"""A curriculum whose items are arrays: what the store does with sorted sets, for tests and the benchmark."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from app.core.curriculum import thompson
from app.core.curriculum.bandit import arm_of_bin, arm_of_category, arm_step
from app.core.curriculum.bins import bin_of, middle
from app.core.curriculum.choosing import ATTEMPTS, choose, draws_for
from app.core.curriculum.estimates import Estimate, after, observed, posterior, unseen
from app.core.curriculum.orders import SEEN, Counts, Draw, Order
from app.core.curriculum.policy import Arms, CurriculumPolicy, Strategy
from app.core.curriculum.state import Header
from app.core.curriculum.strategies import parts, spans

Items = NDArray[np.int64]
SCORED = (*SEEN, Order.UNSEEN, Order.FORESEEN)

_observed = lru_cache(maxsize=1024)(observed)


class Population:
    """Items 0, 1, ...; an order's ties are in the order of their numbers."""

    def __init__(self, header: Header, estimates: Sequence[Estimate], categories: Sequence[str] = ()) -> None:
        self.header = header
        self.estimates = list(estimates)
        self.categories = list(categories) or [""] * len(self.estimates)
        self.in_flight = np.zeros(len(self.estimates), bool)
        self._scores = np.zeros((len(SCORED), len(self.estimates)))
        self._stands = np.zeros((len(SCORED), len(self.estimates)), bool)
        self._sorted: dict[Order, Items] = {}
        self._of_category = {
            name: np.flatnonzero([each == name for each in self.categories]) for name in sorted(set(self.categories))
        }
        for item in range(len(self.estimates)):
            self._place(item)

    @classmethod
    def of(cls, policy: CurriculumPolicy, items: int, categories: Sequence[str] = ()) -> "Population":
        """A population of which nothing is known."""
        return cls(Header(policy), [unseen()] * items, categories)

    @property
    def policy(self) -> CurriculumPolicy:
        return self.header.policy

    def standing(self, order: Order, category: str = "") -> Items:
        """The items of an order, by score."""
        if order is Order.CATEGORY:
            return self._of_category[category]
        if order not in self._sorted:
            row = SCORED.index(order)
            items = np.flatnonzero(self._stands[row])
            self._sorted[order] = items[np.argsort(self._scores[row, items], kind="stable")]
        return self._sorted[order]

    def counts(self) -> Counts:
        """Count what the strategy asks for."""
        asked = list[int]()
        for order, group in groupby(spans(self.policy, self.header.samples), key=lambda each: each.order):
            bounds = np.array([(span.low, span.high) for span in group])
            scores = self._scores[SCORED.index(order), self.standing(order)]
            asked += np.diff(np.searchsorted(scores, bounds), axis=1).ravel().tolist()
        return Counts(
            dict(zip(SCORED, np.count_nonzero(self._stands, axis=1).tolist(), strict=True)),
            tuple(asked),
            {name: len(items) for name, items in self._of_category.items()},
            self.header.arms,
            self.header.samples,
        )

    def sample(self, n: int, progress: float = 0.0, own_seed: int | None = None) -> list[int]:
        """Hand out items, as the service does."""
        taken: list[int] = []
        compares = self.policy.strategy is Strategy.THOMPSON
        for attempt in range(ATTEMPTS):
            counts = self.counts()
            seed, counter = self._claim(own_seed, attempt)
            wanted = thompson.candidates_for(self.policy, n) if compares else n - len(taken)
            draws = choose(
                parts(self.policy, counts, progress),
                draws_for(wanted, counts.items, int(self.in_flight.sum()), attempt),
                seed,
                counter,
            )
            found = list(dict.fromkeys(item for item in map(self.at, draws) if not self.in_flight[item]))[:wanted]
            if compares:
                ranked = thompson.best(self.policy, [self.estimates[item] for item in found], seed, counter)
                found = [found[place] for place in ranked][: n - len(taken)]
            taken += found
            self.in_flight[found] = True
            if len(taken) == n or len(taken) == len(self.estimates):
                break
        self.header = replace(self.header, samples=self.header.samples + 1)
        for item in taken:
            self.estimates[item] = replace(self.estimates[item], drawn=self.header.samples)
        self._scores[SCORED.index(Order.DRAWN), taken] = self.header.samples
        self._sorted.pop(Order.DRAWN, None)
        return taken

    def at(self, draw: Draw) -> int:
        """Who stands at a place."""
        return int(self.standing(draw.order, draw.part.category or "")[draw.rank])

    def ranks(self, item: int) -> dict[Order, int]:
        """An item's rank in each order it stands in."""
        orders = {order: self.standing(order, self.categories[item]) for order in Order}
        return {order: int(np.flatnonzero(items == item)[0]) for order, items in orders.items() if item in items}

    def bin(self, item: int) -> int:
        """An item's bin."""
        stands, scores = self._stands[SCORED.index(Order.EASE)], self._scores[SCORED.index(Order.EASE)]
        if not stands[item]:
            return middle(self.policy.n_bins)
        below = np.count_nonzero(stands & (scores < scores[item]))
        ties = np.count_nonzero(stands[:item] & (scores[:item] == scores[item]))
        return bin_of(below + ties, np.count_nonzero(stands), self.policy.n_bins)

    def observe(self, item: int, rewards: Sequence[float]) -> None:
        """Take down an observation."""
        change = _observed(self.policy, tuple(rewards))
        if self.policy.strategy is Strategy.BANDIT:
            by_bin = self.policy.arms is Arms.BINS
            arm = arm_of_bin(self.bin(item)) if by_bin else arm_of_category(self.categories[item])
            step, arms = arm_step(self.policy, change), self.header.arms
            self.header = replace(
                self.header, arms={**arms, arm: step.keep * arms[arm] + step.gain if arm in arms else step.first}
            )
        self.header = replace(self.header, updates=self.header.updates + 1)
        self.estimates[item] = after(self.estimates[item], change)
        self.in_flight[item] = False
        self._place(item)

    def _claim(self, own_seed: int | None, attempt: int) -> tuple[int, int]:
        if own_seed is not None:
            return own_seed, attempt
        counter = self.header.counter
        self.header = replace(self.header, counter=counter + 1)
        return self.policy.seed, counter

    def _place(self, item: int) -> None:
        estimate = self.estimates[item]
        mean = posterior(self.policy, estimate).mean
        self._scores[:, item] = (
            *(estimate.ema, mean, estimate.signal, estimate.last, estimate.drawn),
            *(0.0, estimate.prior or 0.0),
        )
        if estimate.count <= 1 or not self._stands[0, item]:
            self._stands[:, item] = [stands(estimate, order) for order in SCORED]
        self._sorted.clear()


def stands(estimate: Estimate, order: Order) -> bool:
    """Whether an item stands in an order."""
    foreseen = estimate.count == 0 and estimate.prior is not None
    match order:
        case Order.UNSEEN:
            return estimate.count == 0 and not foreseen
        case Order.FORESEEN:
            return foreseen
        case Order.EASE:
            return estimate.count > 0 or foreseen
    return estimate.count > 0
