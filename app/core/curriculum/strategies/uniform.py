"""All items alike, seen or not; temperature changes nothing."""

from app.core.curriculum.indexes import Counts, Order, Part
from app.core.curriculum.mixture import kept
from app.core.curriculum.settings import CurriculumPolicy


def parts(_: CurriculumPolicy, counts: Counts, __: float) -> tuple[Part, ...]:
    """Return the law: 1 / items each."""
    return everything(counts, 1.0, "any item")


def everything(counts: Counts, probability: float, why: str) -> tuple[Part, ...]:
    """Return parts that share a probability among all items alike."""
    sizes = {order: counts.length(order) for order in (Order.MEAN_REWARD, Order.UNSEEN)}
    return kept([Part(order, 0, n, probability * n / max(1, counts.items), why) for order, n in sizes.items()])
