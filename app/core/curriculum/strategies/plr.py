"""Choose by prioritised level replay: by rank of score mixed with staleness, and unseen items while there are any.

A seen item has P = (1 - rho) P_score + rho P_staleness. P_score is in proportion to rank ** (-1 / beta), where rank 1
has the highest signal (mean |advantage| of the last group). P_staleness is in proportion to the samples since the item
was last handed out. With probability nu the item is unseen; all unseen items are equally likely. Temperature divides
the logarithms of P_score and of P_staleness. The shares rho and nu stay.

A sample of several items keeps the shares, too. Each draw first chooses a kind: unseen, by score, or by staleness. Then
it draws from the items left of this kind. (With beta = 0.1, P_score is nearly all on one item. Without kinds, all other
draws would go by staleness.)

Staleness up to 15 is exact. Above that it is rounded to the middle of a cell, an eighth of a power of two: within 7 %.

Source: Jiang, Grefenstette & Rocktaeschel, *Prioritized level replay* (2021); the fixed schedule of its code.
"""

import math

from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent, Span, cells
from app.core.curriculum.mixture import kept, over_cells, tempered
from lachesis.wire.curricula import CurriculumSettings

_STEEPEST = 64.0
"""The largest exponent in use. A larger one changes every probability by less than 2**-63."""


def spans(_: CurriculumSettings, samples: int) -> tuple[Span, ...]:
    """Return cells of staleness, the stalest first."""
    return cells(ItemIndex.LAST_SAMPLED, tuple(float(samples + 1 - oldest) for oldest, _ in ages(samples)[1:]))


def parts(settings: CurriculumSettings, counts: ItemCounts, _: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution."""
    seen = counts.seen
    fresh = {index: counts.length(index) for index in (ItemIndex.UNSEEN, ItemIndex.PRIOR_ONLY)}
    unseen = sum(fresh.values())
    new = (settings.unseen_share if seen else 1.0) if unseen else 0.0
    replayed, rho = 1 - new, settings.staleness_share
    steepness = min(_STEEPEST, 1 / (settings.score_temperature * settings.temperature))
    middles = [(oldest + youngest) / 2 for oldest, youngest in ages(counts.samples)]
    stale = tempered([math.log(each) for each in middles], settings.temperature, counts.spans)
    why = [f"last drawn {each:g} samples ago" for each in middles]
    return kept(
        [
            MixtureComponent(
                ItemIndex.SIGNAL, 0, seen, replayed * (1 - rho), "by rank of signal", exponent=steepness, kind="score"
            ),
            *over_cells(
                ItemIndex.LAST_SAMPLED, counts.spans, [replayed * rho * each for each in stale], why, "staleness"
            ),
            *(
                MixtureComponent(index, 0, size, new * size / unseen, "not yet seen", kind="unseen")
                for index, size in fresh.items()
                if size
            ),
        ]
    )


def ages(samples: int) -> list[tuple[int, int]]:
    """Return the cells of staleness, the stalest first: the largest and the least age of each, in samples.

    The largest age is ``samples + 1``, for items never drawn. The least is 1.
    """
    found, youngest = list[tuple[int, int]](), 1
    while youngest <= samples + 1:
        width = 1 << max(0, youngest.bit_length() - 4)
        found.append((min(youngest + width - 1, samples + 1), youngest))
        youngest += width
    return found[::-1]
