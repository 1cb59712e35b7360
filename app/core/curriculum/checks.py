"""Reject settings of a curriculum that do not fit together, and compute its progress.

`lachesis.wire.curricula.CurriculumSettings` defines the settings with their bounds, for the rules too.
"""

from app.core.curriculum.strategies.table import needs_progress
from lachesis.wire.curricula import CurriculumSettings
from lachesis.wire.errors import InvalidField


def check_settings(settings: CurriculumSettings) -> None:
    """Reject settings that are valid one by one but do not fit together.

    Raises:
        InvalidField: `location` names the field.
    """
    if settings.reward_min >= settings.reward_max:
        raise InvalidField(f"is {settings.reward_max}, not above reward_min = {settings.reward_min}", ("reward_max",))
    if settings.hard_threshold >= settings.easy_threshold:
        raise InvalidField(
            f"is {settings.easy_threshold}, not above hard_threshold = {settings.hard_threshold}", ("easy_threshold",)
        )
    if not any((settings.hard_weight, settings.normal_weight, settings.easy_weight)):
        raise InvalidField("is 0, as are hard_weight and easy_weight: one of them must be above 0", ("normal_weight",))


def progress(settings: CurriculumSettings, step: int, total_steps: int | None = None) -> float:
    """Return how far training has come, 0 to 1: ``step / total_steps``, and 1 beyond.

    Args:
        settings: The settings of the curriculum. Their ``total_steps`` count if the request gives none.
        step: Trainer steps so far, ``>= 0``.
        total_steps: The value of the request, ``>= 1``, or None.

    Returns:
        Progress; 0 if ``total_steps`` is unknown and the strategy does not need progress.

    Raises:
        InvalidField: A number is out of range, or the strategy needs progress and ``total_steps`` is unknown.
    """
    whole = settings.total_steps if total_steps is None else total_steps
    if step < 0:
        raise InvalidField(f"should be 0 or more, not {step}", ("step",))
    if whole is None:
        check_total_steps(settings)
        return 0.0
    if whole < 1:
        raise InvalidField(f"should be 1 or more, not {whole}", ("total_steps",))
    return min(1.0, step / whole)


def check_total_steps(settings: CurriculumSettings) -> None:
    """Reject settings without ``total_steps`` if their strategy needs progress.

    This checks new settings: every request without ``total_steps`` would fail. A saved state is not checked, because
    its samples may give ``total_steps`` themselves.

    Raises:
        InvalidField: `location` names ``total_steps``.
    """
    if settings.total_steps is None and needs_progress(settings):
        raise InvalidField(f"is required for strategy {settings.strategy}", ("total_steps",))
