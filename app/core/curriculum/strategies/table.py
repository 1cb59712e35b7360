"""Map each strategy to its rules: what must be counted for it, its distribution, and its metrics."""

from collections.abc import Callable
from typing import NamedTuple

from app.core.curriculum.indexes import ItemCounts, MixtureComponent, Span
from app.core.curriculum.settings import CurriculumPolicy, CurriculumStrategy
from app.core.curriculum.strategies import bandit, competence, easy_first, learnability, plr, pools, thompson, uniform


class _StrategyRules(NamedTuple):
    parts: Callable[[CurriculumPolicy, ItemCounts, float], tuple[MixtureComponent, ...]]
    spans: Callable[[CurriculumPolicy, int], tuple[Span, ...]] = lambda *_: ()
    numbers: Callable[[CurriculumPolicy, ItemCounts, float], dict[str, float]] = lambda *_: {}


_STRATEGIES = {
    CurriculumStrategy.UNIFORM: _StrategyRules(uniform.parts),
    CurriculumStrategy.EASY_FIRST: _StrategyRules(easy_first.parts),
    CurriculumStrategy.COMPETENCE_BASED: _StrategyRules(competence.parts, competence.spans, competence.numbers),
    CurriculumStrategy.LEARNABILITY: _StrategyRules(learnability.parts, learnability.spans),
    CurriculumStrategy.THOMPSON: _StrategyRules(thompson.parts),
    CurriculumStrategy.PLR: _StrategyRules(plr.parts, plr.spans),
    CurriculumStrategy.DIFFICULTY_POOLS: _StrategyRules(pools.parts, pools.spans, pools.numbers),
    CurriculumStrategy.BANDIT: _StrategyRules(bandit.parts, numbers=bandit.numbers),
}


def spans(policy: CurriculumPolicy, samples: int) -> tuple[Span, ...]:
    """Return the spans to count for the policy's strategy, besides the lengths of indexes (and categories, for arms).

    Args:
        policy: The curriculum's.
        samples: Samples so far. The strategy still works if the number is out of date.
    """
    return _STRATEGIES[policy.strategy].spans(policy, samples)


def parts(policy: CurriculumPolicy, counts: ItemCounts, progress: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution of the next item.

    Args:
        policy: The curriculum's.
        counts: The counts for `spans`, with the same number of samples.
        progress: From `settings.progress`, 0 to 1.

    Returns:
        Parts whose probabilities sum to 1. Empty if there is no item, or the strategy would choose none of them (all
        pools that have items have the weight 0). For THOMPSON: the distribution of its candidates, see `thompson`.
    """
    return _STRATEGIES[policy.strategy].parts(policy, counts, progress)


def numbers(policy: CurriculumPolicy, counts: ItemCounts, progress: float) -> dict[str, float]:
    """Return the strategy's own metrics by name."""
    return _STRATEGIES[policy.strategy].numbers(policy, counts, progress)
