"""Choose a bin or a category by a bandit: P(arm) in proportion to exp(Q / temperature), then any item of the arm.

Q starts at 0. Each observation sets Q <- Q + arm_alpha * (signal - Q). The signal is the mean |advantage| of the group;
the advantage is the reward minus the group's mean. Rewards from 0 to 1 give signals of at most 0.5, so a temperature of
1 is nearly uniform; 0.1 is a good first value. Arms without an item are left out.

Source: Chen et al., *Self-evolving curriculum for LLM reasoning* (2025), TD(0) and the Boltzmann distribution.
"""

from collections.abc import Iterable

from app.core.curriculum.estimates import EstimateUpdate, LeakyUpdate
from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent
from app.core.curriculum.mixture import kept, over_bins, tempered
from lachesis.wire.curricula import MAX_BINS, CurriculumSettings


def arm_of_bin(bin_: int) -> str:
    """Return the key of a bin's arm."""
    return f"bin:{bin_}"


def arm_of_category(category: str) -> str:
    """Return the key of a category's arm. Items without a category have the category ""."""
    return f"category:{category}"


def known_arms(categories: Iterable[str]) -> set[str]:
    """Return the keys of all arms: of bins, of these categories, and of items without a category."""
    return {*map(arm_of_bin, range(MAX_BINS)), *map(arm_of_category, ("", *categories))}


def arm_step(settings: CurriculumSettings, change: EstimateUpdate) -> LeakyUpdate:
    """Return how an observation updates the value of its arm, which starts at 0: ``keep * value + gain``.

    The arm belongs to the item's bin *before* the observation, or to its category.
    """
    keep, gain = 1 - settings.arm_alpha, settings.arm_alpha * change.signal.gain
    return LeakyUpdate(keep, gain, gain)


def parts(settings: CurriculumSettings, counts: ItemCounts, _: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution."""
    if settings.arms == "bins":
        values = [counts.arms.get(arm_of_bin(each), 0.0) for each in range(settings.n_bins)]
        return over_bins(values, settings.temperature, counts, [f"bin {i} at {q:.3f}" for i, q in enumerate(values)])
    categories = {name: size for name, size in sorted(counts.categories.items()) if size}
    values = [counts.arms.get(arm_of_category(name), 0.0) for name in categories]
    distribution = tempered(values, settings.temperature)
    return kept(
        [
            MixtureComponent(
                ItemIndex.CATEGORY, 0, size, probability, f"category {name!r} at {value:.3f}", category=name
            )
            for (name, size), probability, value in zip(categories.items(), distribution, values, strict=True)
        ]
    )


def numbers(settings: CurriculumSettings, counts: ItemCounts, _: float) -> dict[str, float]:
    """Return the values of the arms that the settings name. Others are from before a change of the settings."""
    if settings.arms == "bins":
        bins = set(map(arm_of_bin, range(settings.n_bins)))
        return {f"arm_{key}": value for key, value in sorted(counts.arms.items()) if key in bins}
    return {f"arm_{key}": value for key, value in sorted(counts.arms.items()) if key.startswith(arm_of_category(""))}
