"""All strategies under one name each: what must be counted for one, its distribution, and its numbers for people."""

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
    """Return what must be counted for the policy's strategy, besides the orders' lengths (and categories, for arms).

    Args:
        policy: The curriculum's.
        samples: Samples so far; that it has grown meanwhile does no harm.
    """
    return _STRATEGIES[policy.strategy].spans(policy, samples)


def parts(policy: CurriculumPolicy, counts: ItemCounts, progress: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution that the next item is drawn by.

    Args:
        policy: The curriculum's.
        counts: Of `spans`, with the same number of samples.
        progress: See `policy.progress`; 0 to 1.

    Returns:
        Parts whose probabilities sum to 1; none if there is no item, or none that the strategy would choose (all
        pools that have items weigh 0). Of THOMPSON: the distribution of its candidates, see `thompson`.
    """
    return _STRATEGIES[policy.strategy].parts(policy, counts, progress)


def numbers(policy: CurriculumPolicy, counts: ItemCounts, progress: float) -> dict[str, float]:
    """Return what the strategy has to show besides its distribution, by name."""
    return _STRATEGIES[policy.strategy].numbers(policy, counts, progress)
