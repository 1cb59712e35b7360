"""The state of Atropos's CurriculumScheduler, as a curriculum of ours."""

from collections.abc import Mapping
from typing import Any

from app.core.curriculum.estimates import Estimate
from app.core.curriculum.state import Header


def is_atropos(document: Mapping[str, Any]) -> bool:
    """Whether a document is the state of Atropos's CurriculumScheduler."""
    return "item_scores" in document


def load_atropos(document: Mapping[str, Any]) -> tuple[Header, dict[str, Estimate]]:
    """Read ``{strategy, n_bins, temperature, ema_alpha, competence_threshold, item_scores, bin_boundaries,
    last_rebin_count}``: its settings, and an estimate by key of each item that it scored.

    Raises:
        InvalidField: Something is missing, unknown, or out of range; `location` says where.
    """
    raise NotImplementedError
