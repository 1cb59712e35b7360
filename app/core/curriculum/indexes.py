"""Define the sorted sets of items, and the values that strategies and the store exchange.

`strategies.spans` ──▶ the store counts them: `ItemCounts` ──▶ `strategies.parts` ──▶ `sampling.choose`: `ItemDraw`s
──▶ the store looks up the items there, and takes those that are not in flight.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple


class ItemIndex(StrEnum):
    """A sorted set of items. Ranks start at 0, by ascending score, then by member.

    Seen items (observed at least once) are in the first five. Their score is the number of their `Estimate`; in
    POSTERIOR it is the mean of their posterior. An unseen item without a prior is in UNSEEN. An unseen item with a
    prior is in PRIOR_ONLY and in MEAN_REWARD, with the prior as score. CATEGORY has separate ranks for each category.
    Items without a category belong to the category "".
    """

    MEAN_REWARD = "mean_reward"
    POSTERIOR = "posterior"
    SIGNAL = "signal"
    LAST = "last"
    LAST_SAMPLED = "drawn"
    UNSEEN = "unseen"
    PRIOR_ONLY = "prior_only"
    CATEGORY = "category"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of scores of an index.

    Attributes:
        index: Any but CATEGORY.
        low: The smallest score, included; may be ``-inf``.
        high: The end, *not* included; may be ``inf``.
    """

    index: ItemIndex
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """The counts of items that strategies use: one snapshot.

    Attributes:
        lengths: Items in each index; 0 for those left out. For CATEGORY see `categories`.
        spans: Items in each of the spans asked for, in the order asked.
        categories: Items in each category; only where `arms` are categories.
        arms: Value of each arm of the bandit by its key (`bandit.arm_of_bin`, `bandit.arm_of_category`); 0 if left out.
        samples: Samples so far. The next sample has the number ``samples + 1``.
    """

    lengths: Mapping[ItemIndex, int]
    spans: tuple[int, ...] = ()
    categories: Mapping[str, int] = field(default_factory=dict)
    arms: Mapping[str, float] = field(default_factory=dict)
    samples: int = 0

    def length(self, index: ItemIndex) -> int:
        """Return the number of items in an index."""
        return self.lengths.get(index, 0)

    @property
    def items(self) -> int:
        """Return the number of all items, seen or not."""
        return self.length(ItemIndex.MEAN_REWARD) + self.length(ItemIndex.UNSEEN)

    @property
    def seen(self) -> int:
        """Return the number of items observed at least once."""
        return self.length(ItemIndex.MEAN_REWARD) - self.length(ItemIndex.PRIOR_ONLY)


@dataclass(frozen=True, slots=True)
class MixtureComponent:
    """A range of places in an index, with the probability that a draw is one of them.

    Attributes:
        index: The index.
        first: The rank of its lowest place.
        size: Places, ``>= 1``.
        probability: Above 0; the parts of a distribution sum to 1.
        why: The reason to choose from it, in a few words for people.
        bin: The bin of all its items. None if they may be in several bins; then ask for their ranks of mean reward.
        category: The category, for `ItemIndex.CATEGORY` only; else None.
        exponent: 0: all places are equally likely. Else the k-th place from the *highest* score has a probability in
            proportion to ``k ** -exponent``.
        kind: Components of one kind are one distribution. With several kinds, each draw first chooses a kind by their
            probabilities, whatever was drawn before, and then draws from what is left of that kind.
    """

    index: ItemIndex
    first: int
    size: int
    probability: float
    why: str
    bin: int | None = None
    category: str | None = None
    exponent: float = 0.0
    kind: str = ""


class ItemDraw(NamedTuple):
    """A place: ``rank`` in the index of ``component``. For CATEGORY, the rank within its category."""

    rank: int
    component: MixtureComponent


def cells(index: ItemIndex, bounds: tuple[float, ...]) -> tuple[Span, ...]:
    """Divide an index at ascending scores: ``len(bounds) + 1`` spans that cover it."""
    edges = (-math.inf, *bounds, math.inf)
    return tuple(Span(index, low, high) for low, high in pairwise(edges))
