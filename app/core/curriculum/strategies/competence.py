"""Choose items that match the learner's competence: the easiest share of items, or bins around the frontier.

`cdf`: competence c(t) = min(1, sqrt(t (1 - c0^2) / T + c0^2)). The distribution is uniform over the easiest items:
those whose rank by difficulty, as a fraction of all items, is at most c. Unknown items are in the middle of the order:
after the easier half of the others. Temperature has no effect on a uniform distribution.

Source: Platanios et al., *Competence-based curriculum learning for neural machine translation* (2019), equation 2.

`frontier`: an item is mastered if its mean reward is `competence_threshold` or more. The frontier is the bin of the
easiest item that is not mastered, or the hardest bin if all are. P(bin) is in proportion to
exp(-(bin - frontier)^2 / (2 width^2)), with log P divided by the temperature. The frontier moves when items are
mastered, not with the steps.
"""

import math

from app.core.curriculum.bins import bin_of, middle
from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent, Span
from app.core.curriculum.mixture import kept, over_bins
from lachesis.wire.curricula import CurriculumSettings

_ROUNDING = 1e-6  # of an item


def spans(settings: CurriculumSettings, _: int) -> tuple[Span, ...]:
    """Return the range of mastered items for `frontier`; nothing for `cdf`."""
    if settings.form == "cdf":
        return ()
    return (Span(ItemIndex.MEAN_REWARD, settings.competence_threshold, math.inf),)


def parts(settings: CurriculumSettings, counts: ItemCounts, progress: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution."""
    return _by_competence(settings, counts, progress) if settings.form == "cdf" else _by_frontier(settings, counts)


def needs_progress(settings: CurriculumSettings) -> bool:
    """Return whether competence grows with the steps."""
    return settings.form == "cdf"


def competence(initial: float, progress: float) -> float:
    """Return c(t) at t / T = ``progress``. It starts at ``initial``."""
    return min(1.0, math.sqrt(progress * (1 - initial**2) + initial**2))


def frontier(settings: CurriculumSettings, counts: ItemCounts) -> int:
    """Return the bin of the frontier."""
    ranked, mastered = counts.length(ItemIndex.MEAN_REWARD), counts.spans[0]
    if not ranked:
        return middle(settings.n_bins)
    return bin_of(max(0, ranked - 1 - mastered), ranked, settings.n_bins)


def _by_competence(settings: CurriculumSettings, counts: ItemCounts, progress: float) -> tuple[MixtureComponent, ...]:
    ranked, unseen = counts.length(ItemIndex.MEAN_REWARD), counts.length(ItemIndex.UNSEEN)
    share = competence(settings.initial_competence, progress)
    # At least one, so that there is something to try. 0.29 of 100 items are 29, although 0.29 * 100 is less in floats.
    allowed = min(counts.items, max(1, math.floor(share * counts.items + _ROUNDING)))
    easier = ranked - ranked // 2
    unknown = min(unseen, max(0, allowed - easier))
    known = allowed - unknown
    why = f"within competence {share:.2f}"
    return kept(
        [
            MixtureComponent(ItemIndex.MEAN_REWARD, ranked - known, known, known / max(1, allowed), why),
            MixtureComponent(
                ItemIndex.UNSEEN, 0, unknown, unknown / max(1, allowed), f"{why}, not yet seen", middle(settings.n_bins)
            ),
        ]
    )


def _by_frontier(settings: CurriculumSettings, counts: ItemCounts) -> tuple[MixtureComponent, ...]:
    centre = frontier(settings, counts)
    logs = [-(((each - centre) / settings.frontier_width) ** 2) / 2 for each in range(settings.n_bins)]
    why = [f"bin {each}, the frontier is bin {centre}" for each in range(settings.n_bins)]
    return over_bins(logs, settings.temperature, counts, why)


def numbers(settings: CurriculumSettings, counts: ItemCounts, progress: float) -> dict[str, float]:
    """Return the competence, or the bin of the frontier and how many items are mastered."""
    if settings.form == "cdf":
        return {"competence": competence(settings.initial_competence, progress)}
    return {"frontier_bin": float(frontier(settings, counts)), "mastered": float(counts.spans[0])}
