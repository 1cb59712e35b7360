"""Choose by Thompson sampling: draw candidates uniformly, then a pass rate from the posterior of each.

The best item is the one whose drawn pass rate is nearest to `target_pass_rate`. The posterior is
Beta(1 + passed, 1 + failed); old evidence is forgotten when new groups come. Log-densities are divided by the
temperature. This divides the evidence: a posterior with temperature 2 is as wide as that of half the observations. With
at most `candidates` items this is Thompson sampling over all of them. With more items, each sample uses a new random
subset.

Source: *BOTS: a unified framework for Bayesian online task selection in LLM reinforcement finetuning* (2025).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.core.curriculum.estimates import Estimate, posterior
from app.core.curriculum.indexes import ItemCounts, MixtureComponent
from app.core.curriculum.sampling import generator
from app.core.curriculum.settings import CurriculumPolicy
from app.core.curriculum.strategies.uniform import everything

_GRID = 1024


def parts(_: CurriculumPolicy, counts: ItemCounts, __: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution of candidates."""
    return everything(counts, 1.0, "best of the candidates")


def candidates_for(policy: CurriculumPolicy, wanted: int) -> int:
    """Return how many candidates to look up for so many items."""
    return max(policy.candidates, wanted)


def best(policy: CurriculumPolicy, candidates: Sequence[Estimate], seed: int, counter: int) -> list[int]:
    """Return candidates' positions, the best first, by one draw from the posterior of each.

    Args:
        policy: The curriculum's.
        candidates: Their estimates, in the order drawn by `choose`.
        seed: As for `choose`.
        counter: The counter that `choose` had. This function draws from another stream of it.
    """
    alphas, betas = _posteriors(policy, candidates)
    rates = generator(seed, counter, stream=1).beta(alphas, betas)
    order: list[int] = np.argsort(np.abs(rates - policy.target_pass_rate), kind="stable").tolist()
    return order


def best_probabilities(policy: CurriculumPolicy, candidates: Sequence[Estimate]) -> list[float]:
    """Return the probability of each candidate to be the best one. The probabilities sum to 1.

    P(i) is an integral over distances d from the target: i's density at d, times the probability that every other
    candidate is further away. It is computed on a grid of pass rates, with an error of about 1e-3.
    """
    if not candidates:
        return []
    alphas, betas = _posteriors(policy, candidates)
    rates = (np.arange(_GRID) + 0.5) / _GRID
    logs = (alphas[:, None] - 1) * np.log(rates) + (betas[:, None] - 1) * np.log1p(-rates)
    density = np.exp(logs - logs.max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    cells = np.floor(np.abs(rates - policy.target_pass_rate) * _GRID).astype(np.int64)
    near = np.zeros((len(candidates), _GRID + 1))
    np.add.at(near.T, cells, density.T)
    further = np.log(np.maximum(1 - np.cumsum(near, axis=1) + near / 2, np.finfo(float).tiny))
    wins = np.exp(np.log(np.maximum(near, np.finfo(float).tiny)) + further.sum(axis=0) - further).sum(axis=1)
    distribution: list[float] = (wins / wins.sum()).tolist()
    return distribution


def _posteriors(
    policy: CurriculumPolicy, candidates: Sequence[Estimate]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    found = np.array([posterior(policy, each) for each in candidates], np.float64).reshape(-1, 2)
    tempered = 1 + (found - 1) / policy.temperature
    return tempered[:, 0], tempered[:, 1]
