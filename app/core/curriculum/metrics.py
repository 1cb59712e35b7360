"""A curriculum in numbers for people."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.curriculum.orders import Counts, Part
from app.core.curriculum.policy import CurriculumPolicy


@dataclass(frozen=True, slots=True)
class Totals:
    """What orders' lengths do not say.

    Attributes:
        ease_sum: Sum of the scores of `Order.EASE`.
        ease_min: The least of them, or None if there is none.
        ease_max: The greatest.
        updates: Observations so far.
        in_flight: Items handed out and not yet observed.
    """

    ease_sum: float = 0.0
    ease_min: float | None = None
    ease_max: float | None = None
    updates: int = 0
    in_flight: int = 0


def metrics(policy: CurriculumPolicy, counts: Counts, totals: Totals, parts: Sequence[Part]) -> dict[str, float]:
    """Return metrics by name, those of Atropos's CurriculumScheduler among them, all under ``curriculum/``."""
    raise NotImplementedError
