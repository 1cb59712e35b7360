"""Map each strategy to its rules: the counts and the progress that it needs, its distribution, and its metrics."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from app.core.curriculum.indexes import ItemCounts, MixtureComponent, Span
from app.core.curriculum.strategies import bandit, competence, easy_first, learnability, plr, pools, thompson, uniform
from lachesis.wire.curricula import CurriculumSettings, CurriculumStrategy


class _StrategyRules(NamedTuple):
    parts: Callable[[CurriculumSettings, ItemCounts, float], tuple[MixtureComponent, ...]]
    spans: Callable[[CurriculumSettings, int], tuple[Span, ...]] = lambda *_: ()
    numbers: Callable[[CurriculumSettings, ItemCounts, float], dict[str, float]] = lambda *_: {}
    needs_progress: Callable[[CurriculumSettings], bool] = lambda _: False
    draws_candidates: bool = False


_STRATEGIES: Mapping[CurriculumStrategy, _StrategyRules] = {
    "uniform": _StrategyRules(uniform.parts),
    "easy_first": _StrategyRules(easy_first.parts, needs_progress=lambda _: True),
    "competence_based": _StrategyRules(
        competence.parts, competence.spans, competence.numbers, competence.needs_progress
    ),
    "learnability": _StrategyRules(learnability.parts, learnability.spans),
    "thompson": _StrategyRules(thompson.parts, draws_candidates=True),
    "plr": _StrategyRules(plr.parts, plr.spans),
    "difficulty_pools": _StrategyRules(pools.parts, pools.spans, pools.numbers),
    "bandit": _StrategyRules(bandit.parts, numbers=bandit.numbers),
}


def spans(settings: CurriculumSettings, samples: int) -> tuple[Span, ...]:
    """Return the spans to count for the strategy, besides the lengths of indexes (and categories, for arms).

    Args:
        settings: The curriculum's.
        samples: Samples so far. The strategy still works if the number is out of date.
    """
    return _STRATEGIES[settings.strategy].spans(settings, samples)


def parts(settings: CurriculumSettings, counts: ItemCounts, progress: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution of the next item.

    Args:
        settings: The curriculum's.
        counts: The counts for `spans`, with the same number of samples.
        progress: From `checks.progress`, 0 to 1.

    Returns:
        Parts whose probabilities sum to 1. Empty if there is no item, or the strategy would choose none of them (all
        pools that have items have the weight 0). If the strategy `draws_candidates`: their distribution.
    """
    return _STRATEGIES[settings.strategy].parts(settings, counts, progress)


def numbers(settings: CurriculumSettings, counts: ItemCounts, progress: float) -> dict[str, float]:
    """Return the strategy's own metrics by name."""
    return _STRATEGIES[settings.strategy].numbers(settings, counts, progress)


def needs_progress(settings: CurriculumSettings) -> bool:
    """Return whether the strategy's distribution changes with the progress of training."""
    return _STRATEGIES[settings.strategy].needs_progress(settings)


def draws_candidates(settings: CurriculumSettings) -> bool:
    """Return whether the strategy compares candidates and takes the best. Then an item's probability has no formula."""
    return _STRATEGIES[settings.strategy].draws_candidates
