"""Draw items from a distribution, none twice (`app.core.numeric.weighted_without_replacement`)."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from app.core.curriculum.indexes import ItemDraw, ItemIndex, MixtureComponent
from app.core.numeric.weighted_without_replacement import Places, sample_spans, sample_without_replacement
from app.core.numeric.zipf import zipf_ranks, zipf_total

ATTEMPTS = 3
"""How often to draw for one sample, at most."""

_first = attrgetter("first")
_MOST = 20_000  # places beyond twice those wanted; Redis serves nobody else while they are looked up


def choose(parts: Sequence[MixtureComponent], n: int, seed: int, counter: int) -> list[ItemDraw]:
    """Draw different places by a distribution without replacement, in the order to try them.

    An item may be drawn twice if it stands in two components of different indexes: take it once. If items are refused
    (in flight, or gone), draw again with the next counter, more (`draws_for`), and skip what is taken already. So items
    follow the distribution restricted to those that are available. With several kinds each draw chooses a kind first.
    Otherwise a kind with nearly all its probability on one item would count once, and never again.

    Args:
        parts: The distribution; without any, nothing is drawn.
        n: How many, ``>= 0``; if there are no more places than that, all of them are drawn.
        seed: Of the curriculum's generator or the request's, 0 to 2**64 - 1.
        counter: How often it drew before, ``>= 0``. The same seed and counter give the same draws.
    """
    if not parts:
        return []
    random = generator(seed, counter)
    distributions = [
        _Places([part for part in parts if part.kind == kind]) for kind in dict.fromkeys(p.kind for p in parts)
    ]
    order = _kinds(
        [distribution.probability for distribution in distributions],
        [distribution.total for distribution in distributions],
        n,
        random,
    )
    drawn = [iter(distribution.draws(order.count(number), random)) for number, distribution in enumerate(distributions)]
    return [next(drawn[number]) for number in order]


def independent(parts: Sequence[MixtureComponent], n: int, seed: int, counter: int) -> list[ItemDraw]:
    """Draw places with replacement, so that shares of the draws estimate the distribution.

    `bins.bin_distribution` uses them.

    Args:
        parts: The distribution; without any, nothing is drawn. Probabilities need not sum to 1.
        n: How many, ``>= 0``.
        seed: As for `choose`.
        counter: As for `choose`.
    """
    if not parts:
        return []
    places = _Places(parts)
    return places.named(places.draw(n, generator(seed, counter)))


def draws_for(wanted: int, items: int, in_flight: int, attempt: int) -> int:
    """Return how many places to draw for so many items: more, the more is in flight and the more often it was tried.

    The first attempt is enough where what is in flight is like the rest; the last one is if all of that was most likely
    to be drawn, too. Both are bounded: places are looked up one by one.

    Args:
        wanted: Items still wanted, ``>= 0``.
        items: All items.
        in_flight: Items that will be refused; what was taken for this sample is among them.
        attempt: From 0 to ``ATTEMPTS - 1``.
    """
    some = wanted + wanted // 8 + 8
    available = max(1, items - in_flight)
    typical = -(-some * max(items, 1) // available) << (2 * attempt)
    # In two orders each item has two places.
    enough = 2 * (some + in_flight) if attempt == ATTEMPTS - 1 else 0
    return min(max(typical, enough), 2 * wanted + _MOST)


def probability_of(part: MixtureComponent, rank: int) -> float:
    """Return how likely one draw is this place of the part; 0 if the rank lies outside it."""
    place = rank - part.first
    if not 0 <= place < part.size:
        return 0.0
    if not part.exponent:
        return part.probability / part.size
    distribution: float = float(part.size - place) ** -part.exponent / zipf_total(part.exponent, part.size)
    return part.probability * distribution


class Chances:
    """The probability that one draw is an item, over all components it stands in.

    Args:
        parts: The distribution; in an order, those of one kind and category have no place in common.
    """

    def __init__(self, parts: Sequence[MixtureComponent]) -> None:
        self._rows: dict[str | None, dict[tuple[ItemIndex, str], list[MixtureComponent]]] = {}
        for part in sorted(parts, key=_first):
            self._rows.setdefault(part.category, {}).setdefault((part.index, part.kind), []).append(part)

    def of(self, ranks: Mapping[ItemIndex, int], category: str = "") -> float:
        """Return an item's probability: a distribution may have hundreds of parts, of which it stands in a few.

        Args:
            ranks: The item's rank in each order it stands in (those that the parts name suffice).
            category: Its category; ``ranks`` has its rank there under `ItemIndex.CATEGORY`.
        """
        total = 0.0
        for named in (None, category):
            for (index, _), row in self._rows.get(named, {}).items():
                number = bisect_right(row, ranks[index], key=_first) if index in ranks else 0
                total += probability_of(row[number - 1], ranks[index]) if number else 0.0
        return total


def generator(seed: int, counter: int, stream: int = 0) -> np.random.Generator:
    """Return the generator of one sample; streams of one counter, 0 and 1, have nothing in common."""
    return np.random.Generator(np.random.Philox(key=seed, counter=counter << 64 | stream << 63))


def _kinds(masses: Sequence[float], sizes: Sequence[int], n: int, random: np.random.Generator) -> list[int]:
    """Draw which kind each draw is of; a kind that is used up leaves its share to the others."""
    if len(masses) == 1:
        return [0] * min(n, sizes[0])
    found, left = list[int](), np.array(sizes)
    while len(found) < n and left.any():
        shares = np.where(left > 0, masses, 0.0)
        drawn = random.choice(len(masses), n - len(found), p=shares / shares.sum())
        # Up to where some kind would be used more often than it has places.
        beyond = [each[size] for number, size in enumerate(left) if len(each := np.flatnonzero(drawn == number)) > size]
        drawn = drawn[: min(beyond, default=len(drawn))]
        found += drawn.tolist()
        left = left - np.bincount(drawn, minlength=len(masses))
    return found


class _Places:
    """The places of all parts, numbered through."""

    def __init__(self, parts: Sequence[MixtureComponent]) -> None:
        self.parts = parts
        self.masses = np.array([part.probability for part in parts])
        self.sizes = np.array([part.size for part in parts], np.int64)
        self.ends = np.cumsum(self.sizes)
        self.probability, self.total = float(self.masses.sum()), int(self.ends[-1])
        self.ranked = [number for number, part in enumerate(parts) if part.exponent]
        self.logs = np.log(self.masses)
        for number, part in enumerate(parts):
            self.logs[number] -= np.log(zipf_total(part.exponent, part.size) if part.exponent else part.size)

    def draws(self, n: int, random: np.random.Generator) -> list[ItemDraw]:
        """Draw different places."""
        return self.named(
            sample_without_replacement(
                lambda count: self.draw(count, random), self.log_weights, self.total, min(n, self.total), random
            )
        )

    def draw(self, count: int, random: np.random.Generator) -> Places:
        """Draw places with replacement."""
        chosen, places = sample_spans(self.masses, self.sizes, count, random)
        for number in self.ranked:
            of_it, part = np.flatnonzero(chosen == number), self.parts[number]
            places[of_it] = self.ends[number] - zipf_ranks(part.exponent, part.size, len(of_it), random)
        return places

    def log_weights(self, places: Places) -> NDArray[np.float64]:
        """Return logarithms of places' probabilities."""
        chosen = np.searchsorted(self.ends, places, side="right")
        weights: NDArray[np.float64] = self.logs[chosen]
        for number in self.ranked:
            of_it = np.flatnonzero(chosen == number)
            weights[of_it] -= self.parts[number].exponent * np.log(self.ends[number] - places[of_it])
        return weights

    def named(self, places: Places) -> list[ItemDraw]:
        """Return the draws that places are."""
        chosen = np.searchsorted(self.ends, places, side="right")
        firsts = np.array([part.first for part in self.parts], np.int64)
        ranks = firsts[chosen] + places - (self.ends - self.sizes)[chosen]
        found = zip(chosen.tolist(), ranks.tolist(), strict=True)
        return [ItemDraw(rank, self.parts[number]) for number, rank in found]
