"""All strategies under one name each: what must be counted for one, and its law."""

from app.core.curriculum.orders import Counts, Part, Span
from app.core.curriculum.policy import CurriculumPolicy


def spans(policy: CurriculumPolicy, samples: int) -> tuple[Span, ...]:
    """Return what must be counted for the policy's strategy, besides the orders' lengths (and categories, for arms).

    Args:
        policy: The curriculum's.
        samples: Samples so far; that it has grown meanwhile does no harm.
    """
    raise NotImplementedError


def parts(policy: CurriculumPolicy, counts: Counts, progress: float) -> tuple[Part, ...]:
    """Return the law that the next item is drawn by.

    Args:
        policy: The curriculum's.
        counts: Of `spans`, with the same number of samples.
        progress: See `policy.progress`; 0 to 1.

    Returns:
        Parts whose probabilities sum to 1; none if there is no item, or none that the strategy would choose (all
        pools that have items weigh 0). Of THOMPSON: the law of its candidates, see `thompson`.
    """
    raise NotImplementedError
