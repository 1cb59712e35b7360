"""What a curriculum should be after each step, as a plain dict of items; and what Redis should then hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.core.curriculum.bins import bin_of, middle
from app.core.curriculum.estimates import Estimate, observed
from app.core.curriculum.strategies.bandit import arm_step
from app.store.curriculum.entries import packed_estimate
from lachesis.wire.curricula import CurriculumSettings
from tests.core.curriculum.updates import after

_UNITS = 65536


@dataclass
class Item:
    """An item: what it was registered with, what is known of it, who has it."""

    category: int = 0
    metadata: str = ""
    prior: float | None = None
    estimate: Estimate = field(default_factory=Estimate)
    history: list[float] = field(default_factory=list)
    until: float = -math.inf
    batch_request: int = 0
    sample: str = ""

    @property
    def mean_reward(self) -> float | None:
        """What it stands by in the order of mean reward, if it does."""
        return self.estimate.ema if self.estimate.count else self.prior


@dataclass
class CurriculumModel:
    """A curriculum."""

    settings: CurriculumSettings = field(default_factory=CurriculumSettings)
    items: dict[str, Item] = field(default_factory=dict)
    categories: list[str] = field(default_factory=list)
    arms: dict[str, float] = field(default_factory=dict)
    updates: int = 0
    requests: set[str] = field(default_factory=set)

    def register(self, key: str, category: str | None, prior: float | None, metadata: str | None) -> None:
        """Make an item, or change what is named of it; the empty string and NaN take away."""
        item = self.items.setdefault(key, Item())
        if category:
            self.categories += [category] if category not in self.categories else []
            item.category = self.categories.index(category) + 1
        elif category is not None:
            item.category = 0
        if prior is not None:
            item.prior = None if math.isnan(prior) else prior
        item.metadata = item.metadata if metadata is None else metadata

    def observe(self, observations: Sequence[tuple[str, Sequence[float]]], request: str | None) -> bool:
        """Count observations; False if they were counted before."""
        if request is not None and request in self.requests:
            return False
        self.requests |= {request} if request is not None else set()
        arm_of = {key: self._arm(key) for key, _ in observations}
        for key, rewards in observations:
            item, change = self.items.setdefault(key, Item()), observed(self.settings, rewards)
            drawn = item.estimate.drawn if item.estimate.count else item.batch_request
            item.estimate = replace(after(item.estimate, change), drawn=drawn)
            item.history = [*item.history, item.estimate.last][-50:]
            item.until, item.batch_request, item.sample = -math.inf, 0, ""
            arm = arm_step(self.settings, change)
            before = self.arms.get(arm_of[key])
            self.arms[arm_of[key]] = arm.first if before is None else arm.keep * before + arm.gain
        self.updates += len(observations)
        return True

    def hand_out(self, key: str, number: int, sample: str, now: float) -> None:
        """Give an item to somebody."""
        item = self.items[key]
        item.until, item.batch_request, item.sample = now + self.settings.in_flight_ttl_s, number, sample
        if item.estimate.count:
            item.estimate = replace(item.estimate, drawn=number)

    def give_back(self, key: str, sample: str) -> None:
        """Take an item back from who has it."""
        item = self.items.get(key)
        if item is not None and item.sample == sample:
            item.until, item.batch_request, item.sample = -math.inf, 0, ""

    def held(self, sample: str, now: float) -> set[str]:
        """Return the items that a sample still has."""
        return {key for key, item in self.items.items() if item.sample == sample and item.until > now}

    def idle(self, now: float) -> set[str]:
        """Return the items that nobody has."""
        return {key for key, item in self.items.items() if item.until <= now}

    def restored(self, now: float) -> "CurriculumModel":
        """Return what a saved and restored one is: who has what is known still, requests are not."""
        items = {
            key: replace(item, batch_request=item.batch_request if item.until > now else 0, sample="")
            for key, item in self.items.items()
        }
        return replace(self, items=items, requests=set())

    def by_mean_reward(self) -> list[str]:
        """Return the keys of items in the order of mean reward."""
        placed = [(item.mean_reward, key.encode()) for key, item in self.items.items() if item.mean_reward is not None]
        return [key.decode() for _, key in sorted(placed)]

    def contents(self) -> dict[str, Any]:
        """Return the contents of each of its keys that is not empty (`tests.services.curriculum.runs.contents`)."""
        seen = {key: item for key, item in self.items.items() if item.estimate.count}
        prior_only = {key: item.prior for key, item in self.items.items() if not item.estimate.count}
        orders: dict[str, Mapping[str, float | None]] = {
            "mean_reward": {key: item.mean_reward for key, item in self.items.items()},
            "posterior": {key: _mean(item.estimate) for key, item in seen.items()},
            "signal": {key: item.estimate.signal for key, item in seen.items()},
            "last": {key: item.estimate.last for key, item in seen.items()},
            "drawn": {key: item.estimate.drawn for key, item in seen.items()},
            "prior_only": prior_only,
            "unseen": {key: 0 for key, prior in prior_only.items() if prior is None},
            "category": {key: item.category for key, item in self.items.items()},
        }
        hashes = {
            "items": {key: _entry(item).encode() for key, item in self.items.items()},
            "estimates": {key: packed_estimate(item.estimate, item.history) for key, item in seen.items()},
            "category_numbers": {name: b"%d" % number for number, name in enumerate(self.categories, 1)},
            "arms": self.arms,
        }
        found: dict[str, Any] = {name: _sorted(scores) for name, scores in orders.items()}
        found |= {name: {key.encode(): value for key, value in own.items()} for name, own in hashes.items()}
        return {name: value for name, value in found.items() if value}

    def reward_sum(self) -> float:
        """Return the sum of mean reward, as the store rounds it."""
        eases = [item.mean_reward for item in self.items.values() if item.mean_reward is not None]
        return sum(math.floor(mean_reward * _UNITS + 0.5) for mean_reward in eases) / _UNITS

    def _arm(self, key: str) -> str:
        item = self.items.get(key, Item())
        if self.settings.arms == "categories":
            return f"category:{item.category}"
        order = self.by_mean_reward()
        known = key in self.items and item.mean_reward is not None
        bins = self.settings.n_bins
        return f"bin:{bin_of(order.index(key), len(order), bins) if known else middle(bins)}"


def _mean(estimate: Estimate) -> float:
    return (1 + estimate.passed) / (2 + estimate.passed + estimate.failed)


def _entry(item: Item) -> str:
    return f"{item.category} {'-' if item.prior is None else repr(item.prior)} {item.metadata}"


def _sorted(scores: Mapping[str, float | None]) -> list[tuple[bytes, float]]:
    placed = [(score, key.encode()) for key, score in scores.items() if score is not None]
    return [(key, float(score)) for score, key in sorted(placed)]
