"""Count items by mean reward, in tenths of the range of rewards."""

from app.core.curriculum.indexes import ItemIndex, Span, cells
from lachesis.wire.curricula import REWARD_TENTHS, CurriculumSettings


def reward_edges(settings: CurriculumSettings) -> list[float]:
    """Return the bounds of the tenths of the range from `reward_min` to `reward_max`, in increasing order."""
    low, high = settings.reward_min, settings.reward_max
    return [*(low + (high - low) * tenth / REWARD_TENTHS for tenth in range(REWARD_TENTHS)), high]


def reward_spans(settings: CurriculumSettings) -> tuple[Span, ...]:
    """Return the ranges of mean reward that are counted. The first and the last have all items beyond them, too.

    An item that was not seen yet counts by its prior. Without one it is in no range.
    """
    return cells(ItemIndex.MEAN_REWARD, tuple(reward_edges(settings)[1:-1]))
