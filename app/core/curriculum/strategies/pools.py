"""Choose from three pools by their weights: hard, normal and easy, by the mean reward of an item's last group.

P(pool) is in proportion to its weight among the pools that have items, with its logarithm divided by the temperature.
All items of a pool are equally likely. An unseen item belongs to the pool of its prior or, without a prior, to the
normal pool.

This follows prime-rl's difficulty pools.
"""

import math

from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent, Span, cells
from app.core.curriculum.mixture import over_cells, tempered
from lachesis.wire.curricula import CurriculumSettings

POOLS = ("hard", "normal", "easy")


def spans(settings: CurriculumSettings, _: int) -> tuple[Span, ...]:
    """Return the ranges of the pools, for seen items and for unseen items with a prior."""
    bounds = (math.nextafter(settings.hard_threshold, math.inf), settings.easy_threshold)
    return (*cells(ItemIndex.LAST, bounds), *cells(ItemIndex.PRIOR_ONLY, bounds))


def parts(settings: CurriculumSettings, counts: ItemCounts, _: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution. It is empty if all pools that have items have the weight 0."""
    weights = (settings.hard_weight, settings.normal_weight, settings.easy_weight)
    pools = _pools(counts)
    sizes = [sum(each) for each in zip(*pools.values(), strict=True)]
    distribution = tempered(
        [math.log(weight) if weight and size else -math.inf for weight, size in zip(weights, sizes, strict=True)],
        settings.temperature,
    )
    why = [f"{name} pool" for name in POOLS]
    found = list[MixtureComponent]()
    for index, row in pools.items():
        shares = [whole * n / max(1, size) for whole, n, size in zip(distribution, row, sizes, strict=True)]
        found += over_cells(index, row, shares, why)
    return tuple(found)


def numbers(_: CurriculumSettings, counts: ItemCounts, __: float) -> dict[str, float]:
    """Return how many items each pool has."""
    sizes = zip(*_pools(counts).values(), strict=True)
    return {f"pool_{name}_count": float(sum(each)) for name, each in zip(POOLS, sizes, strict=True)}


def _pools(counts: ItemCounts) -> dict[ItemIndex, tuple[int, ...]]:
    """Return the sizes of the pools in each index that contains their items."""
    return {
        ItemIndex.LAST: counts.spans[:3],
        ItemIndex.PRIOR_ONLY: counts.spans[3:],
        ItemIndex.UNSEEN: (0, counts.length(ItemIndex.UNSEEN), 0),
    }
