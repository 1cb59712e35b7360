"""Keyword arguments of the methods of curricula."""

from typing import Any, TypedDict

from lachesis.wire.curricula import CurriculumStrategy


class ItemOptions(TypedDict, total=False):
    """What an item is registered with beside its key."""

    category: str | None
    prior: float | None
    metadata: dict[str, Any] | None


class HowSampled(TypedDict, total=False):
    """How items are chosen, if not by the settings of the curriculum."""

    step: int
    total_steps: int | None
    strategy: CurriculumStrategy | None
    seed: int | None
