"""Choose by Thompson sampling: draw candidates, then a pass rate from the posterior of each.

The best item is the one whose drawn pass rate is nearest to `target_pass_rate`. The posterior is
Beta(1 + passed, 1 + failed); old evidence is forgotten when new groups come. Log-densities are divided by the
temperature. This divides the evidence: a posterior with temperature 2 is as wide as that of half the observations. With
at most `candidates` items this is Thompson sampling over all of them. With more items, each sample uses a new random
subset: a cluster sample without replacement. All items stand in an order of their own, by category and then by key,
which is cut into ranges of up to 8 neighbours. Each range is drawn with the same probability, so each item is a
candidate with the same probability. But neighbours are candidates together. That costs an eighth of the reads of single
items. There are at least 128 ranges in a subset (with fewer than 256 candidates, ranges are single items), so it
represents the items well even if neighbours are alike.

Source: *BOTS: a unified framework for Bayesian online task selection in LLM reinforcement finetuning* (2025).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.core.curriculum.estimates import Estimate, Evidence, posteriors
from app.core.curriculum.indexes import ItemCounts, MixtureComponent
from app.core.curriculum.sampling import generator
from app.core.curriculum.strategies.uniform import everything
from lachesis.wire.curricula import CurriculumSettings

_GRID = 1024
_MOST_NEIGHBOURS = 8
_FEWEST_RANGES = 128


def parts(_: CurriculumSettings, counts: ItemCounts, __: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution of a candidate."""
    return everything(counts, 1.0, "best of the candidates")


def candidates_for(settings: CurriculumSettings, wanted: int) -> int:
    """Return how many candidates to compare at most for so many items."""
    return max(settings.candidates, wanted)


def candidate_ranges(most: int, items: int, seed: int, counter: int) -> list[tuple[int, int]]:
    """Draw the candidates: ranges of ranks in the order of all items, each as its first and its last rank.

    The last range of the order may be shorter than it says.

    Args:
        most: How many candidates at most, ``>= 1``. If there are at most so many items, all of them are candidates.
        items: All items, ``>= 0``.
        seed: As for `choose`.
        counter: As for `choose`.
    """
    size = min(_MOST_NEIGHBOURS, max(1, most // _FEWEST_RANGES))
    ranges = -(-items // size)
    drawn = generator(seed, counter).choice(ranges, ranges if items <= most else most // size, replace=False)
    return [(first, first + size - 1) for first in (drawn * size).tolist()]


def best(settings: CurriculumSettings, candidates: Evidence, seed: int, counter: int) -> list[int]:
    """Return candidates' positions, the best first, by one draw from the posterior of each.

    Args:
        settings: The curriculum's.
        candidates: What is known of them, in the order of `candidate_ranges`.
        seed: As for `choose`.
        counter: The counter that `candidate_ranges` had. This function draws from another stream of it.
    """
    alphas, betas = _tempered(settings, candidates)
    rates = generator(seed, counter, stream=1).beta(alphas, betas)
    order: list[int] = np.argsort(np.abs(rates - settings.target_pass_rate), kind="stable").tolist()
    return order


def best_probabilities(settings: CurriculumSettings, candidates: Sequence[Estimate]) -> list[float]:
    """Return the probability of each candidate to be the best one. The probabilities sum to 1.

    P(i) is an integral over distances d from the target: i's density at d, times the probability that every other
    candidate is further away. It is computed on a grid of pass rates, with an error of about 1e-3.
    """
    if not candidates:
        return []
    alphas, betas = _tempered(settings, Evidence.of(candidates))
    rates = (np.arange(_GRID) + 0.5) / _GRID
    logs = (alphas[:, None] - 1) * np.log(rates) + (betas[:, None] - 1) * np.log1p(-rates)
    density = np.exp(logs - logs.max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    cells = np.floor(np.abs(rates - settings.target_pass_rate) * _GRID).astype(np.int64)
    near = np.zeros((len(candidates), _GRID + 1))
    np.add.at(near.T, cells, density.T)
    further = np.log(np.maximum(1 - np.cumsum(near, axis=1) + near / 2, np.finfo(float).tiny))
    wins = np.exp(np.log(np.maximum(near, np.finfo(float).tiny)) + further.sum(axis=0) - further).sum(axis=1)
    distribution: list[float] = (wins / wins.sum()).tolist()
    return distribution


def _tempered(settings: CurriculumSettings, candidates: Evidence) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    alphas, betas = posteriors(settings, candidates)
    return 1 + (alphas - 1) / settings.temperature, 1 + (betas - 1) / settings.temperature
