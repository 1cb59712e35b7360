"""Choose all items with the same probability, seen or not. Temperature has no effect."""

from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent
from app.core.curriculum.mixture import kept
from lachesis.wire.curricula import CurriculumSettings


def parts(_: CurriculumSettings, counts: ItemCounts, __: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution: 1 / items for each item."""
    return everything(counts, 1.0, "any item")


def everything(counts: ItemCounts, probability: float, why: str) -> tuple[MixtureComponent, ...]:
    """Return parts that divide a probability equally among all items."""
    sizes = {index: counts.length(index) for index in (ItemIndex.MEAN_REWARD, ItemIndex.UNSEEN)}
    return kept(
        [MixtureComponent(index, 0, n, probability * n / max(1, counts.items), why) for index, n in sizes.items()]
    )
