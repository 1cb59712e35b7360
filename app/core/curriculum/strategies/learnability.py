"""Prefer items that are sometimes solved: P(item) in proportion to (p (1 - p)) ** (1 / temperature).

p is the mean of the posterior of the pass rate. It is rounded to the middle of one of 128 cells, which changes
p (1 - p) by less than 0.004. An unseen item has p = 1/2; if it has a prior, p follows from the prior. A prior is
rounded to one of 32 cells, which changes p (1 - p) by less than 0.016. So unknown items come first.

Source: Rutherford et al., *No regrets: investigating and improving regret approximations for curriculum discovery*
(2024).
"""

import numpy as np

from app.core.curriculum.estimates import Estimate, posterior
from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent, Span, cells
from app.core.curriculum.mixture import kept, over_cells, tempered
from lachesis.wire.curricula import CurriculumSettings

CELLS, PRIOR_CELLS = 128, 32


def spans(settings: CurriculumSettings, _: int) -> tuple[Span, ...]:
    """Return cells of the posteriors' means, and of priors."""
    low, width = settings.reward_min, settings.reward_max - settings.reward_min
    return (
        *cells(ItemIndex.POSTERIOR, tuple(each / CELLS for each in range(1, CELLS))),
        *cells(ItemIndex.PRIOR_ONLY, tuple(low + width * each / PRIOR_CELLS for each in range(1, PRIOR_CELLS))),
    )


def parts(settings: CurriculumSettings, counts: ItemCounts, _: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution."""
    low, width = settings.reward_min, settings.reward_max - settings.reward_min
    priors = [Estimate(prior=low + width * (each + 0.5) / PRIOR_CELLS) for each in range(PRIOR_CELLS)]
    rates = np.array(
        [(each + 0.5) / CELLS for each in range(CELLS)] + [posterior(settings, each).mean for each in priors] + [0.5]
    )
    unseen = counts.length(ItemIndex.UNSEEN)
    learnable = rates * (1 - rates)
    distribution = tempered(np.log(learnable), settings.temperature, [*counts.spans, unseen])
    why = [f"learnability {each:.3f}" for each in learnable]
    return (
        *over_cells(ItemIndex.POSTERIOR, counts.spans[:CELLS], distribution[:CELLS], why),
        *over_cells(ItemIndex.PRIOR_ONLY, counts.spans[CELLS:], distribution[CELLS:-1], why[CELLS:]),
        *kept([MixtureComponent(ItemIndex.UNSEEN, 0, unseen, distribution[-1], "not yet seen")]),
    )
