"""Thompson sampling: candidates are drawn uniformly; a pass rate is drawn from each posterior, the nearest wins."""

from collections.abc import Sequence

from app.core.curriculum.estimates import Estimate
from app.core.curriculum.orders import Counts, Part, Span
from app.core.curriculum.policy import CurriculumPolicy


def best(policy: CurriculumPolicy, candidates: Sequence[Estimate], seed: int, counter: int) -> list[int]:
    """Return candidates' positions, the best first, by one draw from the posterior of each.

    Args:
        policy: The curriculum's.
        candidates: Their estimates, in the order drawn by `choose`.
        seed: As for `choose`.
        counter: The counter that `choose` had: this draws from another stream of it.
    """
    raise NotImplementedError


def best_probabilities(policy: CurriculumPolicy, candidates: Sequence[Estimate]) -> list[float]:
    """Return how likely each of these candidates is to be the best one; they sum to 1."""
    raise NotImplementedError


def candidates_for(policy: CurriculumPolicy, wanted: int) -> int:
    """Return how many candidates to look up for so many items."""
    raise NotImplementedError


def spans(policy: CurriculumPolicy, samples: int) -> tuple[Span, ...]:
    """Nothing but lengths."""
    raise NotImplementedError


def parts(policy: CurriculumPolicy, counts: Counts, progress: float) -> tuple[Part, ...]:
    """Return the law of candidates."""
    raise NotImplementedError
