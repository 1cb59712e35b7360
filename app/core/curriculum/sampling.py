"""Draw different items from a distribution (`app.core.numeric.weighted_without_replacement`)."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from app.core.curriculum.indexes import ItemDraw, ItemIndex, MixtureComponent
from app.core.numeric.weighted_without_replacement import Places, sample_spans, sample_without_replacement
from app.core.numeric.zipf import zipf_ranks, zipf_total, zipf_without_replacement

ATTEMPTS = 3
"""The most attempts to draw for one sample."""

_first = attrgetter("first")
_MOST = 20_000  # places beyond twice the wanted number; Redis looks each of them up


def choose(parts: Sequence[MixtureComponent], n: int, seed: int, counter: int) -> list[ItemDraw]:
    """Draw different places by a distribution without replacement, in the order to try them.

    An item may be drawn twice if it is in two components of different indexes. Take it once. If items are refused
    (in flight, or gone), draw more (`draws_for`) with the next counter, and skip items that are taken already. So items
    follow the distribution restricted to the available ones. With several kinds, each draw chooses a kind first.
    Otherwise a kind with nearly all its probability on one item would count once, and never again.

    Args:
        parts: The distribution. If it is empty, nothing is drawn.
        n: How many, ``>= 0``. If there are at most ``n`` places, all of them are drawn.
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
        parts: The distribution. If it is empty, nothing is drawn. Probabilities need not sum to 1.
        n: How many, ``>= 0``.
        seed: As for `choose`.
        counter: As for `choose`.
    """
    if not parts:
        return []
    places = _Places(parts)
    return places.named(places.draw(n, generator(seed, counter)))


def draws_for(wanted: int, items: int, in_flight: int, attempt: int) -> int:
    """Return how many places to draw for ``wanted`` items.

    The number grows with the items in flight and with the attempt. The first attempt is enough if items in flight are
    as likely to be drawn as the others. The last attempt is enough even if they are the most likely ones. The number is
    bounded, because places are looked up one by one.

    Args:
        wanted: Items still wanted, ``>= 0``.
        items: All items.
        in_flight: Items that will be refused, including those taken for this sample.
        attempt: From 0 to ``ATTEMPTS - 1``.
    """
    some = wanted + wanted // 8 + 8
    available = max(1, items - in_flight)
    typical = -(-some * max(items, 1) // available) << (2 * attempt)
    # An item has two places if it is in two indexes.
    enough = 2 * (some + in_flight) if attempt == ATTEMPTS - 1 else 0
    return min(max(typical, enough), 2 * wanted + _MOST)


def probability_of(part: MixtureComponent, rank: int) -> float:
    """Return the probability that one draw gives this place of the part; 0 if the rank is outside the part."""
    place = rank - part.first
    if not 0 <= place < part.size:
        return 0.0
    if not part.exponent:
        return part.probability / part.size
    distribution: float = float(part.size - place) ** -part.exponent / zipf_total(part.exponent, part.size)
    return part.probability * distribution


class ItemProbabilities:
    """The probability that one draw gives an item, over all components that contain it.

    Args:
        parts: The distribution. Components of one index, kind and category have no place in common.
    """

    def __init__(self, parts: Sequence[MixtureComponent]) -> None:
        self._rows: dict[str | None, dict[tuple[ItemIndex, str], list[MixtureComponent]]] = {}
        for part in sorted(parts, key=_first):
            self._rows.setdefault(part.category, {}).setdefault((part.index, part.kind), []).append(part)

    def of(self, ranks: Mapping[ItemIndex, int], category: str = "") -> float:
        """Return an item's probability. A distribution may have hundreds of parts, and only a few contain the item.

        Args:
            ranks: The item's rank in each index that contains it. The indexes that the parts name suffice.
            category: Its category. ``ranks`` has its rank there under `ItemIndex.CATEGORY`.
        """
        total = 0.0
        for named in (None, category):
            for (index, _), row in self._rows.get(named, {}).items():
                number = bisect_right(row, ranks[index], key=_first) if index in ranks else 0
                total += probability_of(row[number - 1], ranks[index]) if number else 0.0
        return total


def generator(seed: int, counter: int, stream: int = 0) -> np.random.Generator:
    """Return the generator of one sample. The streams 0 and 1 of one counter are independent."""
    return np.random.Generator(np.random.Philox(key=seed, counter=counter << 64 | stream << 63))


def _kinds(masses: Sequence[float], sizes: Sequence[int], n: int, random: np.random.Generator) -> list[int]:
    """Choose the kind of each draw. The share of a kind that is used up goes to the others."""
    if len(masses) == 1:
        return [0] * min(n, sizes[0])
    found, left = list[int](), np.array(sizes)
    while len(found) < n and left.any():
        shares = np.where(left > 0, masses, 0.0)
        drawn = random.choice(len(masses), n - len(found), p=shares / shares.sum())
        # Keep draws until some kind would be used more often than it has places.
        beyond = [each[size] for number, size in enumerate(left) if len(each := np.flatnonzero(drawn == number)) > size]
        drawn = drawn[: min(beyond, default=len(drawn))]
        found += drawn.tolist()
        left = left - np.bincount(drawn, minlength=len(masses))
    return found


class _Places:
    """The places of all parts, with consecutive numbers."""

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
        if len(self.parts) == 1 and self.ranked:
            exponent, size = self.parts[0].exponent, self.parts[0].size
            return self.named(size - zipf_without_replacement(exponent, size, min(n, size), random))
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
        """Return the logarithms of the places' probabilities."""
        chosen = np.searchsorted(self.ends, places, side="right")
        weights: NDArray[np.float64] = self.logs[chosen]
        for number in self.ranked:
            of_it = np.flatnonzero(chosen == number)
            weights[of_it] -= self.parts[number].exponent * np.log(self.ends[number] - places[of_it])
        return weights

    def named(self, places: Places) -> list[ItemDraw]:
        """Return the draw of each place."""
        chosen = np.searchsorted(self.ends, places, side="right")
        firsts = np.array([part.first for part in self.parts], np.int64)
        ranks = firsts[chosen] + places - (self.ends - self.sizes)[chosen]
        found = zip(chosen.tolist(), ranks.tolist(), strict=True)
        return [ItemDraw(rank, self.parts[number]) for number, rank in found]
